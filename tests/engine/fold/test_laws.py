"""The laws of the Run machine, one property each, over generated histories of one to three jobs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.dstack_history import DstackHistory, Item, single
from stenotest.histories import History, histories

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import NumberedPoll, replay_polls
from steno.engine.rules.cases import case_of
from steno.engine.rules.sets import CURRENT, Verdict, decisive
from steno.engine.state.run import Run

Said = tuple[str, str | None, int | None]


def told(history: History) -> DstackHistory:
    """A poll of the full list every five seconds, one for each thing the server showed."""
    story = DstackHistory()
    for item in history.items:
        story.listed(item).wait(5)
    return story


def fold(polls: list[NumberedPoll], world: Fold | None = None) -> Fold:
    world = world if world is not None else Fold(READINGS)
    reader = PollReader(READINGS)
    for number, poll in polls:
        if poll is not None:
            world.apply(reader.read(number, poll))
    return world


def only(world: Fold) -> Run:
    (run,) = world.state.runs.all()
    return run


def said(run: Run) -> Said:
    return (run.state.value, run.reason.value if run.reason is not None else None, run.exit_status)


@given(histories())
def test_a_run_is_settled_by_the_first_decisive_poll_and_by_no_other(history: History) -> None:
    """The verdict known from how the history was made, at the poll that first carries it."""
    story = told(history)
    run = only(fold(list(story.polls())))
    assert (run.state.value, run.exit_status) == (history.state, history.exit_status)
    assert run.evidence == (history.settled_from + 1,)


@given(histories(), st.data())
def test_only_decisive_evidence_ends_a_run(history: History, data: st.DataObject) -> None:
    """Law: no prefix shows an end before its evidence."""
    end = data.draw(st.integers(1, len(history.items)))
    run = only(fold(list(told(history).polls())[:end]))
    assert run.terminal == (end > history.settled_from)


@given(histories())
def test_a_coherent_history_has_no_anomaly(history: History) -> None:
    """An allowed step of the provider is not an anomaly."""
    assert fold(list(told(history).polls())).state.anomalies == []


@given(histories())
def test_the_same_observation_twice_changes_nothing(history: History) -> None:
    """Law."""
    polls = list(told(history).polls())
    once = replay_polls(polls).to_json()
    twice = replay_polls([pair for pair in polls for _ in range(2)]).to_json()
    assert once["runs"] == twice["runs"]
    assert once["anomalies"] == twice["anomalies"]


@given(histories(), st.data())
def test_dropping_repeating_or_delaying_polls_may_delay_a_verdict_and_never_flips_it(
    history: History, data: st.DataObject
) -> None:
    """Law: an end found in any delivery is the end of the whole history; none that comes late is believed."""
    polls = list(told(history).polls())
    right = said(only(fold(polls)))
    kept = data.draw(st.lists(st.sampled_from(polls), min_size=1, max_size=2 * len(polls)))
    numbered = [(number, poll) for number, (_, poll) in enumerate(kept, start=1)]
    world = fold(numbered)
    run = only(world)
    if run.terminal:
        assert (run.state.value, run.exit_status) == (right[0], right[2])
    assert all(anomaly.kind != "contradiction" for anomaly in world.state.anomalies)


@given(histories(), st.data())
def test_a_late_answer_moves_nothing(history: History, data: st.DataObject) -> None:
    """A poll that started before the newest one applied is recorded and moves nothing."""
    polls = list(told(history).polls())
    end = data.draw(st.integers(1, len(polls)))
    late = data.draw(st.integers(0, end - 1))
    world = fold(polls[:end])
    before = replay_polls(polls[:end]).to_json()["runs"]
    fold([(len(polls) + 1, polls[late][1])] if late < end - 1 else [], world)
    after = said(only(world))
    assert after == said(only(fold(polls[:end])))
    assert len(only(world).transitions) == len(before[0]["transitions"])


@given(histories(), st.data())
def test_absence_never_ends_a_run(history: History, data: st.DataObject) -> None:
    """Law: however long it is not listed, it is at most lost, and it leaves `lost` as soon as evidence comes."""
    end = data.draw(st.integers(1, len(history.items)))
    story = DstackHistory()
    for item in history.items[:end]:
        story.listed(item).wait(5)
    settled = end > history.settled_from
    for _ in range(data.draw(st.integers(0, 60))):
        story.wait(data.draw(st.sampled_from([5, 30, 59, 300]))).listed()
    run = only(fold(list(story.polls())))
    assert run.terminal == settled
    story.wait(5).listed(history.items[-1])
    assert said(only(fold(list(story.polls()))))[0] == history.state


WORD = st.sampled_from(["hibernating", "", "DONE", "exploded", "runstatus.done", "zz"])


@given(histories(), WORD, st.sampled_from(["status", "termination_reason"]), st.data())
def test_an_unknown_word_never_raises_and_never_ends_a_run(
    history: History, word: str, key: str, data: st.DataObject
) -> None:
    """Law: at every moment at which the run has not ended, a word we do not know does not end it either."""
    index = data.draw(st.integers(0, len(history.items) - 1))
    before = history.items[index]
    in_job = data.draw(st.booleans())
    changed: Item = {**before}
    if in_job:
        last = before["jobs"][0]["job_submissions"][-1]
        submissions = [*before["jobs"][0]["job_submissions"][:-1], {**last, key: word}]
        changed["jobs"] = [{**before["jobs"][0], "job_submissions": submissions}, *before["jobs"][1:]]
    else:
        changed[key] = word
    story = DstackHistory().listed(changed)
    run = only(fold(list(story.polls())))
    if index < history.settled_from and before["status"] != "pending":
        assert not run.terminal


@given(histories(), st.data())
def test_a_verdict_is_memoryless(history: History, data: st.DataObject) -> None:
    """Law: a function of the newest decisive observation and of our own intents, whatever came before."""
    polls = list(told(history).polls())
    index = data.draw(st.integers(0, len(polls) - 1))
    whole, alone = only(fold(polls[: index + 1])), only(fold([polls[index]]))
    if alone.terminal:
        assert said(whole) == said(alone)
    assert whole.facts is not None
    move = CURRENT.move(whole.facts, stopped_by_policy=False)
    assert isinstance(move, Verdict) == alone.terminal == (decisive(case_of(whole.facts)) is not None)


@given(histories(), st.booleans())
def test_a_stop_is_a_policys_only_if_our_newest_request_was(history: History, policy: bool) -> None:
    """Law: our own intents decide between the words, never between states."""
    item = history.items[-1]
    polls = list(DstackHistory().listed(item).polls())
    world = Fold(READINGS)
    reader = PollReader(READINGS)
    number, poll = polls[0]
    assert poll is not None
    tick = reader.read(number, poll)
    facts = tick.runs[0].facts
    by_user, by_policy = CURRENT.move(facts, stopped_by_policy=False), CURRENT.move(facts, stopped_by_policy=True)
    assert isinstance(by_user, Verdict)
    assert isinstance(by_policy, Verdict)
    assert by_user.state is by_policy.state
    if by_policy.state == "stopped":
        assert (by_user.reason in ("stopped_by_user", "aborted_by_user"), by_policy.reason) == (
            True,
            "stopped_by_policy",
        )
    world.apply(tick)


@given(histories())
def test_both_steppers_fold_a_history_alike(history: History) -> None:
    """The machine of the live path and the table of replay."""
    polls = list(told(history).polls())
    live = fold(polls, Fold(READINGS, CURRENT, live=True))
    replayed = fold(polls, Fold(READINGS, CURRENT))
    assert live.state == replayed.state


@pytest.mark.parametrize("seen_by", ["get", "active", "full"])
def test_any_endpoint_that_shows_the_run_is_an_observation(seen_by: str) -> None:
    """A list or a get, full or active."""
    item = single("a", "running", "terminating", job_reason="done_by_runner", exit_status=0)
    story = DstackHistory()
    shows: dict[str, Any] = {"get": story.got, "active": story.active, "full": story.listed}
    shows[seen_by](item)
    assert said(only(fold(list(story.polls())))) == ("succeeded", "exit_zero", 0)
