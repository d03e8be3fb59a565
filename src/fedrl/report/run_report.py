"""The report of runs, made from their directories and from nothing else."""

from collections.abc import Iterator, Sequence
from math import isfinite

import pandas as pd
from matplotlib.figure import Figure
from rich.box import SIMPLE
from rich.console import RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from fedrl.counting import count
from fedrl.network.record import missed_in_words, read_missed
from fedrl.report.arms import OWN, SPLITS, along, differences, final, interval, side_by_side
from fedrl.report.figures import BAND, COLUMNS, draw_curves, mean_and_band, panels, rows
from fedrl.report.html.baseline import baseline_matrices
from fedrl.report.html.costs import costs_section
from fedrl.report.html.embeddings import embeddings_section
from fedrl.report.html.environments import returns_against_theta
from fedrl.report.html.lines import Line, curves_section
from fedrl.report.html.numbers import as_words, decimal
from fedrl.report.html.section import Card, Section, Table, style_of
from fedrl.report.html.words import PLACES, told
from fedrl.report.tables import table
from fedrl.runs.metrics import CLOCK, RETURN
from fedrl.runs.run import Run

# Of a legend, about.
INCHES_OF_LETTER, INCHES_OF_LINE = 0.075, 0.2
NOT_AVERAGED = (
    "diverged: a reward, a loss, a parameter or a return was not a finite number. There is no mean "
    "over the other seeds; their values are in the CSV file."
)


