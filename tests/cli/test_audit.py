"""`steno audit`, what `steno explain` says of decisions, and the audit in the background that `steno doctor` counts."""

import logging
from pathlib import Path

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from stenotest.decided_record import DecidedRecord, story
from stenotest.in_process import InProcess
from stenotest.waiting import wait

from steno.cli.program import steno as command
from steno.cli.wiring.app import App
from steno.events import types
from steno.events.clock import SystemClock
from steno.events.installation import version
from steno.events.store.store import store_at
from steno.projections.answers.decision_audit import BackgroundAudit, last_audit

FORGED = types.RunPlaced(run_id="run-x", provider="dstack")


@pytest.fixture
def site(tmp_path: Path) -> DecidedRecord:
    """A record with every kind of decision."""
    made = DecidedRecord(tmp_path)
    story(made)
    return made


@pytest.fixture
def steno(tmp_path: Path, site: DecidedRecord) -> InProcess:
    """Commands on that record."""
    return InProcess(tmp_path / "home", STENO_RECORD=str(site.folder / "record.db"))


def test_a_record_of_right_decisions_passes(site: DecidedRecord, steno: InProcess) -> None:
    """It says how many, up to where; nothing is listed."""
    page, audit = steno.page("audit"), steno.json("audit", "--missing")
    head = site.record.head().position
    assert page.startswith("✓ every decision follows from the record: 17 decisions, up to event ")
    assert (audit["position"], audit["older"], audit["differing"], audit["findings"]) == (head, 0, 0, [])


def test_a_wrong_decision_is_listed_and_exits_1(site: DecidedRecord, steno: InProcess) -> None:
    """With its event, its subject, and what follows instead."""
    position = site.plant(site.stamp(FORGED))
    app = App()
    done = CliRunner(env={"STENO_RECORD": str(site.folder / "record.db")}).invoke(command, ["audit"], obj=app)
    assert app.exit_code == 1
    assert done.output.startswith("✗ 1 decision does not follow from the record, of ")
    assert f"{position}  2025-12-15" in done.output
    assert done.output.endswith(f"made from: steno replay --until {position - 1}\n")
    (finding,) = steno.json("audit")["findings"]
    assert (finding["kind"], finding["position"], finding["subject"]) == ("differs", position, "run/run-x")


def test_explain_says_what_was_decided_and_on_which_polls(site: DecidedRecord, steno: InProcess) -> None:
    """The decisions about a run and about a machine."""
    run, machine = steno.json("explain", "late"), steno.json("explain", site.vm_id("m2"))
    assert [made["decision"] for made in run["decisions"]] == ["RunPlaced", "RunRequeued", "RunPlaced"]
    drain = machine["decisions"][0]
    assert drain["why"] == "It was drained (idle): seen idle for 604 s; its timeout is 600 s (policy)."
    assert len(drain["polls"]) == 2
    assert "What was decided" in steno.page("explain", "late")
    assert "its timeout is 600 s" in steno.page("explain", site.vm_id("m2")).replace("\n    ", " ")


def test_the_background_goes_on_where_it_was_and_doctor_counts(
    site: DecidedRecord, steno: InProcess, caplog: pytest.LogCaptureFixture
) -> None:
    """It audits what is there, remembers how far, logs what is wrong, and begins there again."""
    store, head = store_at(site.folder / "record.db"), site.record.head().position

    def followed(until: int) -> None:
        with BackgroundAudit(store, SystemClock(), settled=0.01, rest=0):
            wait(lambda: (audit := last_audit(site.record)) is not None and audit.position == until)

    followed(head)
    audit = last_audit(site.record)
    assert audit is not None
    assert (audit.exact, audit.differing) == (17, 0)
    assert f"17 follow from the record, up to event {head:,}" in steno("doctor").output
    forged = site.stamp(FORGED)
    position = site.plant(replace(forged, decided_at=replace(forged.decided_at, software=version())))
    log = logging.getLogger("steno.audit")
    log.addHandler(caplog.handler)  # a command of this process has set where its log goes
    followed(position)
    log.removeHandler(caplog.handler)
    audit = last_audit(site.record)
    assert audit is not None
    assert (audit.exact, audit.differing, [each.position for each in audit.findings]) == (17, 1, [position])
    assert f"a decision does not follow from the record: event {position}, RunPlaced of run/run-x" in caplog.text
    assert "1 do not: see `steno audit`" in steno("doctor").output
