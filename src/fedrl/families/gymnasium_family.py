"""Any Gymnasium environment as a family: theta is what it is made with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Annotated, Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from fedrl.arguments import Check, of_kind, settle, whole
from fedrl.errors import FedrlError
from fedrl.families import gymnasium_making as making
from fedrl.families.control_family import (
    MOST_STEPS,
    Renewed,
    Shape,
    ShapedFamily,
    State,
    Stepped,
    Varied,
    interval,
)
from fedrl.families.gymnasium_host import HALF, HEAD, SEED, ask, hall
from fedrl.files import Array

ANYTHING = (-1e30, 1e30)


class Uniform(NamedTuple):
    """Where a keyword of an environment is drawn from."""

    low: float
    high: float


def _ranges(name: str, value: Any) -> tuple[tuple[str, float, float], ...]:
    if not isinstance(value, (tuple, list)) or not all(
        isinstance(one, (tuple, list)) and len(one) == 3 for one in value
    ):
        raise FedrlError(f"{name} must be a list of (keyword, low, high), got {value!r}")
    if not value:
        raise FedrlError(
            f"{name} is empty, so all environments would be the same: name at least one "
            'keyword of the environment and its range, as in vary={"gravity": (-11.9, -4)}'
        )
    for keyword, *_ in value:
        of_kind(name, keyword, str)
    return tuple((keyword, *_range(keyword, ends)) for keyword, *ends in value)


def _range(keyword: str, ends: Any) -> tuple[float, float]:
    return interval(f"family.vary, range of {keyword}", ends, ANYTHING)


@dataclass(frozen=True)
class GymnasiumFamily(ShapedFamily):
    """Environments that Gymnasium makes, which differ in keywords; stepped on the host."""

    environment: str = "CartPole-v1"
    """Id of a registered environment, or `module:function` that makes one from keywords."""
    vary: Annotated[tuple[tuple[str, float, float], ...], Check(_ranges)] = ()
    """(keyword, low, high) of what differs: theta, in this order; uniform."""
    time_limit: Annotated[int, Check(partial(whole, smallest=0, largest=MOST_STEPS))] = 0
    """Steps after which an episode is cut off; 0: as the environment says."""

    name: ClassVar[str] = "gymnasium"
    keeps_environments: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.time_limit == 0:
            _, limit = self._look()
            if limit is None:
                raise FedrlError(
                    f"{self.environment} does not say when an episode is too long: give a "
                    "time_limit, in a file as time_limit = 500 below [family]"
                )
            settle(self, time_limit=whole("family.time_limit", limit, largest=MOST_STEPS))

    @cached_property
    def shape(self) -> Shape:
        return self._look()[0]

    def _look(self, theta: Sequence[float] | None = None) -> tuple[Shape, int | None]:
        """What an environment looks like, unless said the first one, and its time limit."""
        theta = [low for _, low, _ in self.vary] if theta is None else theta
        return making.shape_of(self.environment, *self.keywords(theta).items())

    def take_shape(self, shape: Shape) -> None:
        """Look like this; no environment is made to find out."""
        self.__dict__["shape"] = shape

    def keywords(self, theta: Any) -> dict[str, float]:
        """What an environment is made with."""
        return {name: float(x) for (name, _, _), x in zip(self.vary, theta, strict=True)}

    def words(self, theta: Any) -> str:
        """An environment, for people."""
        return f"{self.environment} with {self.keywords(theta)}"

    @property
    def varied(self) -> tuple[Varied, ...]:
        return tuple(
            Varied(name, low, high, "keyword of the environment", ANYTHING)
            for name, low, high in self.vary
        )

    def check(self) -> None:
        """Try the environments at the ends of the ranges; say what would go wrong in a training."""
        ends = ([low for _, low, _ in self.vary], [high for _, _, high in self.vary])
        envs = [making.make(self.environment, self.keywords(theta)) for theta in ends]
        try:
            first, last = (self._look(theta)[0] for theta in ends)
            if first.words != last.words:
                raise FedrlError(
                    f"{self.environment} looks different at the ends of its range ({first.words}; "
                    f"{last.words}): agents that share a policy must have the same observations "
                    "and actions"
                )
            for env, theta in zip(envs, ends, strict=True):
                making.try_out(env, self.words(theta))
            if envs[0].unwrapped is envs[1].unwrapped:
                raise FedrlError(
                    f"{self.environment} gives the same environment twice: it must make a new one "
                    "each time"
                )
        finally:
            for env in envs:
                env.close()

    def raise_trouble(self) -> None:
        place = hall(self)
        trouble, place.trouble = place.trouble, None
        if trouble is not None:
            raise trouble

    def warning(self) -> str | None:
        place = hall(self)
        words, place.warning = place.warning, None
        return words

    def rejoin(self, state: State, constants: jax.Array, reset: State) -> tuple[State, jax.Array]:
        told = ask(self, "rejoin", 1 + state.size, constants, state, reset)
        return told[1:], told[0] > 0

    def constants(self, theta: jax.Array) -> jax.Array:
        return theta

    def reset(self, key: jax.Array) -> State:
        """Only the seed of an episode: its first observation is known once it has begun."""
        bits = jax.random.bits(key, (), jnp.uint32) >> 2
        seed = jnp.stack([bits // HALF, bits % HALF]).astype(jnp.float32)
        return jnp.zeros(HEAD + self.observation_size).at[SEED].set(seed)

    def begin(self, state: State, constants: jax.Array) -> State:
        return ask(self, "begin", state.size, constants, state)

    def step(self, state: State, action: jax.Array, constants: jax.Array) -> Stepped:
        after, reward, terminated, cut, _ = self.step_and_renew(state, action, constants)
        return after, reward, terminated | cut

    def step_and_renew(
        self, state: State, action: jax.Array, constants: jax.Array, reset: State | None = None
    ) -> Renewed:
        """A step; without the next episode's beginning, an end is final."""
        seed = () if reset is None else (reset[SEED],)
        told = ask(self, "step", 3 + 2 * state.size, constants, action, state, *seed)
        after, renewed = told[3:].reshape(2, -1)
        return after, told[0], told[1] > 0, told[2] > 0, renewed

    def observe(self, state: State) -> jax.Array:
        return jnp.asarray(state[HEAD:])

    def draw(self, state: Array, theta: Array) -> Array:
        raise FedrlError(
            "a Gymnasium environment cannot be drawn from its observation: `fedrl show` makes one "
            'with render_mode="rgb_array" and uses its own rendering'
        )

    def rendered(self, theta: Sequence[float]) -> Any:
        """The environment of a theta, with pictures."""
        return making.make_rendered(self.environment, self.keywords(self.check_theta(theta)))


def gymnasium(
    environment: str, *, vary: Mapping[str, tuple[float, float]], time_limit: int | None = None
) -> GymnasiumFamily:
    """A family of Gymnasium environments, which differ in what they are made with.

    Args:
        environment: id of a registered environment, or `module:function` that makes one.
        vary: ranges of its keywords, from which environments are drawn uniformly.
        time_limit: steps after which an episode is cut off, unless the environment says.

    >>> family = gymnasium("MountainCarContinuous-v0", vary={"goal_velocity": Uniform(0, 0.02)})
    >>> family.observation_size, family.continuous, family.time_limit
    (2, True, 999)

    """
    if not isinstance(vary, Mapping):
        raise FedrlError(f'vary must be ranges by keyword, as {{"gravity": (-11.9, -4)}}: {vary!r}')
    ranges = tuple((name, *_range(name, ends)) for name, ends in vary.items())
    return GymnasiumFamily(environment=environment, vary=ranges, time_limit=time_limit or 0)
