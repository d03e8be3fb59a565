"""What is measured side by side, as plain data."""

from dataclasses import dataclass
from typing import Any, Literal

Python = Literal["ours", "torch", "jax"]
"""Which interpreter: ours, the one with PyTorch, or the one with rejax."""

Role = Literal["ours", "peer", "part", "bound"]
"""`part` does less than the others and is shown only; `bound` is what the machine would allow."""


@dataclass(frozen=True)
class Contestant:
    """One program; it prints a JSON line with its `value`."""

    name: str
    command: tuple[str, ...]
    """Arguments of Python."""
    role: Role = "ours"
    python: Python = "ours"
    agents: int = 1
    """How many learn at once; ours is compared with peers of at most as many."""
    expected: float = 10.0
    """Seconds of a run, for the estimate before anything is known."""


@dataclass(frozen=True)
class Aim:
    """A contestant of ours is to be so many times a peer; the fastest one if it has no name."""

    ours: str
    times: float
    over: str = ""


@dataclass(frozen=True)
class Work:
    """What a unit cannot do without."""

    operations: float
    """Additions and multiplications."""
    dtype: Literal["float32", "float64"] = "float32"
    moved: float = 0.0
    """Bytes read and written."""
    kept: float = 0.0
    """Bytes that a core goes over again and again, which say in which memory they live."""


@dataclass(frozen=True)
class Case:
    """Contestants that do the same work."""

    name: str
    section: str
    title: str
    unit: str
    contestants: tuple[Contestant, ...]
    bound: int
    """Bytes that a contestant of ours may have resident at most."""
    repeats: int = 3
    work: Work | None = None
    aims: tuple[Aim, ...] = ()
    higher: bool = True
    """Whether more is better."""


def from_json(saved: dict[str, Any]) -> Case:
    """The case that `dataclasses.asdict` made this of."""
    work = saved["work"]
    contestants = (
        Contestant(**{**one, "command": tuple(one["command"])}) for one in saved["contestants"]
    )
    return Case(
        **{
            **saved,
            "contestants": tuple(contestants),
            "work": work and Work(**work),
            "aims": tuple(Aim(**aim) for aim in saved["aims"]),
        }
    )
