"""The commands about federations over a network."""

import sys
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from fedrl.counting import count, round_name
from fedrl.errors import FedrlError
from fedrl.network.deployment import Deployment

if TYPE_CHECKING:
    from fedrl.network.deployment import Folder

Where = Annotated[Path, tyro.conf.Positional]
_say = partial(print, flush=True)


@dataclass(frozen=True)
class OfFederation:
    """What the commands about a federation that exists have in common."""

    folder: Where
    """Folder of a federation."""

    def opened(self) -> "Folder":
        with_flower()
        from fedrl.network.deployment import Folder

        folder = Folder(self.folder)
        folder.deployment()  # an error if it is not one
        return folder


@dataclass(frozen=True)
class Init:
    """Make the folder of a federation: keys, certificates, settings, who runs what."""

    folder: Where
    """A new folder."""
    experiment: str = "cartpoles-dqnavg"
    """What to train: a preset, or a TOML file (`fedrl run PRESET ... --dry-run` prints one)."""
    agents: int | None = None
    """Number of agents; as the experiment says unless given."""
    allow_code: bool = False
    """Import Python code that the file names as module:Class: of files you trust only."""
    deployment: Annotated[Deployment, tyro.conf.arg(name="")] = field(default_factory=Deployment)
    """How the federation is run."""

    def run(self) -> int:
        with_flower()
        from fedrl.network.init import experiment_named, for_network, init

        named = experiment_named(self.experiment, allow_code=self.allow_code)
        experiment = for_network(named, self.agents)
        folder = init(self.folder, experiment, self.deployment)
        agents = count(experiment.agents, "agents")
        print(f"{experiment.name}: {agents}; read {folder.path}/inventory.md")
        print(f"all on this machine: fedrl federation up {folder.path}")
        return 0


@dataclass(frozen=True)
class Up(OfFederation):
    """Run the server and all agents on this machine, to try a federation out."""

    detach: bool = False
    """Start everything and return; `fedrl federation status` tells how it goes."""
    track: tuple[str, ...] = ()
    """Show the training there, too: tensorboard, wandb, mlflow (extras of those names)."""

    def run(self) -> int:
        folder = self.opened()
        from fedrl.network.local_cluster import down, up
        from fedrl.network.processes import until_told

        with until_told():
            up(folder, self.track)
            if self.detach:
                print(f"started; fedrl federation status {self.folder}")
                return 0
            try:
                return _follow(folder)
            finally:
                down(folder)


@dataclass(frozen=True)
class Status(OfFederation):
    """How far a training is, who is there, what was last measured."""

    folder: Where
    """Folder of a federation, on the server's machine."""
    json: bool = False
    """Everything that is known, as JSON."""

    def run(self) -> int:
        import json

        folder = self.opened()
        from fedrl.network.local_cluster import status

        told = status(folder)
        print(json.dumps(told, indent=2) if self.json else in_words(told))
        return 0


@dataclass(frozen=True)
class Down(OfFederation):
    """Stop what `fedrl federation up` has started; nothing is lost."""

    def run(self) -> int:
        folder = self.opened()
        from fedrl.network.local_cluster import down

        stopped = down(folder)
        print(f"stopped {', '.join(stopped)}" if stopped else "nothing was running")
        return 0


@dataclass(frozen=True)
class Federation:
    """Federations over a network: init, up, status, down."""

    command: Annotated[Init | Up | Status | Down, tyro.conf.arg(name="")]

    def run(self) -> int:
        return self.command.run()


@dataclass(frozen=True)
class Server(OfFederation):
    """Run the server of a federation until its training is finished; goes on where it was."""

    folder: Where
    """Folder of a federation with its part `server`."""
    track: tuple[str, ...] = ()
    """Show the training there, too: tensorboard, wandb, mlflow (extras of those names)."""

    def run(self) -> int:
        folder = self.opened()
        from fedrl.network.serve import serve

        last = ""

        def tell(status: dict[str, Any]) -> None:
            nonlocal last
            line = headline(status)
            if line != last:
                _say(line)
                last = line

        return _ended(serve(folder, tell, self.track))


@dataclass(frozen=True)
class Agent:
    """Run one agent of a federation, until stopped."""

    folder: Where
    """Folder of a federation with its part `agents/ID`."""
    id: int
    """Number of the agent."""
    cold: bool = False
    """Keep no model and no compiled program in memory between rounds: slower, but smaller."""

    def run(self) -> int:
        with_flower()
        from fedrl.network.agent_process import attend
        from fedrl.network.deployment import Folder

        try:
            attend(Folder(self.folder), self.id, _say, warm=not self.cold)
        except KeyboardInterrupt:
            _say(f"agent {self.id} has stopped; its state is kept")
        return 0


