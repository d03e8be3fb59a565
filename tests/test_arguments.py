"""Settings that are checked by the types of their fields."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import pytest

from fedrl import FedrlError
from fedrl.arguments import Check, Count, Probability, StepSize, check_fields


def upper(name: str, value: Any) -> str:
    if value == "refused":
        raise FedrlError(f"{name} is refused")
    return value.upper()


@dataclass(frozen=True)
class Inner:
    on: bool = True


@dataclass(frozen=True)
class Settings:
    count: Count = 3
    share: Probability = 0.5
    lr: StepSize | None = None
    kind: Literal["one", "two"] = "one"
    flag: bool = False
    text: str = "text"
    inner: Inner = field(default_factory=Inner)
    own: Annotated[str, "of others", Check(upper)] = "own"
    anything: Any = None

    def __post_init__(self) -> None:
        check_fields(self, "settings")


@dataclass(frozen=True)
class Further(Settings):
    count: int = 4
    """As in the base class."""


def test_what_is_kept_is_plain():
    made = Further(count=np.int64(7), share=np.float32(0.5), lr=np.array(1), flag=np.bool_(True))
    assert made == Further(7, 0.5, 1.0, flag=True, own="OWN")
    assert [type(x) for x in (made.count, made.share, made.lr, made.flag)] == [
        int,
        float,
        float,
        bool,
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"count": 0}, "settings.count must be an integer of at least 1 and at most 2147483647"),
        ({"share": 1.5}, r"settings.share must be a probability in \[0, 1\], got 1.5"),
        ({"lr": 0}, "settings.lr must be a number from 1e-30 to 1e30, got 0"),
        ({"kind": "three"}, "unknown settings.kind 'three': choose from 'one', 'two'"),
        ({"flag": 1}, "settings.flag must be true or false, got 1"),
        ({"text": 1}, "settings.text must be str, got 1"),
        ({"inner": True}, "settings.inner must be Inner, got True"),
        ({"own": "refused"}, "settings.own is refused"),
    ],
)
@pytest.mark.parametrize("kind", [Settings, Further])
def test_a_value_that_its_type_does_not_allow_is_refused(kind, changes, message):
    with pytest.raises(FedrlError, match=message):
        kind(**changes)
