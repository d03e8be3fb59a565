"""Rounds that wait for nobody: the server steps whenever enough agents have arrived.

Each agent works on an instruction of its own, from the model that was the newest one when it was
asked. A checkpoint has all instructions: after a kill the same ones are sent again, and agents that
have carried them out say again what came of it.
"""

from collections.abc import Mapping

import jax

from fedrl.counting import count
from fedrl.errors import FedrlError
from fedrl.network.agent_client import named
from fedrl.network.messages import Instruction
from fedrl.network.progress import assigned
from fedrl.network.server import Server
from fedrl.network.server_side import Planned
from fedrl.strategies.corrections import Broadcast


class AsynchronousRounds:
    """All rounds of a training but the last, which only evaluates."""

    def __init__(self, server: Server) -> None:
        self._server, self._exchange = server, server.exchange()
        self._asked: dict[int, float] = {}
        """When each agent was."""
        self._needed = server.side.experiment.timing.arrivals

    def run(self) -> None:
        """From wherever the server is."""
        server = self._server
        for planned in server.side.rounds[server.done : -1]:
            if not self._asked:
                server.gather(planned, set(range(server.side.agents)), self._needed)
            self._round(planned)

    def _round(self, planned: Planned) -> None:
        server, exchange = self._server, self._exchange
        start, state = server.clock(), server.progress.server
        if planned.evaluate:
            held_out = server.side.held_out(state, planned.trained)
            server.record.evaluation(planned, {}, held_out, more=True)
        self._wait(planned)
        waited = server.clock()
        came = list(exchange.answers)[: self._needed]
        answers = {agent: exchange.answers[agent] for agent in came}
        server.step(planned, answers, {agent: self._begun(agent) for agent in came})
        lost = dict(exchange.lost)
        for agent in (*came, *lost):
            exchange.forget(agent)
        idle = set(range(server.side.agents)) - set(exchange.instructions)
        server.progress = assigned(
            server.progress, server.side, sorted(idle), planned.number + 1, came
        )
        server.save(planned)
        server.done = planned.number
        server.record.round(
            planned,
            answers,
            lost,
            sent=exchange.sent,
            received=exchange.received,
            seconds=(waited - start, server.clock() - waited),
        )
        exchange.sent = exchange.received = 0

    def _wait(self, planned: Planned) -> None:
        """Until enough agents have arrived."""
        server, exchange = self._server, self._exchange
        enough = server.clock()
        while len(exchange.answers) < self._needed:
            here = exchange.ask_again()
            self._ask(here)
            self._hurry(here)
            for agent in exchange.collect():
                self._keep_evaluation(agent)
            if len(exchange.answers) >= self._needed:
                return
            if len(exchange.answers) + len(exchange.open & set(here)) >= self._needed:
                enough = server.clock()
            elif server.clock() > enough + server.deployment.patience:
                reasons = [f"agent {i}: {why}" for i, why in sorted(exchange.lost.items())]
                raise FedrlError(
                    f"round {planned.number} needs {count(self._needed, 'arrivals')}, and for "
                    f"{server.deployment.patience:g} s only {sorted(here)} were there "
                    f"({'; '.join(reasons) or 'nothing was wrong with them'}). Start the server "
                    "again to try this round again"
                )
            server.wait(planned, here)

    def _ask(self, here: Mapping[int, object]) -> None:
        """Send everybody who has nothing to do what it is to do."""
        idle = sorted(set(here) - set(self._exchange.instructions))
        if idle:
            self._exchange.ask({agent: self._instruction(agent) for agent in idle}, here)
            self._asked |= dict.fromkeys(idle, self._server.clock())

    def _hurry(self, here: Mapping[int, object]) -> None:
        """After the deadline a message is thrown away: ask again, and wait as long again."""
        until = self._server.clock() - self._server.deployment.deadline
        late = {i for i in self._exchange.open & set(here) if self._asked[i] < until}
        self._exchange.repeat(late, here, "have not answered before the deadline")
        self._asked |= dict.fromkeys(late, self._server.clock())

    def _instruction(self, agent: int) -> Instruction:
        server, underway = self._server, self._server.progress.underway
        # Nobody begins with what only evaluates.
        number = min(int(underway.round[agent]), len(server.side.rounds) - 1)
        return server.instruction(
            agent,
            server.side.rounds[number - 1],
            named(self._begun(agent)[0]),
            works=True,
            evaluate=bool(underway.evaluate[agent]),
        )

    def _begun(self, agent: int) -> tuple[Broadcast, int]:
        """What an agent has received, and in which round."""
        underway = self._server.progress.underway
        received = jax.tree.map(lambda leaf: leaf[agent], underway.received)
        return received, int(underway.round[agent])

    def _keep_evaluation(self, agent: int) -> None:
        """An agent measures the first model it gets once an evaluation is due."""
        server, answer = self._server, self._exchange.answers[agent]
        if self._exchange.instructions[agent].evaluate:
            number = int(server.progress.underway.evaluated[agent])
            server.record.evaluation(server.side.rounds[number - 1], {agent: answer}, {}, more=True)
