"""Every decision follows again from the world that it names; a wrong decision is found, and a missing one."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from stenotest.decided_record import BUDGET, SOFTWARE, DecidedRecord, story

from steno.engine.decide.auditor import Auditor
from steno.engine.decide.decisions import DECISIONS
from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import Until
from steno.engine.fold.record_fold import RecordFold
from steno.engine.providers.registry import READINGS
from steno.events import types

RUN = {"provider": "dstack"}
M1, M2 = {"provider": "dstack", "vm_id": "m1"}, {"provider": "dstack", "vm_id": "m2"}
WRONG: dict[str, types.Event] = {
    "a busy machine is stopped": types.VmStopIntended(**M1, provider_id="m1", by="idle"),
    "a busy machine is drained": types.VmDrainStarted(**M1, by="idle"),
    "an idle machine is drained too early": types.VmDrainStarted(**M2, by="idle", detail="seen idle for 601 s"),
    "a machine is told before a poll shows it empty": types.VmStopIntended(**M2, provider_id="m2", by="idle"),
    "a drain is cancelled that never began": types.VmDrainCancelled(**M2, why="run c can use it"),
    "a place over the cap": types.RunPlaced(run_id="run-d", **RUN, idle=630_000_000),
    "a place in a slot that the mode does not use": types.RunPlaced(run_id="run-c", **RUN, slot="steno-slot-1"),
    "a place on the busy machine": types.RunPlaced(run_id="run-c", **RUN, vm_id="m1", creation="reuse"),
    "a wait for the wrong reason": types.RunHeld(run_id="run-c", **RUN, why="capacity"),
    "a refusal that the budget does not give": types.IntentAbandoned(
        run_id="run-c", **RUN, intent="submit", why="dear", policy=True
    ),
    "a run that has its machine is requested again": types.RunRequeued(
        run_id="run-a", **RUN, provider_id="a", attempt=2, not_before=1
    ),
    "a run is stopped whose machine is to stay": types.StopRequested(
        run_id="run-a", **RUN, name="a", by="policy", submitter="steno"
    ),
    "a run is warned that was never measured": types.RunIdleWarned(run_id="run-a", **RUN, since=1, stops_at=2),
    "a run is stopped for idle GPUs that was not warned": types.StopRequested(
        run_id="run-a", **RUN, name="a", by="policy", submitter="steno", idle_since=1
    ),
    "an alert below its threshold": types.BudgetCrossed(threshold=800, spent=3_200_000, total=4_000_000),
    "a decision about a run that is not there": types.RunPlaced(run_id="run-x", **RUN),
}


@pytest.mark.parametrize("stamped", [True, False])
def test_what_was_decided_follows_again(tmp_path: Path, *, stamped: bool) -> None:
    """Every kind of decision, exactly, from the world that it names; from a world near it where it names none."""
    site = DecidedRecord(tmp_path, stamped=stamped)
    story(site)
    kinds = {stored.type for stored in site.record.read(types=DECISIONS)}
    made = sum(1 for _ in site.record.read(types=DECISIONS))
    audit = site.audit(missing=True)
    assert audit.findings == []
    assert (audit.exact, audit.older) == ((made, 0) if stamped else (0, made))
    assert kinds == DECISIONS - {"SubmitFailed"}


def halfway(folder: Path) -> DecidedRecord:
    """A run on m1; m2 idle; c is placed by the next decision, d waits."""
    site = DecidedRecord(folder, policy=BUDGET)
    for name in ("a", "b"):
        site.request(name)
    site.round()
    site.start("a", "m1")
    site.start("b", "m2")
    site.round()
    site.end("b", "m2")
    site.wait(60)
    site.request("c")
    site.request("d")
    site.poll()
    return site


@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_decision_is_found(tmp_path: Path, what: str, *, stamped: bool) -> None:
    """Forged among right decisions, saying what it was made from or as of an older version: it alone is found."""
    site = halfway(tmp_path)
    event: Any = WRONG[what]
    if (machine := getattr(event, "vm_id", None)) is not None:
        event = replace(event, vm_id=site.vm_id(machine))
    position = site.plant(site.stamp(event) if stamped else event)
    (finding,) = site.audit().findings
    assert (finding.kind, finding.position, finding.decision) == ("differs", position, type(event).__name__)


@pytest.mark.parametrize("ahead", [0, 1, 1_000])
def test_a_decision_that_names_a_later_world_is_found(tmp_path: Path, ahead: int) -> None:
    """No world follows its own decisions: neither a world of the record, nor a world that it has not reached."""
    site = halfway(tmp_path)
    event = site.stamp(types.RunHeld(run_id="run-d", **RUN, why="cap"))
    own = site.record.head().position + 1
    site.plant(replace(event, decided_at=replace(event.decided_at, position=own + ahead)))
    site.poll()
    (finding,) = site.audit().findings
    assert (finding.kind, finding.position, finding.decision) == ("differs", own, "RunHeld")


@pytest.mark.parametrize("stamped", [True, False])
def test_a_decision_that_was_made_twice_is_found(tmp_path: Path, *, stamped: bool) -> None:
    """An alert that is right is wrong the second time, whatever it says that it was made from."""
    site = halfway(tmp_path)
    site.adopt(replace(BUDGET, budget_total=40_000))
    site.stamped = stamped
    site.round()
    (alert, *_) = [stored.data for stored in site.record.read(types={"BudgetCrossed"})]
    assert site.audit().findings == []
    position = site.plant(alert)
    assert [(each.position, each.decision) for each in site.audit().findings] == [(position, "BudgetCrossed")]


def test_a_place_that_was_not_given_is_missing(tmp_path: Path) -> None:
    """The waiting run could go to a machine that is idle for rounds while somebody records: it is listed once."""
    site = halfway(tmp_path)
    site.decide()
    site.start("c", "m2")
    site.round()
    site.end("c", "m2")
    for _ in range(6):
        site.clock.sleep(30_000_000)
        site.poll()
    assert site.audit().findings == []
    (finding,) = site.audit(missing=True).findings
    assert (finding.kind, finding.decision, finding.subject) == ("missing", "RunPlaced", "run/run-d")
    site.decide()
    assert len(site.audit(missing=True).findings) == 1


def test_words_count_where_the_same_version_made_them(tmp_path: Path) -> None:
    """A sentence with another number is a wrong decision of this version; another version may word it otherwise."""
    site = halfway(tmp_path)
    held = next(each for each in site.decisions() if isinstance(each, types.RunHeld))
    site.plant(site.stamp(replace(held, detail="the machine limit (3, `vms.max`) is reached")))
    assert len(site.audit().findings) == 1
    assert site.audit(software="1.3").findings == []


@pytest.mark.parametrize("stamped", [True, False])
def test_an_audit_goes_on_where_another_ended(tmp_path: Path, *, stamped: bool) -> None:
    """In pieces of any length it says the same as in one, also of decisions that follow their world across two."""
    site = halfway(tmp_path)
    site.stamped = stamped
    site.round()
    forged = types.RunPlaced(run_id="run-x", **RUN)
    site.plant(site.stamp(forged) if stamped else forged)
    whole, head = site.audit(), site.record.head().position
    for cut in range(1, head):
        first = Auditor(RecordFold(site.record, Fold(READINGS)), SOFTWARE)
        for _ in first.run(cut):
            pass
        fold = RecordFold(site.record, Fold(READINGS))
        fold.run(Until(position=first.position))
        second = Auditor(fold, SOFTWARE, seen=first.seen)
        for _ in second.run(head):
            pass
        assert first.findings + second.findings == whole.findings
        assert first.exact + second.exact == whole.exact
