"use strict";
// Values where one points, or where arrow keys lead. Without this script the page has all but that.
(() => {
  const REACH = 26;
  const root = document.documentElement;

  const make = (name, attributes, parent) => {
    const node = document.createElementNS(parent.namespaceURI, name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return parent.appendChild(node);
  };
  const add = (name, className, text, parent) => {
    const node = document.createElement(name);
    node.className = className;
    node.textContent = text;
    return parent.appendChild(node);
  };

  for (const figure of document.querySelectorAll("figure[data-hover]")) {
    const { names, span, stops } = JSON.parse(figure.dataset.hover);
    const svg = figure.querySelector("svg");
    const marks = make("g", { "aria-hidden": "true" }, svg);
    const tip = add("div", "tip", "", figure);
    tip.setAttribute("role", "status");
    tip.hidden = true;
    svg.tabIndex = 0;
    let current = -1;

    const hide = () => { current = -1; tip.hidden = true; marks.replaceChildren(); };

    const show = (index) => {
      if (index === current) return;
      current = index;
      const [x, y, head, rows] = stops[index];
      marks.replaceChildren();
      if (span) make("line", { class: "cursor", x1: x, x2: x, y1: span[0], y2: span[1] }, marks);
      else make("circle", { class: "ring", cx: x, cy: y, r: 6 }, marks);
      tip.replaceChildren();
      add("b", "", head, tip);
      for (const [number, value, place] of rows) {
        const [style, label] = names[number];
        const row = add("div", "", "", tip);
        if (style) add("span", `swatch ${style}`, "", row);
        if (label) add("span", "who", label, row);
        add("span", "what", value, row);
        if (span && place !== null) make("circle", { class: `spot ${style}`, cx: x, cy: place, r: 4 }, marks);
      }
      tip.hidden = false;
      // Beside the place, where the window has room for it; on a phone below the chart.
      const scale = svg.clientWidth / svg.viewBox.baseVal.width;
      const box = figure.getBoundingClientRect();
      const top = svg.getBoundingClientRect().top - box.top;
      const least = 8 - box.left, most = root.clientWidth - 8 - box.left - tip.offsetWidth;
      const right = x * scale + 14, left = x * scale - 14 - tip.offsetWidth;
      const fits = right <= most || left >= least;
      const wanted = right <= most ? right : left;
      tip.style.left = `${Math.max(least, Math.min(wanted, most))}px`;
      tip.style.top = `${span ? (fits ? top + 4 : box.height + 4) : top + y * scale + 14}px`;
    };

    const nearest = (event) => {
      const box = svg.getBoundingClientRect();
      const scale = svg.viewBox.baseVal.width / box.width;
      const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
      let best = -1, least = span ? Infinity : REACH * REACH;
      stops.forEach((stop, index) => {
        const distance = (stop[0] - x) ** 2 + (span ? 0 : (stop[1] - y) ** 2);
        if (distance < least) { least = distance; best = index; }
      });
      if (best < 0) hide(); else show(best);
    };

    svg.addEventListener("pointermove", nearest);
    svg.addEventListener("pointerdown", nearest);
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("blur", hide);
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (event.key === "Escape") hide();
      if (!step) return;
      event.preventDefault();
      const from = current < 0 ? (step > 0 ? -1 : stops.length) : current;
      show(Math.max(0, Math.min(stops.length - 1, from + step)));
    });
  }

  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const label = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
  system.addEventListener("change", label);
  label();
  button.hidden = false;
})();
