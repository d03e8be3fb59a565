"""The cases of `make bench`, and what `make bench-full` adds to them."""

from dataclasses import dataclass, replace

from benchmarks import tabular, work
from benchmarks.case import Aim, Case, Contestant
from benchmarks.training import AGENTS

MB, GB = 1 << 20, 1 << 30
ROBOT = "HalfCheetah-v5"
SB3, LOOP, STACKED = "Stable-Baselines3", "CleanRL-style loop", "stacked (bmm)"
# How often our agents are trained at once; peers that can do more at once get as many.
DQN_SEEDS, DDPG_SEEDS = 8, 2


@dataclass(frozen=True)
class Settings:
    """How long everything takes."""

    full: bool = False
    seconds: float = 3.0
    """That each contestant's clock runs."""
    repeats: int | None = None
    """Of every case; None: as many as it says."""


@dataclass(frozen=True)
class Row:
    """Hidden layers, batch and how often Stable-Baselines3 we aim for."""

    hidden: tuple[int, ...]
    batch: int
    aim: float | None = None
    full: bool = False
    """Only in the full benchmark."""

    @property
    def network(self) -> str:
        return "-".join(map(str, self.hidden))

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("--hidden", ",".join(map(str, self.hidden)), "--batch", str(self.batch))


DQN_ROWS = (Row((128,), 16, 120.0), Row((64, 64), 64, 28.0), Row((128, 128), 128, 8.0))
DDPG_ROWS = (
    Row((400, 300), 64, 2.5),
    Row((400, 300), 128, 2.5, full=True),
    Row((64, 64), 64, 10.0),
)


def cases(settings: Settings) -> list[Case]:
    """In the order in which they are run."""
    found = [tabular_case(cell, settings) for cell in tabular.CELLS]
    found += [dqn_case(row, settings) for row in DQN_ROWS if settings.full or not row.full]
    found += [ddpg_case(row, settings) for row in DDPG_ROWS if settings.full or not row.full]
    return [*found, flower_case(settings)]


def repeats(settings: Settings, usual: int) -> int:
    return settings.repeats or (usual + 2 if settings.full else usual)


def tabular_case(cell: str, settings: Settings) -> Case:
    seconds = ("--seconds", f"{settings.seconds / 4:g}")
    ours = ("-m", "benchmarks.tabular", "ours", cell, "--seeds", "1024", *seconds)
    numpy = ("-m", "benchmarks.tabular", "numpy", cell, "--seeds", "2", *seconds)
    return Case(
        name=f"tabular {cell}",
        section="tabular",
        title=cell,
        unit="seeds/s",
        contestants=(
            Contestant("ours", ours, expected=8),
            Contestant("NumPy loops", numpy, "peer", expected=5),
        ),
        work=work.of_cell(tabular.cell_of(cell)),
        aims=(Aim("ours", 500.0, "NumPy loops"),),
        bound=1 * GB,
        repeats=repeats(settings, 3),
    )


def ours(algorithm: str, row: Row, seeds: int, settings: Settings) -> Contestant:
    command = ("-m", "benchmarks.training", algorithm, *row.arguments, "--seeds", str(seeds))
    return Contestant(
        f"ours, {seeds} seed{'s' * (seeds > 1)}",
        (*command, "--seconds", f"{settings.seconds:g}"),
        agents=AGENTS * seeds,
        expected=settings.seconds + 10,
    )


def peer(name: str, algorithm: str, module: str, row: Row, settings: Settings) -> Contestant:
    """Of as many agents as ours have with one seed, in PyTorch."""
    command = ("-m", "benchmarks.peers", algorithm, module, *row.arguments)
    return Contestant(
        name,
        (*command, "--seconds", f"{settings.seconds:g}"),
        role="peer",
        python="torch",
        agents=AGENTS,
        expected=settings.seconds + (5 if algorithm == "dqn" else 12),
    )


def with_agents(one: Contestant, agents: int) -> Contestant:
    """The same with more agents."""
    command = (*one.command, "--agents", str(agents))
    return replace(one, name=f"{one.name}, {agents} agents", command=command, agents=agents)