def with_flower() -> None:
    """Say what to install where Flower is missing; before anything that imports its packages."""
    from importlib.util import find_spec

    if find_spec("flwr") is None:
        raise FedrlError("a federation over a network needs Flower: pip install 'fedrl[flower]'")


def _follow(folder: "Folder") -> int:
    """Show how a training goes that other processes carry out."""
    import time

    from fedrl.network.local_cluster import last_words, status
    from fedrl.progress import RunProgress, new_console

    print(f"logs: {folder.server}, {folder.path / 'agents'}; Ctrl-C stops everything")
    with RunProgress(folder.path.name, new_console()) as progress:
        done: int | None = None
        gone: dict[str, str] = {}
        while True:
            told = status(folder)
            for name in told["ended"].keys() - gone.keys():
                progress.warn(f"{name} has ended: {told['ended'][name]}")
            gone = told["ended"]
            if len(gone) == len(folder.agents):
                raise FedrlError("all agents have ended, for the reasons above")
            if done is None and "rounds" in told:
                done = told.get("done", 0)
                progress.begin(told["rounds"], done)
            elif done is not None and told.get("done", 0) > done:
                progress.headline(_measured(told))
                progress.advance(told["done"] - done)
                done = told["done"]
            if told["state"] in ("finished", "failed"):
                break
            if "server" not in told["processes"]:
                raise FedrlError(f"the server has ended: {last_words(folder)}")
            time.sleep(0.3)
    return _ended(told)


def _ended(told: dict[str, Any]) -> int:
    if told["state"] == "failed":
        print(f"fedrl: {told['why']}", file=sys.stderr)
        return 1
    print(f"finished: {told['run']} (fedrl report {told['run']})")
    return 0


def headline(told: dict[str, Any]) -> str:
    """One line."""
    done, rounds = told.get("done", 0), told.get("rounds")
    far = "no round" if rounds is None else f"{done} of {count(rounds, 'rounds')}"
    return ", ".join(filter(None, (f"{told['state']}: {far}", _measured(told))))


def _measured(told: dict[str, Any]) -> str:
    """What the agents last measured, on average."""
    for name, words in (("return", "return"), ("own_return", "return"), ("objective", "objective")):
        found = [agent[name] for agent in told.get("agents", {}).values() if name in agent]
        if found:
            return f"{words} {sum(found) / len(found):.1f} in training"
    return ""


def in_words(told: dict[str, Any]) -> str:
    """A few lines for people."""
    from fedrl.network.record import Missed, missed_in_words

    lines = [headline(told)]
    if "alive" in told:
        lines.append(f"agents there: {', '.join(map(str, told['alive'])) or 'none'}")
    for agent, known in sorted(told.get("agents", {}).items(), key=lambda item: int(item[0])):
        numbers = ", ".join(
            f"{name} {known[name]:.4g}"
            for name in ("return", "own_return", "objective", "loss")
            if name in known
        )
        last = round_name(known["round"], told["rounds"])
        lines.append(f"  agent {agent}: last answer in {last}; {numbers}")
    missed = [Missed(**one) for one in told.get("lost", [])]
    lines += [f"  {words}" for words in missed_in_words(missed, told.get("rounds", 0))]
    lines += [f"  round {one['round']}: {one['why']}" for one in told.get("kept", [])[-5:]]
    if told.get("bytes", {}).get("sent"):
        sent, received = told["bytes"]["sent"], told["bytes"]["received"]
        lines.append(f"bytes in the last round: {sent:,} to agents, {received:,} back")
    if told.get("seconds"):
        seconds = ", ".join(f"{name} {x:.2f}" for name, x in told["seconds"].items())
        lines.append(f"seconds of the last round: {seconds}")
    if told.get("epsilon") is not None:
        lines.append(f"differential privacy so far: epsilon {told['epsilon']:.3g}")
    if told["state"] == "failed":
        lines.append(told["why"])
    if "run" in told:
        lines.append(f"run: {told['run']}")
    lines += [f"{name} has ended: {why}" for name, why in told.get("ended", {}).items()]
    if told["processes"]:
        still = "still running here: " if told["state"] == "finished" else "running here: "
        lines.append(still + ", ".join(told["processes"]))
        if told["state"] == "finished":
            lines.append("agents wait for the server until `fedrl federation down` stops them")
    return "\n".join(lines)