class RunReport:
    """Returns of runs, beside each other."""

    again = "fedrl run FILE"
    """The command that begins a run with the same settings."""

    def __init__(self, runs: Sequence[Run], metric: str) -> None:
        self.runs, self.metric, self.said = runs, metric, metric.replace("_", " ")
        self.suffix = "" if metric == RETURN else f"-{metric}"
        self.arms = side_by_side(runs, metric)
        self.styles = [style_of(number) for number in range(len(self.arms))]
        self.unit = self.arms[0].experiment.unit
        self.diverged = any(arm.diverged for arm in self.arms)
        # Where all of them were evaluated.
        self.splits = [s for s in SPLITS if all(s in arm.curves for arm in self.arms)]
        self.at_end = [[interval(final(arm, s)) for s in self.splits] for arm in self.arms]
        self.gains = list(differences(self.arms, self.splits))

    def printed(self) -> Iterator[RenderableType]:
        """What is said on a terminal."""
        for run in self.runs:
            if not run.finished:
                yield f"{run.path} is not finished; this is how far it is"
            for words in missed_in_words(read_missed(run.path), run.experiment.rounds):
                yield f"{run.path.name}: {words}"
        yield self._final_table()
        if self.diverged:
            yield Text(NOT_AVERAGED)
        if self.gains:
            yield self._difference_table()

    def _final_table(self) -> RichTable:
        seeds = sorted({arm.experiment.seeds for arm in self.arms})
        counts = " or ".join([*map(str, seeds[:-1]), count(seeds[-1], "seeds")])
        intervals = " ± 95 % interval" if seeds[-1] > 1 else ""
        title = f"{self.said.capitalize()} at the end: mean over {counts}{intervals}"
        rows = [
            (arm.shown, f"{arm.updates[-1]}", *map(str, ends))
            for arm, ends in zip(self.arms, self.at_end, strict=True)
        ]
        return table(("", self.unit, *self.splits), rows, title=title, box=SIMPLE)

    def _difference_table(self) -> RichTable:
        rows = [
            (
                name if when == "end" else "",
                when,
                *(f"{gain}{'*' if gain.excludes_zero else ' '}" for gain in gains),
            )
            for name, when, gains in self.gains
        ]
        columns = ("", "", *(split.removesuffix(" environment") for split in self.splits))
        title = "Differences, at the end and in the mean over the training; * excludes 0"
        return table(columns, rows, left=(0, 1), title=title, box=SIMPLE, padding=(0, 1, 0, 0))

    def rows(self) -> tuple[Sequence[str], list[list[object]]]:
        """Columns and rows of the CSV file; the last column is the clock, if that is drawn over."""
        columns, found = (*COLUMNS, self.metric), rows(self.arms, self.splits)
        if any(arm.clock is None for arm in self.arms):
            return columns, found
        at: dict[object, float] = {
            (arm.label, when): x
            for arm, seconds in zip(self.arms, along(self.arms)[1], strict=True)
            for when, x in zip(arm.updates, seconds, strict=True)
        }
        return (*columns, CLOCK), [[*row, f"{at[row[0], row[2]]:.6g}"] for row in found]

    def figure(self) -> Figure:
        """Return against training for each split: the mean, and a band of standard errors."""
        width = 3.5 * max(len(self.splits), 2)
        # The legend stands below: labels may be longer than a chart is wide.
        longest = max(len(arm.label) for arm in self.arms)
        across = max(int(width / (0.7 + INCHES_OF_LETTER * longest)), 1)
        height = 3.4 + INCHES_OF_LINE * -(-len(self.arms) // across)
        figure, axes = panels(width, height, self.splits, self.said)
        for ax, split in zip(axes, self.splits, strict=True):
            draw_curves(ax, self.arms, split)
        legend = axes[0].get_legend_handles_labels()
        figure.legend(*legend, loc="outside lower center", ncols=across, frameon=False)
        return figure

    def told(self) -> list[str]:
        """What was done in each run."""
        return [told(run) for run in self.runs]

    def cards(self) -> list[Card]:
        """What one looks for first on a page: the return at the end, of each arm."""
        personal = any(arm.experiment.learner.personal for arm in self.arms)
        main = PLACES[OWN if personal or len(self.splits) == 1 else self.splits[0]]
        cards = []
        for style, arm, at_end in zip(self.styles, self.arms, self.at_end, strict=True):
            ends = {PLACES[split]: end for split, end in zip(self.splits, at_end, strict=True)}
            end = ends.pop(main)
            half = f"± {decimal(end.half)}" if isfinite(end.half) else ""
            beside = [(x.removesuffix(" environments"), as_words(y)) for x, y in ends.items()]
            cards.append(Card(style, arm.shown, decimal(end.mean), half, main, beside))
        return cards

    def sections(self) -> Iterator[Section | None]:
        """What a page says between the experiment and its settings."""
        yield self._curves()
        yield self._results()
        yield returns_against_theta(self.arms, self.said)
        yield baseline_matrices(self.arms, self.said)
        yield embeddings_section(self.runs)
        # A run with two arms has the colour of the first.
        colours = reversed([*zip(self.arms, self.styles, strict=True)])
        yield costs_section(self.runs, {arm.folder: style for arm, style in colours})

    def _curves(self) -> Section:
        """A chart for each split."""
        label, places = along(self.arms)
        arms = list(zip(self.arms, self.styles, places, strict=True))
        panels = [
            (
                PLACES[split].capitalize(),
                [Line(arm.shown, of, x, *mean_and_band(arm, split)) for arm, of, x in arms],
            )
            for split in self.splits
        ]
        words = f"Mean over seeds; the bands are {BAND} standard errors to each side."
        unit = label.removesuffix(" of each agent")
        return curves_section("Learning curves", words, panels, (label, self.said), unit)

    def _results(self) -> Section:
        """Tables of the ends and of the differences."""
        places = [PLACES[split] for split in self.splits]
        rows = [
            [arm.shown, f"{arm.updates[-1]:,}", f"{arm.experiment.seeds}", *map(as_words, ends)]
            for arm, ends in zip(self.arms, self.at_end, strict=True)
        ]
        columns = ["", self.unit, "seeds", *places]
        tables = [Table(f"{self.said.capitalize()} at the end", columns, rows, self.styles)]
        words = ["Means over seeds ± 95 % interval (Student’s)."]
        compared = [
            [name, when, *(f"{as_words(x)}{' *' if x.excludes_zero else ''}" for x in gains)]
            for name, when, gains in self.gains
        ]
        if compared:
            caption = "Differences, at the end and in the mean over the training"
            tables.append(Table(caption, ["", "", *places], compared))
            words.append(
                "A star marks differences whose interval excludes 0; seeds are paired where they "
                "have the same environments."
            )
        if self.diverged:
            words.append(
                "Diverged means that a reward, a loss, a parameter or a return was not a finite "
                "number in some seeds: there is no mean over the others."
            )
        if any(arm.experiment.seeds == 1 for arm in self.arms):
            words.append("A single seed has no interval: it says nothing about others.")
        return Section("results", "Results", words, tables=tables)

    def ends(self) -> pd.DataFrame:
        """The values at the end, as text."""
        labels = [arm.shown for arm in self.arms]
        return pd.DataFrame(self.at_end, index=labels, columns=self.splits).map(str)
