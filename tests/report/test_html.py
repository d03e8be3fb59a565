"""The page of a report: what is in it, and that its numbers are those of the metrics."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import scipy.stats

from fedrl import FedrlError, Run
from fedrl.cli.main import main
from fedrl.experiment.timing import Timing
from fedrl.progress import in_words
from fedrl.report.arms import Arm
from fedrl.report.html.baseline import matrix
from fedrl.report.html.embeddings import main_directions
from fedrl.report.html.numbers import bytes_as_words, short, ticks
from fedrl.report.html.points import Point, colour, trend
from fedrl.report.html.words import told
from fedrl.report.showing import report_of, write_page
from fedrl.strategies import Adam, ControlVariates, Median, Momentum, Prox
from in_process import Federation
from pages import (
    ALONE,
    GYMNASIUM,
    HOSTILE,
    PERSONAL,
    ROBOTS,
    ROLLOUTS,
    made_up,
    page_of,
    trained,
    unfinished,
)
from tiny import TINY

pytestmark = pytest.mark.usefixtures("kept", "hasty")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pages")


@pytest.fixture(scope="module")
def together(kept, hasty, folder):
    return trained(TINY, folder)


@pytest.fixture(scope="module")
def alone(kept, hasty, folder):
    return trained(ALONE, folder)


@pytest.fixture(scope="module")
def personal(kept, hasty, folder):
    return trained(PERSONAL, folder)


@pytest.fixture(scope="module")
def both(together, alone):
    return Read(page_of([together, alone]))


class Read(HTMLParser):
    """A page as tests want it: texts of sections, tables, charts."""

    VOID = ("meta",)

    def __init__(self, text):
        super().__init__()
        self.text, self.tables, self.charts = text, {}, {}
        self.sections, self.links, self.tags = {}, [], []
        self._section, self._rows, self._open, self._hover = "", [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.tags.append(tag)
        self.links += [given[name] for name in ("src", "href", "xlink:href") if name in given]
        if tag == "section":
            self._section = given["id"]
            self.sections[self._section] = ""
        if tag == "figure":
            self._hover = given.get("data-hover")
        if tag == "table":
            self._rows = self.tables.setdefault(self._section, [])
        if tag == "tr":
            self._rows.append([])
        if tag in ("td", "th"):
            self._rows[-1].append("")
        if tag == "svg" and given.get("role") == "img":
            assert given["aria-label"]
        if tag not in self.VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        if tag == "section":
            self._section = ""
        while self._open.pop() != tag:
            pass

    def handle_data(self, data):
        if self._section:
            self.sections[self._section] += data
        if self._open and self._open[-1] in ("td", "th"):
            self._rows[-1][-1] += data
        if self._open and self._open[-1] == "figcaption" and data.strip():
            self.charts[self._section, data.strip()] = (
                json.loads(self._hover) if self._hover else None
            )


def returns(run, updates=60):
    frame = run.metrics()
    return frame[(frame["metric"] == "return") & (frame["updates"] == updates)]


def by_seed(rows):
    return rows.groupby("seed")["value"].mean().to_numpy()


def said(values):
    """As a table says it, from SciPy."""
    half = scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values)
    return f"{values.mean():.1f} ± {half:.1f}".replace("-", "−")


def test_every_section_is_there(both):
    assert list(both.sections) == [
        "experiment", "curves", "results", "environments", "baseline", "costs", "settings",
        "versions",
    ]  # fmt: skip
    for words in ("2 agents with DQN", "every 10 updates they average", "never communicate"):
        assert words in both.sections["experiment"]
    assert 'kind = "cartpoles"' in both.sections["settings"]
    assert "jaxlib" in both.sections["versions"]


def test_tables_say_what_the_metrics_say(both, together, alone):
    rows = {row[0]: row[1:] for row in both.tables["results"] if row[0]}
    federated, apart = returns(together), returns(alone)
    of_average = apart["agent"] == "average"
    arms = {"DQNAvg, E = 10": federated, "E = ∞": apart[of_average], "Baseline": apart[~of_average]}
    for label, frame in arms.items():
        assert rows[label][:2] == ["60", "2"]
        for column, split in ((2, "train"), (3, "held-out")):
            of_split = frame[frame["split"] == split]
            values = by_seed(of_split)
            assert rows[label][column] == said(values), (label, split)
    difference = by_seed(federated[federated["split"] == "train"]) - by_seed(
        apart[of_average & (apart["split"] == "train")]
    )
    found = next(row for row in both.tables["results"] if row[0] == "DQNAvg, E = 10 − E = ∞")
    assert found[1] == "end"
    assert found[2].removesuffix(" *") == said(difference)


def test_the_headline_is_the_return_at_the_end(both, together):
    frame = returns(together)
    values = by_seed(frame[(frame["split"] == "train")])
    mean, half = said(values).split(" ± ")
    first = re.search(r'<p class="number">.*?</p>', both.text).group()
    assert f'<span class="mean">{mean}</span>' in first
    assert f'<span class="half">± {half}</span>' in first


def test_curves_tell_means_and_bands(both, together):
    chart = both.charts["curves", "Held-out environments"]
    assert [label for _, label in chart["names"]] == ["DQNAvg, E = 10", "E = ∞", "Baseline"]
    assert [stop[2] for stop in chart["stops"]] == [f"{x} updates" for x in (0, 20, 40, 60)]
    for stop, when in zip(chart["stops"], (0, 20, 40, 60), strict=True):
        frame = returns(together, when)
        values = by_seed(frame[frame["split"] == "held-out"])
        half = 1.65 * values.std(ddof=1) / np.sqrt(2)
        assert stop[3][0][:2] == [0, f"{values.mean():.1f} ± {half:.1f}"]


def test_every_environment_is_a_point_at_its_theta(both, together, alone):
    for title, split in (("training", "train"), ("held-out", "held-out")):
        chart = both.charts["environments", f"{title} environments, by length"]
        frame = returns(together)
        frame = frame[(frame["split"] == split)]
        expected = {
            (f"seed {row.seed} · length {float(row.theta):.4g}", f"{row.value:.1f}")
            for row in frame.itertuples()
        }
        found = {(stop[2], stop[3][0][1]) for stop in chart["stops"] if stop[3][0][0] == 0}
        assert found == expected
    # Baseline in a held-out environment: the mean over agents.
    frame = returns(alone)
    frame = frame[(frame["split"] == "held-out") & (frame["agent"] != "average")]
    means = frame.groupby(["seed", "environment"])["value"].mean()
    found = [stop[3][0][1] for stop in chart["stops"] if stop[3][0][0] == 2]
    assert sorted(found) == sorted(f"{x:.1f}" for x in means)


def test_the_baseline_matrix_is_sorted_by_theta(both, alone):
    frame = returns(alone)
    frame = frame[(frame["split"] == "train") & (frame["agent"] != "average")]
    grids = []
    for _, rows in frame.groupby("seed"):
        theta = {int(r.environment): float(r.theta) for r in rows.itertuples()}
        order = sorted(theta, key=theta.get)
        value = {(int(r.agent), int(r.environment)): r.value for r in rows.itertuples()}
        grids.append([[value[i, j] for j in order] for i in order])
    expected = [f"{x:.1f}" for x in np.mean(grids, axis=0).ravel()]
    chart = both.charts["baseline", "Training environments"]
    assert [stop[3][0][1] for stop in chart["stops"]] == expected
    assert len(both.charts["baseline", "Held-out environments"]["stops"]) == 2 * 2


def test_rows_and_columns_of_the_matrix_are_sorted_by_theta_in_every_seed():
    """The value of agent i in environment j is 10 theta_i + theta_j, whatever their numbers."""
    thetas = {"train": [[3, 1, 2], [1, 3, 2]], "held-out": [[5, 4], [4, 5]]}
    frames = {
        split: pd.DataFrame(
            [
                (seed, 60, str(i), j, str(theta), 10 * thetas["train"][seed][i] + theta)
                for seed in range(2)
                for i in range(3)
                for j, theta in enumerate(of_split[seed])
            ],
            columns=["seed", "updates", "agent", "environment", "theta", "value"],
        )
        for split, of_split in thetas.items()
    }
    arm = Arm("Baseline", ALONE, np.array([60]), {}, measured=frames)
    found = matrix(arm, "train")
    assert found.to_numpy().tolist() == [[11, 12, 13], [21, 22, 23], [31, 32, 33]]
    assert list(found.index) == list(found.columns) == ["1", "2", "3"]
    found = matrix(arm, "held-out")
    assert found.to_numpy().tolist() == [[14, 15], [24, 25], [34, 35]]
    assert list(found.columns) == ["4", "5"]


def test_costs_of_a_run_in_one_process_are_computed_and_said_to_be(both, together):
    rows = {row[0]: row[1:] for row in both.tables["costs"]}
    # 4 observations, 8 hidden, 2 actions; six rounds, two agents, 32 bits.
    parameters = 4 * 8 + 8 + 8 * 2 + 2
    bytes_ = bytes_as_words(6 * 2 * parameters * 4)
    time = in_words(together.seconds)
    assert rows[together.path.name] == [
        "6", str(parameters), bytes_, bytes_, "computed", time, "not recorded",
    ]  # fmt: skip


def test_nothing_is_loaded_from_elsewhere(both):
    assert all(link.startswith("#") for link in both.links)
    assert both.links
    assert "http://" not in both.text
    assert "https://" not in both.text
    assert "url(" not in both.text
    assert "@import" not in both.text
    assert "default-src 'none'" in both.text
    assert len(both.text) < 300_000


def test_the_same_runs_give_the_same_page(together, alone, tmp_path):
    for name in ("a.html", "b.html"):
        write_page(report_of([together, alone]), tmp_path / "new" / name)
    files = sorted((tmp_path / "new").iterdir())
    assert [file.name for file in files] == ["a.html", "b.html"]
    assert files[0].read_bytes() == files[1].read_bytes() == page_of([together, alone]).encode()
    assert str(together.path.parent) not in files[0].read_text()


def test_embeddings_are_mapped_for_every_agent(personal):
    read = Read(page_of([personal]))
    chart = read.charts["embeddings", "by length"]
    frame = returns(personal)
    homes = frame[(frame["split"] == "train") & (frame["agent"] == "average")]
    expected = {
        (f"seed {r.seed} · agent {r.environment}", f"length {float(r.theta):.4g}")
        for r in homes.itertuples()
    }
    assert {(stop[2], stop[3][0][1]) for stop in chart["stops"]} == expected
    assert len(expected) == 2 * 3
    assert "agents’ own environments" in re.search(r'<p class="where">.*?</p>', read.text).group()


def test_main_directions_keep_distances_and_rise_with_theta(rng):
    plane = rng.normal(size=(6, 2)) * (3, 1)
    turned = plane @ np.linalg.qr(rng.normal(size=(5, 5)))[0][:2]
    theta = rng.normal(size=6)
    found = main_directions(turned, theta)

    def distances(points):
        return np.linalg.norm(points[:, None] - points[None], axis=-1)

    np.testing.assert_allclose(distances(found), distances(plane))
    assert (np.diff(-found.var(0)) >= 0).all()
    assert ((theta - theta.mean()) @ found >= 0).all()
    # A single agent has no direction.
    assert main_directions(turned[:1], theta[:1]).tolist() == [[0.0, 0.0]]


def test_an_adaptation_says_what_it_trains(personal, tmp_path):
    adapted = personal.adapt(method="e-update", updates=4, out=tmp_path, progress=False)
    read = Read(page_of([adapted]))
    assert "baseline" not in read.sections
    assert "train only what is private" in read.sections["experiment"]
    assert ("curves", "Agents’ own environments") in read.charts
    assert ("embeddings", "by length") in read.charts
    learner = replace(adapted.experiment.learner, trains="shared")
    untrained = made_up(replace(adapted.experiment, learner=learner), tmp_path)
    assert "embeddings were not trained" in Read(page_of([untrained])).sections["embeddings"]


AVERAGING = (
    "60 updates each; every 10 updates they average their networks (E = 10), 6 times in all. "
)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({}, f"{AVERAGING}Every 20 updates the models play"),
        (
            {"correction": Prox(mu=0.5)},
            f"{AVERAGING}Every local step is pulled towards the model that the server sent "
            "(FedProx, μ = 0.5). Every 20",
        ),
        (
            {"correction": ControlVariates(), "server_optimizer": Momentum(lr=0.5)},
            f"{AVERAGING}In every local step an agent’s own drift is replaced by the average "
            "agent’s (control variates, SCAFFOLD). The server does not take the result as its next "
            "model, but a step towards it, with momentum (FedAvgM, step size 0.5). Every 20",
        ),
        (
            {"aggregator": Median(), "server_optimizer": Adam()},
            "they take the median of their networks (E = 10), 6 times in all. The server does not "
            "take the result as its next model, but a step towards it, with Adam (FedAdam, step "
            "size 0.01). Every 20",
        ),
        (
            {"agents": 4, "timing": Timing(arrivals=2)},
            "up to 60 updates each; after every 10 updates an agent offers its network to the "
            "server, which waits for 2 arrivals and for nobody else; those that arrived average "
            "what they have changed of their networks (E = 10), 6 times in all, and go on from the "
            "newest model. A change counts (1 + s)^−0.5 where the model that the agent began with "
            "is s rounds old. Every 20",
        ),
        (
            {"timing": Timing(arrivals=1, staleness=0.0)},
            "A change counts in full, however old the model that the agent began with. Every 20",
        ),
        ({"agents": 4, "participation": 0.5}, "up to 60 updates each; every 10 updates 2 of them"),
        ({"timing": Timing(spread=1.0)}, AVERAGING),
    ],
)
def test_a_run_is_told_with_all_parts_of_its_strategy(parts, words, tmp_path):
    assert words in told(made_up(replace(TINY, **parts), tmp_path))


def test_an_unfinished_run_says_how_far_it_is(personal, tmp_path):
    read = Read(page_of([unfinished(personal, tmp_path)]))
    assert "not finished: 20 of 60 updates are done" in read.sections["experiment"]
    assert "once the run is finished" in read.sections["embeddings"]
    assert [row[1] for row in read.tables["results"]] == ["updates", "20"]
    # Two communications every 10 updates.
    assert read.tables["costs"][1][1] == "2"
    nothing = unfinished(personal, tmp_path / "..", until=-1)
    with pytest.raises(FedrlError, match="has no results yet"):
        page_of([nothing])


@pytest.mark.parametrize(
    ("experiment", "words"),
    [(ROLLOUTS, "5 agents with PPO"), (ROBOTS, "an embedding of 3 numbers")],
)
def test_other_learners_have_pages_too(experiment, words, tmp_path):
    read = Read(page_of([made_up(experiment, tmp_path)]))
    assert words in read.sections["experiment"]
    assert ("curves", "Training environments") in read.charts
    assert "--baseline" in read.sections["baseline"]


def drawings(read, section):
    """The drawings of a section."""
    text = re.search(rf'<section id="{section}">.*?</section>', read.text, re.DOTALL)[0]
    return re.findall(r"<svg viewBox.*?</svg>", text, re.DOTALL)


def test_returns_against_one_constant_have_lines_and_those_against_two_are_a_map(tmp_path):
    one = Read(page_of([made_up(ROLLOUTS, tmp_path)]))
    assert ("environments", "training environments, by length") in one.charts
    (drawing,) = drawings(one, "environments")
    assert "polyline" in drawing
    run = made_up(ROBOTS, tmp_path)
    two = Read(page_of([run]))
    (drawing,) = drawings(two, "environments")
    assert "polyline" not in drawing
    assert ">back_thigh<" in drawing
    assert ">front_thigh<" in drawing
    chart = two.charts["environments", "training environments"]
    expected = set()
    for row in returns(run, 0).query("agent != 'average'").itertuples():
        back, front = map(float, row.theta.split())
        head = f"seed {row.seed} · back_thigh {back:.4g} · front_thigh {front:.4g}"
        expected.add((head, f"{row.value:.1f}".replace("-", "−")))
    assert {(stop[2], stop[3][0][1]) for stop in chart["stops"]} == expected
    assert "lines" not in two.sections["environments"]


def test_names_are_escaped(tmp_path):
    read = Read(page_of([made_up(GYMNASIUM, tmp_path)]))
    assert read.tags.count("script") == 1
    assert HOSTILE not in read.text
    assert "alert('" not in read.text
    assert HOSTILE in read.sections["experiment"]
    assert f"training environments, by {HOSTILE}" in [title for _, title in read.charts]
    chart = read.charts["environments", f"training environments, by {HOSTILE}"]
    assert all(HOSTILE in stop[2] for stop in chart["stops"])
    assert "A single seed has no interval" in read.sections["results"]
    assert "±" not in read.sections["curves"]


def test_a_federation_over_a_network_has_measured_costs_and_private_thetas(tmp_path):
    experiment = replace(PERSONAL, agents=2, seeds=1, updates=20)
    path = Federation(experiment, tmp_path).run().path
    read = Read(page_of([Run(path)]))
    costs = pd.read_csv(path / "communication.csv")
    row = read.tables["costs"][1]
    assert row[1] == "2"
    assert row[3] == bytes_as_words(costs["bytes_sent"].sum())
    assert row[5] == "measured"
    assert "not recorded" not in row
    assert "tell nobody about their environments" in read.sections["environments"]
    assert "stayed on the agents’ machines" in read.sections["embeddings"]


def test_the_command_writes_the_page_and_says_where(together, alone, tmp_path, capsys):
    target = tmp_path / "deep" / "out.html"
    runs = [str(together.path), str(alone.path)]
    assert main(["report", *runs, "--out", str(tmp_path), "--html", str(target)]) == 0
    assert f"page: {target}" in capsys.readouterr().out
    assert target.read_text() == page_of([together, alone])
    discounted = ["--metric", "discounted_return", "--html", str(target)]
    assert main(["report", *runs, "--out", str(tmp_path), *discounted]) == 0
    assert "Discounted return at the end" in target.read_text()


def test_what_cannot_be_a_page_is_refused(together, tmp_path, capsys):
    for target, words in (
        (tmp_path, "is a folder: name the file of the page"),
        (together.path / "metrics.csv" / "x.html", "name another file with --html"),
    ):
        arguments = ["report", str(together.path), "--out", str(tmp_path / "f")]
        assert main([*arguments, "--html", str(target)]) == 2
        assert words in capsys.readouterr().err
        assert not (tmp_path / "f").exists()
    with pytest.raises(FedrlError, match="name at least one run"):
        page_of([])


def test_runs_that_count_differently_are_refused(together, folder, tmp_path):
    class Episodes:
        experiment = replace(TINY, unit="episodes")

    with pytest.raises(FedrlError, match="cannot be compared"):
        page_of([together, Episodes()])


@pytest.mark.parametrize(
    ("low", "high"), [(0, 200), (-3.2, 7), (0.1005, 0.1855), (1e-9, 3e-9), (-1e6, 1e6)]
)
def test_ticks_are_round_and_cover_the_range(low, high):
    found = ticks(low, high)
    assert 3 <= len(found) <= 6
    assert low - 1e-9 * abs(low) <= found[0] <= found[-1] <= high * (1 + 1e-9)
    steps = {round(b - a, 12) for a, b in pairwise(found)}
    assert len(steps) == 1
    assert ticks(5, 5) == [5]


def test_numbers_are_short():
    assert [short(x) for x in (0, -0.0, 20_000, -1500, 0.25, 2e6)] == [
        "0", "0", "20k", "−1.5k", "0.25", "2M",
    ]  # fmt: skip
    assert [bytes_as_words(x) for x in (12, 1500, 2.5e6, 123.4e6)] == [
        "12 bytes", "1.5 kB", "2.5 MB", "123 MB",
    ]  # fmt: skip


def test_the_line_through_points_is_made_of_means():
    points = [Point(x, y, "", "") for x, y in ((1, 2), (1, 4), (2, 10))]
    assert trend(points) == [(1.0, 3.0), (2.0, 10.0)]
    many = [Point(x, 2 * x, "", "") for x in np.linspace(0, 1, 80)]
    assert len(trend(many)) == 8
    assert all(y == pytest.approx(2 * x) for x, y in trend(many))
    assert (colour(0.0), colour(1.0)) == ("#0072b2", "#d55e00")