def dqn_case(row: Row, settings: Settings) -> Case:
    """Single agents in JAX are not averaged, so they need not stop every 100 updates."""
    stacked = peer(STACKED, "dqn", "stacked", row, settings)
    pure = peer("PureJaxRL-style", "dqn", "purejax", row, settings)
    pure = replace(pure, python="ours", command=(*pure.command, "--E", "500"))
    rejax = peer("rejax", "dqn", "rejax", row, settings)
    rejax = replace(rejax, python="jax", command=(*rejax.command, "--E", "500"))
    many = AGENTS * DQN_SEEDS
    contestants = [
        ours("dqn", row, 1, settings),
        ours("dqn", row, DQN_SEEDS, settings),
        peer(SB3, "dqn", "sb3", row, settings),
        peer(LOOP, "dqn", "loop", row, settings),
        stacked,
        with_agents(stacked, many),
        pure,
        with_agents(pure, many),
        rejax,
    ]
    if settings.full:
        threads = (*stacked.command, "--processes", "1", "--threads", "2")
        contestants.append(replace(stacked, name=f"{STACKED}, 1 process", command=threads))
        contestants.append(with_agents(rejax, many))
    best = f"ours, {DQN_SEEDS} seeds"
    aims = (Aim(best, row.aim or 1.0, SB3), Aim("ours, 1 seed", 1.0), Aim(best, 1.0))
    return Case(
        name=f"dqn {row.network} {row.batch}",
        section="dqn",
        title=f"4-{row.network}-2, batch {row.batch}",
        unit="updates/s",
        contestants=tuple(contestants),
        work=work.of_dqn(row.hidden, row.batch),
        aims=aims,
        bound=1 * GB,
        repeats=repeats(settings, 2),
    )


def ddpg_case(row: Row, settings: Settings) -> Case:
    stacked = peer(STACKED, "ddpg", "stacked", row, settings)
    bare = peer("updates of the loop alone", "ddpg", "bare", row, settings)
    products = ("-m", "benchmarks.products", *row.arguments, "--seeds", str(DDPG_SEEDS))
    contestants = [
        ours("ddpg", row, 1, settings),
        ours("ddpg", row, DDPG_SEEDS, settings),
        peer(SB3, "ddpg", "sb3", row, settings),
        peer(LOOP, "ddpg", "loop", row, settings),
        stacked,
        Contestant(
            "matrix products alone",
            (*products, "--seconds", f"{settings.seconds / 2:g}"),
            role="bound",
            agents=AGENTS * DDPG_SEEDS,
        ),
    ]
    if settings.full:
        contestants.append(with_agents(stacked, AGENTS * DDPG_SEEDS))
        command = (*bare.command, "--agents", "2")
        contestants.append(replace(bare, role="part", command=command, agents=2))
    best = f"ours, {DDPG_SEEDS} seeds"
    aims = (Aim(best, row.aim or 1.0, SB3), Aim("ours, 1 seed", 1.0), Aim(best, 1.0))
    first, second = row.hidden
    return Case(
        name=f"ddpg {row.network} {row.batch}",
        section="ddpg",
        title=f"{row.network}, batch {row.batch}",
        unit="updates/s",
        contestants=tuple(contestants),
        work=work.of_ddpg(ROBOT, (first, second), row.batch),
        aims=aims,
        bound=2 * GB,
        repeats=repeats(settings, 2),
    )


def flower_case(settings: Settings) -> Case:
    command = ("-m", "benchmarks.flower", "--agents", "2")
    contestants = [Contestant("a round", command, agents=2, expected=60)]
    if settings.full:
        cold = (*command, "--cold")
        contestants.append(Contestant("a round, cold agents", cold, agents=2, expected=90))
    return Case(
        name="flower",
        section="flower",
        title="a round of 2 agents, E = 10,000",
        unit="s",
        contestants=tuple(contestants),
        bound=4 * GB,
        repeats=repeats(settings, 1),
        higher=False,
    )
