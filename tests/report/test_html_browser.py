"""The page of a report as a reader sees it, in Chromium."""

import shutil

import pytest
from playwright import sync_api

from fedrl.report.showing import report_of, write_page
from pages import ALONE, trained
from tiny import TINY

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.usefixtures("kept", "hasty"),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: make chromium"),
]
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def runs(kept, hasty, tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    return [trained(TINY, folder), trained(ALONE, folder)]


@pytest.fixture(scope="module")
def address(runs):
    target = runs[0].path.parent / "page.html"
    write_page(report_of(runs), target)
    return target.as_uri()


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(browser, address):
    """Opens the page; whatever goes wrong in it fails the test."""
    contexts, wrong, asked = [], [], []

    def look(width=1280, scheme="light", **given):
        size = {"width": width, "height": 800}
        context = browser.new_context(viewport=size, color_scheme=scheme, **given)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: asked.append(request.url))
        page.goto(address)
        return page

    yield look
    for context in contexts:
        context.close()
    assert wrong == []
    assert asked == [address] * len(contexts)


def chart(page, section, title):
    return page.locator(f"#{section} figure", has=page.get_by_text(title, exact=True))


def point_at(page, figure, stop):
    """Move the mouse to a place of a chart, in its own units."""
    svg = figure.locator("svg")
    svg.scroll_into_view_if_needed()
    box, width = svg.bounding_box(), svg.evaluate("svg => svg.viewBox.baseVal.width")
    scale = box["width"] / width
    page.mouse.move(box["x"] + stop[0] * scale, box["y"] + stop[1] * scale)
    return figure.locator(".tip")


def average_at_the_end(run, split):
    frame = run.metrics().query("metric == 'return' and agent == 'average' and updates == 60")
    return frame[frame["split"] == split]


def test_pointing_at_a_curve_tells_the_values_there(opened, runs):
    page = opened()
    figure = chart(page, "curves", "Held-out environments")
    assert figure.locator(".tip").is_hidden()
    tip = point_at(page, figure, (360, 100))
    assert tip.locator("b").inner_text() == "60 updates"
    rows = tip.locator("div").all_inner_texts()
    assert len(rows) == 3
    mean = average_at_the_end(runs[0], "held-out")["value"].mean()
    assert rows[0].split() == ["DQNAvg,", "E", "=", "10", f"{mean:.1f}", "±", rows[0].split()[-1]]
    page.mouse.move(2, 2)
    assert tip.is_hidden()


def test_pointing_at_a_cell_tells_its_value(opened, runs):
    page = opened()
    figure = chart(page, "baseline", "Training environments")
    cells = figure.evaluate("figure => JSON.parse(figure.dataset.hover).stops")
    tip = point_at(page, figure, cells[0])
    frame = runs[1].metrics().query("metric == 'return' and split == 'train' and updates == 60")
    frame = frame[frame["agent"] != "average"]
    frame["theta"] = frame["theta"].astype(float)
    # Where the agent with the smallest theta is at home.
    smallest = frame.loc[frame.groupby("seed")["theta"].idxmin(), ["seed", "environment"]]
    home = smallest.merge(frame[frame["agent"] == frame["environment"].astype(str)])
    assert tip.locator(".what").inner_text() == f"{home['value'].mean():.1f}"


def test_pointing_at_a_point_tells_its_environment(opened, runs):
    page = opened()
    figure = chart(page, "environments", "training environments, by length")
    row = average_at_the_end(runs[0], "train").iloc[0]
    head = f"seed 0 · length {float(row['theta']):.4g}"
    stops = figure.evaluate("figure => JSON.parse(figure.dataset.hover).stops")
    stop = next(one for one in stops if one[2] == head and one[3][0][0] == 0)
    assert point_at(page, figure, stop).locator("b").inner_text() == head


def test_arrow_keys_lead_through_a_curve(opened):
    page = opened()
    figure = chart(page, "curves", "Training environments")
    figure.locator("svg").focus()
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft"):
        page.keyboard.press(key)
        seen.append(figure.locator(".tip b").inner_text())
    assert seen == ["0 updates", "20 updates", "0 updates", "0 updates"]
    page.keyboard.press("Escape")
    assert figure.locator(".tip").is_hidden()


@pytest.mark.parametrize("width", [375, 320])
def test_a_phone_need_not_scroll_sideways(opened, width):
    page = opened(width=width)
    for details in page.locator("summary").all():
        details.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # What is wide scrolls by itself, and what is drawn can be read.
    tables = page.locator(".scroll").evaluate_all("all => all.map(x => x.scrollWidth)")
    assert max(tables) > width
    sizes = page.locator("figure svg text").evaluate_all(
        "all => all.map(x => parseFloat(getComputedStyle(x).fontSize) * x.getScreenCTM().a)"
    )
    assert min(sizes) >= 9.5  # pixels
    tip = point_at(page, chart(page, "curves", "Training environments"), (360, 100))
    box = tip.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width


def brightness(page):
    colour = page.evaluate(BACKGROUND)
    return sum(int(x) for x in colour.removeprefix("rgb(").rstrip(")").split(","))


def test_the_page_is_light_or_dark_as_the_reader_is_used_to_and_can_be_changed(opened):
    light, dark = opened(), opened(scheme="dark")
    assert brightness(light) > 700
    assert brightness(dark) < 100
    for page in (light, dark):
        before = brightness(page)
        said = page.locator("#theme").inner_text()
        page.locator("#theme").click()
        assert abs(brightness(page) - before) > 500
        assert page.locator("#theme").inner_text() != said
        page.locator("#theme").click()
        assert brightness(page) == before


def test_without_scripts_everything_but_the_hover_is_there(opened):
    page = opened(java_script_enabled=False)
    assert page.locator("figure svg[role=img]").count() == 7 + 1
    assert page.locator("#theme").is_hidden()
    assert page.locator("#results table").count() == 2
