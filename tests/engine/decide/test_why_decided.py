"""Each kind of decision has its reason in a sentence, with the numbers that were compared."""

from pathlib import Path

from stenotest.decided_record import DecidedRecord, story

from steno.engine.decide.decisions import DECISIONS
from steno.engine.decide.why_decided import why_decided
from steno.events import types
from steno.projections.answers.decided import decisions_about


def test_every_kind_of_decision_says_why(tmp_path: Path) -> None:
    """In a story that has them all: which machine, which limit, how long idle, how much of the budget."""
    site = DecidedRecord(tmp_path)
    story(site)
    state = site.live.state
    reasons = {
        (stored.type, getattr(stored.data, "run_id", "") or getattr(stored.data, "vm_id", "")): why_decided(
            state, stored.data, stored.observed_at
        )
        for stored in site.record.read(types=DECISIONS)
    }
    m1, m2 = site.vm_id("m1"), site.vm_id("m2")
    assert reasons["RunPlaced", "run-c"] == "It got its place: on m1, which was idle for 0 s and fits."
    assert reasons["RunHeld", "run-c"] == "It waits (cap): the machine limit (2, `vms.max`) is reached."
    assert "at worst: $96.35; left: $4.00 − " in reasons["IntentAbandoned", "run-dear"]
    assert reasons["VmDrainStarted", m2] == (
        "It was drained (idle): seen idle for 604 s; its timeout is 600 s (policy)."
    )
    assert reasons["VmDrainCancelled", m2] == "Its drain was cancelled: run late can use it."
    assert reasons["VmStopIntended", m1].startswith("It was stopped (user): a poll that began after its drain of 2025")
    assert reasons["StopRequested", "run-c"].startswith("It was stopped: a user requested the stop of its machine at")
    assert reasons["BudgetCrossed", ""].endswith("of $0.50 were spent, which is 80 % or more.")
    assert "attempt 2 asks for the same from 2025-12-15T09:10:50Z on, 15 s later." in reasons["RunRequeued", "run-late"]
    idle = "its GPUs were idle for "
    assert reasons["RunIdleWarned", "run-slow"].startswith(f"It was warned: {idle}2 m 31 s, since 2025-12-15T09:13:06Z")
    assert reasons["RunIdleWarned", "run-slow"].endswith(" unless they work before.")
    assert reasons["StopRequested", "run-slow"].startswith(f"It was stopped: {idle}5 m 02 s")
    given_up = types.SubmitFailed(run_id="r", provider="dstack", error="dstack has no offer for it")
    assert why_decided(state, given_up, 0) == "It was given up: dstack has no offer for it."
    assert {kind for kind, _ in reasons} | {"SubmitFailed"} == DECISIONS


def test_a_decision_names_the_newest_answers_that_it_stands_on(tmp_path: Path) -> None:
    """The newest poll of each question, before the world that it was made from; in order."""
    site = DecidedRecord(tmp_path)
    story(site)
    machine = site.live.state.vms[site.vm_id("m2")]
    head = site.record.head().position
    drain, kept = decisions_about(site.record, site.live.state, machine, head)
    assert (drain.decision, kept.decision) == ("VmDrainStarted", "VmDrainCancelled")
    for made in (drain, kept):
        polls = [site.record.poll(position) for position in made.polls]
        assert sorted(poll.path for poll in polls) == ["/api/instances/list", "/api/runs/list"]
        assert made.polls == tuple(sorted(made.polls))
        assert made.position > made.polls[-1]
    run = site.live.state.runs["run-late"]
    kinds = [made.decision for made in decisions_about(site.record, site.live.state, run, head)]
    assert kinds == ["RunPlaced", "RunRequeued", "RunPlaced"]
