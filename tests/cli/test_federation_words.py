"""What `fedrl federation status` and the server's lines say, from a status made by hand."""

from fedrl.cli.federation import headline, in_words

TOLD = {
    "state": "finished",
    "rounds": 12,
    "done": 12,
    "agents": {"0": {"round": 13, "objective": 170.0}, "1": {"round": 4, "objective": 30.0}},
    "lost": [{"round": n, "agent": 1, "why": "it has gone"} for n in (5, 6, 7, 13)],
    "processes": [],
}


def test_an_agent_answers_no_round_after_the_last_one():
    words = in_words(TOLD)
    assert "agent 0: last answer in the last evaluation; objective 170" in words
    assert "agent 1: last answer in round 4; objective 30" in words
    assert "round 13" not in words


def test_the_status_names_all_rounds_that_an_agent_missed():
    assert "agent 1 missed rounds 5-7 and the last evaluation (it has gone)" in in_words(TOLD)


def test_an_objective_is_not_called_a_return_and_one_round_has_no_plural():
    assert headline(TOLD) == "finished: 12 of 12 rounds, objective 100.0 in training"
    assert headline({"state": "training", "rounds": 1, "done": 0}) == "training: 0 of 1 round"
    assert headline({"state": "not begun"}) == "not begun: no round"


def test_agents_that_outlive_their_training_are_mentioned():
    words = in_words(TOLD | {"processes": ["agent 0", "agent 1"]})
    assert "still running here: agent 0, agent 1" in words
    assert "`fedrl federation down` stops them" in words
