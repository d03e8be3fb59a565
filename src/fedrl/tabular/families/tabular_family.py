"""What all families of tabular environments have in common."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from fedrl.arguments import check_fields, number, whole
from fedrl.keys import Purpose, replicate_keys

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

# Seeds drawn at a time; always as many, so that a seed is the same whoever else is drawn.
BATCH = 64


@dataclass(frozen=True)
class Task:
    """Federated problems drawn from a family, one per seed, as `fedrl.tabular.run` takes them."""

    P: Floats
    """Transition probabilities of the agents' environments, (seeds, n, S, A, S)."""
    R: Floats
    """Rewards, (seeds, S, A)."""
    gamma: float
    """Discount factor."""
    d0: Floats
    """Initial state distribution, (S,)."""
    centre: Floats | None
    """With `kappa`: the environment the others are noisy copies of, (seeds, 1, S, A, S)."""
    held_out: Floats | None
    """Newly generated environments to evaluate in, (seeds, M, S, A, S)."""


class Draw(NamedTuple):
    """One seed's environments; arrays of a Task without the seeds axis."""

    P: jax.Array
    R: jax.Array
    centre: jax.Array | None
    held_out: jax.Array | None


class Drawing(NamedTuple):
    """Which environments are to be drawn; see `TabularFamily.task`."""

    agents: int
    kappa: float | None
    seeds: int
    first_seed: int
    seed: int


class TabularFamily(ABC):
    """Environments as transition matrices. Subclasses are frozen dataclasses of settings."""

    name: ClassVar[str]
    gamma: float
    agents: int = 5

    def __post_init__(self) -> None:
        check_fields(self, "")

    @property
    @abstractmethod
    def states(self) -> int: ...

    @property
    @abstractmethod
    def actions(self) -> int: ...

    @abstractmethod
    def d0(self) -> Floats:
        """Initial state distribution, (S,)."""

    @abstractmethod
    def rewards(self, key: jax.Array) -> jax.Array:
        """R (S, A), the same in all environments of a seed."""

    @abstractmethod
    def environments(self, key: jax.Array, n: int) -> jax.Array:
        """n independent environments, (n, S, A, S)."""

    @abstractmethod
    def centre_and_noise(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        """P_0 (S, A, S) and n directions P_k (n, S, A, S) in which it can be disturbed."""

    def support(self) -> Booleans:
        """Which transitions are possible in any environment, P_0 and its noise included, (S, A, S).

        Whoever overrides `environments` overrides it too: what is not in it is not looked at.
        """
        return np.ones((self.states, self.actions, self.states), np.bool_)

    @abstractmethod
    def draw(self, policy: Floats | None = None, *, ax: "Axes | None" = None) -> "Axes":
        """A picture of an environment, with arrows for a policy (S, A)."""

    @partial(jax.jit, static_argnums=(0, 3, 5))
    def draws(
        self,
        seed: int | jax.Array,
        replicates: jax.Array,
        agents: int,
        kappa: float | None,
        held_out: int,
    ) -> Draw:
        """The environments of each replicate, as one compiled program.

        Equal to the last bit only between calls for the same number of replicates: how a sum is
        vectorised depends on its shape.
        """

        def one(key: jax.Array) -> Draw:
            training, rewards, new = jax.random.split(key, 3)
            if kappa is None:
                P, centre = self.environments(training, agents), None
            else:
                centre, noise = self.centre_and_noise(training, agents - 1)
                centre = centre[None]
                P = jnp.concatenate([centre, kappa * noise + (1.0 - kappa) * centre])
            others = self.environments(new, held_out) if held_out else None
            return Draw(P, self.rewards(rewards), centre, others)

        return jax.vmap(one)(replicate_keys(seed, replicates, Purpose.ENVIRONMENTS))

    def checked_drawing(
        self, agents: int | None, kappa: float | None, seeds: int, first_seed: int, seed: int
    ) -> "Drawing":
        """What to draw, as for `task`; refused if it makes no sense."""
        if kappa is not None:
            kappa = number("kappa", kappa, "a number in [0, 1] or None", lambda x: 0 <= x <= 1)
        return Drawing(
            whole("agents", self.agents if agents is None else agents),
            kappa,
            whole("seeds", seeds),
            whole("first_seed", first_seed, smallest=0),
            whole("seed", seed, smallest=0, largest=2**32 - 1),
        )

    def task(
        self,
        *,
        agents: int | None = None,
        seeds: int = 1,
        seed: int = 0,
        kappa: float | None = None,
        held_out: int = 0,
        first_seed: int = 0,
    ) -> Task:
        """Draw federated problems, one per seed.

        Args:
            agents: environments in a problem; 5, or as many as a fixed example has.
            seeds: problems; number i depends on `seed` and `first_seed` + i alone.
            seed: root of all random numbers.
            kappa: heterogeneity in [0, 1]: the first environment is P_0, the others are
                kappa P_k + (1 - kappa) P_0; None: independent environments.
            held_out: number of newly generated environments beside the agents' own.
            first_seed: where to start counting.

        """
        drawing = self.checked_drawing(agents, kappa, seeds, first_seed, seed)
        agents, kappa, seeds, first_seed, seed = drawing
        held_out = whole("held_out", held_out, smallest=0)
        with jax.enable_x64(True):
            starts = range(first_seed, first_seed + seeds, BATCH)
            numbers = [jnp.arange(start, start + BATCH, dtype=jnp.uint32) for start in starts]
            batches = [self.draws(seed, batch, agents, kappa, held_out) for batch in numbers]
            drawn = jax.tree.map(lambda *parts: np.concatenate(parts)[:seeds], *batches)
        return Task(drawn.P, drawn.R, self.gamma, self.d0(), drawn.centre, drawn.held_out)


class GraphFamily(TabularFamily):
    """A family whose states lie nowhere in particular: drawn as a graph of its transitions."""

    def draw(
        self,
        policy: Floats | None = None,
        *,
        P: Floats | None = None,
        ax: "Axes | None" = None,
    ) -> "Axes":
        """States on a circle; an arrow's width is the probability of going that way.

        Of the environment `P` (S, A, S), or of the first one drawn from seed 0.
        """
        from fedrl.tabular.families.pictures import draw_graph

        return draw_graph(self.task().P[0, 0] if P is None else P, policy, ax)
