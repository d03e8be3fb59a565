"""Hoppers: Gymnasium's Hopper-v5 with legs of different thickness."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax

from fedrl.arguments import Check
from fedrl.families.control_family import Varied, interval
from fedrl.families.robots.robot_family import RobotFamily

if TYPE_CHECKING:
    import mujoco

CONTROL_COST = 1e-3
HEALTHY_REWARD = 1.0
LOWEST = 0.7
STEEPEST = 0.2
# Of every other number of the state.
LARGEST = 100.0
RESET_NOISE = 5e-3
POSSIBLE = (0.005, 0.2)
Radius = Annotated[tuple[float, float], Check(partial(interval, possible=POSSIBLE))]


@dataclass(frozen=True)
class Hoppers(RobotFamily):
    """A planar robot with one leg that is rewarded for hopping forward without falling.

    Reward: speed along x, 1 while it has not fallen, less 0.001 times the squared torques. The
    episode ends when the torso is below 0.7, leans by more than 0.2, or anything exceeds 100.
    Theta is the radius of the leg's capsule; 0.04 is Gymnasium's.
    """

    leg_radius: Radius = (0.03, 0.05)
    """Smallest and largest radius of the leg's capsule; uniform."""

    name: ClassVar[str] = "hoppers"
    asset: ClassVar[str] = "hopper.xml"
    observation_size: ClassVar[int] = 11
    actions: ClassVar[int] = 3
    frame_skip: ClassVar[int] = 4
    joints: ClassVar[int] = 6
    fastest_seen: ClassVar[float] = 10.0

    @property
    def varied(self) -> tuple[Varied, ...]:
        return (Varied("leg_radius", *self.leg_radius, "radius of the leg", POSSIBLE),)

    def edit(self, spec: "mujoco.MjSpec", theta: tuple[float, ...]) -> None:
        spec.geom("leg_geom").size[0] = theta[0]

    def reset_noise(self, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        noise = jax.random.uniform(key, (2, 6), minval=-RESET_NOISE, maxval=RESET_NOISE)
        return noise[0], noise[1]

    def outcome(self, x_speed: Any, qpos: Any, qvel: Any, action: Any, xp: Any) -> tuple[Any, Any]:
        small = (xp.abs(qpos[..., 2:]) < LARGEST).all(-1) & (xp.abs(qvel) < LARGEST).all(-1)
        upright = (qpos[..., 1] > LOWEST) & (xp.abs(qpos[..., 2]) < STEEPEST)
        healthy = small & upright
        reward = x_speed + HEALTHY_REWARD * healthy - CONTROL_COST * xp.sum(action**2, -1)
        return reward, ~healthy
