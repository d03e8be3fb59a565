"""Whether arrays that came over the network are what was agreed on."""

from collections.abc import Mapping
from math import isfinite, sqrt

import numpy as np

from fedrl.files import Arrays
from fedrl.network.messages import CORRECTION, METRICS, Answer, Instruction

# Characters of a foreign text that are kept.
LONGEST = 500
# Names that are listed.
LISTED = 5


def shown(text: str) -> str:
    """A text from elsewhere as one short line without control characters.

    It goes to logs, status files and terminals, which an escape sequence could rewrite.
    """
    # What is cut off first is never gone through.
    line = " ".join(text[: 4 * LONGEST].split())
    printable = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in line)
    return printable if len(printable) <= LONGEST else printable[: LONGEST - 3] + "..."


def why_not(model: Arrays, shapes: Arrays) -> str | None:
    """What is wrong with a model that should look like `shapes`, or None."""
    if set(model) != set(shapes):
        missing, unknown = sorted(set(shapes) - set(model)), sorted(set(model) - set(shapes))
        names = [shown(name) for name in unknown[:LISTED]]
        return (
            f"it has other leaves than agreed (missing {missing[:LISTED]}, unknown {names}"
            f"{', ...' if len(unknown) > LISTED else ''})"
        )
    for name, agreed in shapes.items():
        leaf = model[name]
        if leaf.shape != agreed.shape:
            return f"{name} has shape {leaf.shape}, agreed was {agreed.shape}"
        if leaf.dtype != agreed.dtype:
            return f"{name} is {leaf.dtype}, agreed was {agreed.dtype}"
        if not np.isfinite(leaf).all():
            return f"{name} has values that are not finite"
    return None


def why_not_answer(
    answer: Answer,
    asked: Instruction,
    shapes: Arrays,
    before: Arrays,
    furthest: float,
    furthest_added: float,
) -> str | None:
    """What is wrong with the answer to an instruction, or None.

    Its model must look like `shapes` and be at most `furthest` from the one `before`, and what a
    correction adds at most `furthest_added` long.
    """
    if answer.round != asked.round:
        return f"it is about round {answer.round}, asked was {asked.round}"
    for name in answer.metrics:
        if name not in METRICS:
            return f"it has a metric that nobody asked for ({shown(name)!r})"
    if wrong := not_finite(answer.metrics):
        return wrong
    if not asked.E:
        return "it has parameters that nobody asked for" if answer.shared else None
    wrong = why_not(answer.shared, shapes)
    if wrong is not None:
        return wrong
    added = {name: leaf for name, leaf in answer.shared.items() if name.startswith(CORRECTION)}
    model = {name: leaf for name, leaf in answer.shared.items() if name not in added}
    length = distance(model, before)
    if not length <= furthest:
        return f"it is {length:.3g} away from the model that was sent, allowed is {furthest:g}"
    length = distance(added, {name: np.zeros_like(leaf) for name, leaf in added.items()})
    if not length <= furthest_added:
        return f"what its correction adds is {length:.3g} long, allowed is {furthest_added:g}"
    return None


def not_finite(metrics: Mapping[str, float]) -> str | None:
    """Which number is not finite, or None."""
    for name, value in metrics.items():
        if not isinstance(value, (int, float)) or not isfinite(value):
            return f"its {name} is {shown(repr(value))}"
    return None


def distance(one: Arrays, other: Arrays) -> float:
    """Euclidean, over all leaves."""
    with np.errstate(over="ignore"):
        squares = (
            np.sum((one[n].astype(np.float64) - other[n].astype(np.float64)) ** 2) for n in one
        )
        return sqrt(float(sum(squares)))
