"""HalfCheetahs: Gymnasium's HalfCheetah-v5 with thighs of different lengths."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import jax

from fedrl.arguments import Check
from fedrl.families.control_family import Varied, interval
from fedrl.families.robots.robot_family import RobotFamily

if TYPE_CHECKING:
    import mujoco

CONTROL_COST = 0.1
RESET_NOISE = 0.1
# The longest that does not reach the torso's other end.
POSSIBLE = (0.01, 0.5)
Length = Annotated[tuple[float, float], Check(partial(interval, possible=POSSIBLE))]


@dataclass(frozen=True)
class HalfCheetahs(RobotFamily):
    """A planar robot with two legs that is rewarded for its speed; it cannot end an episode.

    Reward: speed along x less 0.1 times the squared torques. Theta: half-lengths of the back and
    the front thigh's capsules (0.145 and 0.133 are Gymnasium's), or with `thighs = "together"` one
    number from 0 (both shortest) to 1 (both longest). The total mass is always 14, as the model
    says.
    """

    thighs: Literal["independent", "together"] = "independent"
    """Whether each thigh has a length of its own, or one theta drives both."""
    back_thigh: Length = (0.1005, 0.1855)
    """Smallest and largest half-length of the back thigh's capsule; uniform."""
    front_thigh: Length = (0.1005, 0.1655)
    """Smallest and largest half-length of the front thigh's capsule; uniform."""

    name: ClassVar[str] = "halfcheetahs"
    asset: ClassVar[str] = "half_cheetah.xml"
    observation_size: ClassVar[int] = 17
    actions: ClassVar[int] = 6
    frame_skip: ClassVar[int] = 5
    joints: ClassVar[int] = 9

    @property
    def varied(self) -> tuple[Varied, ...]:
        if self.thighs == "together":
            what = "0: both thighs shortest, 1: both longest"
            return (Varied("thighs", 0.0, 1.0, what, (0.0, 1.0)),)
        return (
            Varied("back_thigh", *self.back_thigh, "half-length of the back thigh", POSSIBLE),
            Varied("front_thigh", *self.front_thigh, "half-length of the front thigh", POSSIBLE),
        )

    def edit(self, spec: "mujoco.MjSpec", theta: tuple[float, ...]) -> None:
        if self.thighs == "together":
            ranges = (self.back_thigh, self.front_thigh)
            theta = tuple(low + theta[0] * (high - low) for low, high in ranges)
        for name, length in zip(("bthigh", "fthigh"), theta, strict=True):
            spec.geom(name).size[1] = length

    def reset_noise(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        position, velocity = jax.random.split(key)
        return (
            jax.random.uniform(position, (9,), minval=-RESET_NOISE, maxval=RESET_NOISE),
            RESET_NOISE * jax.random.normal(velocity, (9,)),
        )

    def outcome(self, x_speed: Any, qpos: Any, qvel: Any, action: Any, xp: Any) -> tuple[Any, Any]:
        reward = x_speed - CONTROL_COST * xp.sum(action**2, -1)
        return reward, xp.zeros(reward.shape, bool)
