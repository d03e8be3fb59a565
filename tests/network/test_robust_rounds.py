"""Rounds of robust and private servers when agents are rejected or away: training goes on."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedrl.cli.federation import in_words
from fedrl.errors import FedrlError
from fedrl.network.agent_client import named
from fedrl.network.deployment import Deployment
from fedrl.network.experiments import refuse_quorum
from fedrl.network.init import init
from fedrl.network.kinds import server_of
from fedrl.network.messages import Refusal
from fedrl.strategies.aggregators import Mean
from fedrl.strategies.corrections import Offer
from fedrl.strategies.private import Private
from fedrl.strategies.robust import Krum, Median, TrimmedMean
from in_process import Federation
from tiny import TINY

pytestmark = pytest.mark.usefixtures("kept", "hasty")

# Two rounds and an evaluation.
FIVE = replace(TINY, name="five", agents=5, updates=20, seeds=1, held_out=0)


def with_nan(answer):
    return replace(answer, shared={n: np.full_like(x, np.nan) for n, x in answer.shared.items()})


def spoiled(spoil, *bad, rounds=(1, 2)):
    """Some agents send something else in some rounds."""
    return lambda agent, asked, answer: (
        spoil(answer) if agent in bad and asked.E and asked.round in rounds else answer
    )


WAYS = {"rejected": with_nan, "failing": lambda answer: Refusal("no power")}


def federation(folder, aggregator, **given):
    return Federation(replace(FIVE, aggregator=aggregator), folder, **({"quorum": 0} | given))


def models_sent(done):
    return {x.instruction.round: x.instruction.model for x in done.transport.exchanges}


def same(one, other):
    return all(np.array_equal(one[name], other[name]) for name in one)


def status(folder):
    return json.loads((folder / "status.json").read_text())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("aggregator", [Krum(1), TrimmedMean(2), Median()], ids=repr)
def test_a_robust_federation_goes_on_without_as_many_agents_as_may_be_bad(
    tmp_path, aggregator, way
):
    done = federation(tmp_path, aggregator)
    lost = range(aggregator.withstands(5))
    done.transport.change = spoiled(WAYS[way], *lost)
    done.run()
    assert done.record.directory.finished
    assert status(tmp_path)["kept"] == []
    sent = models_sent(done)
    for number in (1, 2):
        # What the others sent, and nothing else, is in the next model.
        offers = {
            x.agent: x.answer.shared
            for x in done.transport.exchanges
            if x.answer.round == number and x.agent not in lost
        }
        assert len(offers) == 5 - len(lost)
        for name, leaf in sent[number + 1].items():
            values = [offer[name] for offer in offers.values()]
            assert np.all((np.min(values, 0) <= leaf) & (leaf <= np.max(values, 0)))
        assert not same(sent[number], sent[number + 1])


def test_with_one_rejected_krum_takes_one_of_the_other_four(tmp_path):
    done = federation(tmp_path, Krum(1))
    done.transport.change = spoiled(with_nan, 3)
    done.run()
    sent = models_sent(done)
    offers = {x.agent: x.answer.shared for x in done.transport.exchanges if x.answer.round == 1}
    assert [i for i, offer in offers.items() if same(offer, sent[2])] in ([0], [1], [2], [4])


@pytest.mark.parametrize("way", WAYS)
def test_with_too_few_valid_answers_a_round_keeps_the_model_and_says_so(tmp_path, way):
    done = federation(tmp_path, Krum(1))
    done.transport.change = spoiled(WAYS[way], 0, 3, rounds=(1,))
    done.run()
    assert done.record.directory.finished
    sent = models_sent(done)
    assert same(sent[2], sent[1])
    assert not same(sent[3], sent[2])
    why = "3 of 5 answers are valid, the aggregator needs 4: the model stays as it was"
    assert f"round 1: {why}" in done.log
    told = status(tmp_path)
    assert told["kept"] == [{"round": 1, "why": why}]
    assert told["state"] == "finished"
    assert f"  round 1: {why}" in in_words(told | {"processes": {}})


def test_a_kept_model_is_what_a_new_server_goes_on_with(tmp_path):
    whole = federation(tmp_path / "whole", Krum(1))
    whole.transport.change = spoiled(with_nan, 0, 3, rounds=(1,))
    whole.run()
    broken = federation(tmp_path / "broken", Krum(1))
    broken.transport.change = lambda agent, asked, answer: (
        Refusal("gone")
        if asked.round == 2
        else spoiled(with_nan, 0, 3, rounds=(1,))(agent, asked, answer)
    )
    with pytest.raises(FedrlError, match="round 2 has 0 valid answers and needs 3"):
        broken.run()
    done = federation(tmp_path / "broken", Krum(1)).run()
    assert "going on after round 1" in done.log
    with np.load(done.path / "models.npz") as one, np.load(whole.path / "models.npz") as other:
        assert same(one, other)


def test_what_a_private_server_publishes_does_not_tell_how_many_have_answered(tmp_path):
    aggregator = Private(clip=1e-4, noise=1e-6)
    means = []
    for lost in ((), (1, 2)):
        done = federation(tmp_path / str(len(lost)), aggregator)
        done.transport.change = spoiled(with_nan, *lost)
        done.run()
        sent = models_sent(done)
        moved = np.concatenate([np.ravel(sent[2][n] - sent[1][n]) for n in sent[1]])
        offers = [
            x.answer.shared
            for x in done.transport.exchanges
            if x.answer.round == 1 and x.agent not in lost
        ]
        total = 0
        for offer in offers:
            update = np.concatenate([np.ravel(offer[n] - sent[1][n]) for n in sent[1]])
            length = np.linalg.norm(update)
            total = total + update * min(1, 1e-4 / length)
        # Of five that were asked, also where three have answered.
        np.testing.assert_allclose(moved, total / 5, atol=3e-7)
        means.append(np.abs(moved).max())
    assert min(means) > 5e-6


def test_the_noise_of_a_private_server_is_new_each_time_and_no_seed_tells_it():
    experiment = replace(FIVE, agents=3, aggregator=Private(clip=0.1, noise=2.0))

    def noise():
        side = server_of(experiment)
        begun = side.begin()
        same, sent = Offer(*begun.sent), (begun.sent, 1)
        offers, received = (dict.fromkeys(range(3), one) for one in (same, sent))
        after = side.step(begun, offers, received, 1, asked=3)
        one, other = (named(state.sent) for state in (after, begun))
        return np.concatenate([np.ravel(one[name] - other[name]) for name in one])

    # Nobody has changed anything: all that is left is noise, on the sum of three.
    one, other = noise(), noise()
    assert one.std() == pytest.approx(0.1 * 2.0 / 3, rel=0.3)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.5


@pytest.mark.parametrize(
    ("aggregator", "quorum", "message"),
    [
        (Krum(1), 3, "quorum = 3, but the krum aggregator needs 4 valid answers of 5: raise"),
        (Krum(1), 5, "quorum = 5, but the krum aggregator is to withstand 1 bad of 5 agents"),
        (TrimmedMean(1), 2, "the trimmed-mean aggregator needs 3 valid answers of 5"),
        (TrimmedMean(1), 5, "lower it to at most 4"),
        (Median(), 2, "the median aggregator needs 3 valid answers of 5"),
        (Mean(), 6, "quorum = 6, but a round has only 5 agents: lower it"),
    ],
    ids=repr,
)
def test_a_quorum_with_which_the_aggregator_cannot_do_is_refused_at_the_start(
    tmp_path, aggregator, quorum, message
):
    experiment = replace(FIVE, aggregator=aggregator)
    with pytest.raises(FedrlError) as told:
        init(tmp_path / "fed", experiment, Deployment(quorum=quorum))
    assert message in str(told.value)
    assert not list(tmp_path.iterdir())


def test_the_quorum_that_is_not_given_is_never_refused():
    for n in range(3, 12):
        aggregators = [Mean(), Median(), Private(), *map(TrimmedMean, range((n - 1) // 2 + 1))]
        aggregators += [Krum(f) for f in range((n - 3) // 2 + 1)]
        for aggregator in aggregators:
            experiment = replace(FIVE, agents=n, aggregator=aggregator)
            refuse_quorum(experiment, 0)
            # More than half are there also without all that may be bad.
            assert n // 2 + 1 <= n - aggregator.withstands(n)
