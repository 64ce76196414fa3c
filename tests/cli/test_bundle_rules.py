"""Bundles have the rules that were adopted, and hide the people in policies, adoptions and levers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from stenotest.bundle_files import recorded, unpacked
from stenotest.in_process import InProcess
from stenotest.rule_texts import adoption, rule_text

from steno.engine.providers.registry import READINGS
from steno.engine.replay.redaction import KINDS, Private
from steno.engine.state.policy import OwnerLimit, Policy, dump_policy
from steno.events import types
from steno.events.budget_moves import BudgetMoved
from steno.events.bundle.form import Checker
from steno.events.clock import SystemClock
from steno.events.levers import LeverPulled
from steno.events.store.record import Batch, Record

TRACES = Path(__file__).parent.parent / "traces" / "dstack-0.22.5"
ALL = ",".join(KINDS)


@pytest.mark.parametrize("redact", [(), ("--redact", ALL)], ids=["plain", "redacted"])
def test_a_run_that_adopted_rules_judged_folds_to_the_same_verdict(
    call: InProcess, elsewhere: InProcess, tmp_path: Path, redact: tuple[str, ...]
) -> None:
    """The rules then in force are in the bundle; all of the record was, and a redacted bundle was refused."""
    record, bundle = tmp_path / "record.db", tmp_path / "i.steno"
    row = "\n[[row]]\nwhen.over = true\nwhen.all = { exit_status = 0 }\n"
    rules = rule_text(row + 'then = { state = "stopped", reason = "gpu_idle" }\n').replace(
        "Killed for memory", "As admin says"
    )
    adopted = msgspec.structs.replace(adoption(rules), by="beatrix")
    before = types.RecorderStarted(source="dstack/warm-reuse", software="1")
    with Record.open(record, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as opened:
        opened.append_many([Batch("source/dstack/warm-reuse", (before,)), Batch("rules", (adopted,))])
    recorded(record, TRACES / "warm_reuse.jsonl.zst")
    mine = call.json("show", "warm-b")
    assert (mine["state"], mine["reason"]) == ("stopped", "gpu_idle")
    call.page("export", "warm-b", "-o", bundle, *redact)
    assert Checker(bundle).manifest.first > 2
    page = elsewhere.json("show", bundle)
    assert [page[key] for key in ("run_id", "state", "reason", "evidence")] == [
        mine[key] for key in ("run_id", "state", "reason", "evidence")
    ]
    assert (page["rule"] == mine["rule"]) is not bool(redact)  # its text had a name
    assert not [word for word in ("admin", "beatrix") if redact and word.encode() in unpacked(bundle)]
    elsewhere.page("verify", bundle, "--against", record)


def test_names_of_people_in_policies_are_hidden(call: InProcess, tmp_path: Path) -> None:
    """The owners of limits, and who moved, adopted or hid something: they need not have submitted a run."""
    limits = tuple(OwnerLimit(owner=owner, runs=1) for owner in ("user/maria", "project/success", "label/team=vision"))
    policy = types.PolicyAdopted(source="dstack/success", policy=dump_policy(Policy(limits=limits)))
    with Record.open(
        tmp_path / "record.db", write=True, create=True, shapes=READINGS.shape, clock=SystemClock()
    ) as opened:
        opened.append_many([Batch("source/dstack/success", (policy,))])
        private = Private(opened, KINDS)
        names = ("bettina", "carla", "dora", "emma", "fritz", "gustav", "greta")
        for event in (
            types.SourceHidden(source="dstack/old", by="bettina"),
            LeverPulled(lever_id="l", action="pause", user="carla", why="x", by="dora"),
            BudgetMoved(amount=1, from_owner="user/emma", to_owner="project/main", why="x", by="fritz"),
            types.StopRequested(run_id="r", provider="dstack", name="gustav", by="policy", submitter="greta"),
        ):
            private.read(opened.append_many([Batch("x", (event,))])[-1])
        assert private.values == dict.fromkeys(names, "names")
    recorded(tmp_path / "record.db", TRACES / "success.jsonl.zst")
    call.page("export", "ok-run", "-o", tmp_path / "i.steno", "--redact", "names")
    content = unpacked(tmp_path / "i.steno")
    assert b"label/team=vision" in content
    assert b"maria" not in content
