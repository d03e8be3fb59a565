"""WindyCliffs: a cliff walk in wind from the north, whose strength differs."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from fedrl.arguments import BelowOne, Check, Whole, number, whole
from fedrl.errors import FedrlError
from fedrl.tabular.families.pictures import draw_grid
from fedrl.tabular.families.tabular_family import Booleans, Floats, TabularFamily

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# (dx, dy) of the actions; y = 0 is the bottom row.
UP, DOWN, LEFT, RIGHT = (0, 1), (0, -1), (-1, 0), (1, 0)
MOVES = (UP, DOWN, LEFT, RIGHT)


def _wind(name: str, value: object) -> float:
    return number(name, value, "in [0, 3], since theta / 3 is a probability", lambda x: 0 <= x <= 3)


Wind = Annotated[float, Check(_wind)]


@dataclass(frozen=True)
class WindyCliffs(TabularFamily):
    """A grid with a cliff along the bottom row, between the start (0, 0) and the goal.

    State number = y * width + x. Every action but `down` is blown down with probability theta / 3.
    The reward depends on the state one is in; cliff and goal lead back to the start, and the task
    goes on.
    """

    width: Annotated[int, Check(partial(whole, smallest=2))] = 4
    """Cells in a row."""
    height: Whole = 4
    """Rows."""
    gamma: BelowOne = 0.95
    """Discount factor."""
    weakest: Wind = 0.0
    """Smallest wind theta."""
    strongest: Wind = 1.0
    """Largest wind theta; in between it is uniform."""
    centre_wind: Wind = 0.5
    """Wind of P_0, the environment that noisy copies are made of."""

    name: ClassVar[str] = "windy-cliffs"
    actions: ClassVar[int] = len(MOVES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weakest > self.strongest:
            raise FedrlError(
                f"weakest must be at most strongest, got {self.weakest} and {self.strongest}"
            )

    @property
    def states(self) -> int:
        return self.width * self.height

    @property
    def goal(self) -> int:
        """State number of the goal, the bottom-right corner."""
        return self.width - 1

    @property
    def cliff(self) -> range:
        """State numbers of the cliff."""
        return range(1, self.width - 1)

    def d0(self) -> Floats:
        start = np.zeros(self.states)
        start[0] = 1.0
        return start

    def rewards(self, key: jax.Array) -> jax.Array:
        """The same for every key: nothing about them is random."""
        by_state = np.full(self.states, -1.0)
        by_state[list(self.cliff)] = -100.0
        by_state[self.goal] = 100.0
        return jnp.broadcast_to(jnp.asarray(by_state)[:, None], (self.states, self.actions))

    def sample(self, key: jax.Array, n: int) -> jax.Array:
        """n winds theta, (n,)."""
        return jax.random.uniform(
            key, (n,), dtype=jnp.float64, minval=self.weakest, maxval=self.strongest
        )

    def transitions(self, theta: float) -> Floats:
        """P (S, A, S) at wind theta."""
        P: Floats = self._transitions(np.float64(_wind("theta", theta)))
        return P

    def environments(self, key: jax.Array, n: int) -> jax.Array:
        P: jax.Array = jax.vmap(self._transitions)(self.sample(key, n))
        return P

    def centre_and_noise(self, key: jax.Array, n: int) -> tuple[jax.Array, jax.Array]:
        return jnp.asarray(self.transitions(self.centre_wind)), self.environments(key, n)

    def support(self) -> Booleans:
        meant, down = self._deterministic()
        return np.asarray(meant + down > 0)

    def _transitions(self, theta: Any) -> Any:
        meant, down = self._deterministic()
        return (1.0 - theta / 3.0) * meant + theta / 3.0 * down

    def _deterministic(self) -> tuple[Floats, Floats]:
        """Where each action leads in no wind and in nothing but wind, (S, A, S) and (S, 1, S)."""
        meant = np.zeros((self.states, self.actions, self.states))
        for s in range(self.states):
            y, x = divmod(s, self.width)
            for a, (dx, dy) in enumerate(MOVES):
                to_x = min(max(x + dx, 0), self.width - 1)
                to_y = min(max(y + dy, 0), self.height - 1)
                back_to_start = s == self.goal or s in self.cliff
                meant[s, a, 0 if back_to_start else to_y * self.width + to_x] = 1.0
        return meant, meant[:, [MOVES.index(DOWN)]]

    def draw(self, policy: Floats | None = None, *, ax: "Axes | None" = None) -> "Axes":
        """The grid; an arrow's length is the probability of an action."""
        return draw_grid(self, MOVES, policy, ax)
