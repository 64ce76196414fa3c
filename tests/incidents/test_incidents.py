"""The incidents of December 2025: each wrong verdict under the rules of its time, and the right one now.

Four bugs of the first poller, three of its fix, and the two ways in which the site showed them: `docs/incidents.md`.
"""

import hashlib
from pathlib import Path

import pytest
from stenotest.whole_costs import reconcile

from steno.engine.fold.fold import Fold
from steno.engine.money.costs import Costs
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import fold_polls, incident_path, open_trace, replay_trace
from steno.engine.replay.result import JsonObject, Replay, diff

HERE = Path(__file__).parent
RECORDINGS = HERE.parent / "traces"
Verdict = tuple[str, str | None, int | None]


def trace(name: str) -> Path:
    return HERE / "traces" / f"{name}.jsonl.zst"


def runs(path: Path, rules: str = "current") -> list[JsonObject]:
    return list(replay_trace(path, rules).to_json()["runs"])


def verdicts(path: Path, rules: str = "current") -> list[Verdict]:
    return [(run["state"], run["reason"], run["exit_status"]) for run in runs(path, rules)]


def test_the_traces_are_those_that_were_written_then() -> None:
    """Nobody edits them by hand."""
    lines = (HERE / "traces" / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (HERE / "traces").glob("*.zst")}
    assert sums == {name: digest for digest, name in (line.split("  ") for line in lines)}


@pytest.mark.parametrize(
    ("name", "rules", "wrong", "right"),
    [
        # bug 1: str(RunStatus.DONE) — the ten-minute timeout the site saw
        ("enum_str", "2025-12-sdk-enum", ("failed", "timed_out", None), ("succeeded", "exit_zero", 0)),
        # bug 2: `terminated` — the error at once the site saw
        ("terminated_exit_zero", "2025-12-sdk", ("failed", "unknown_reason", None), ("succeeded", "exit_zero", 0)),
        ("terminated_exit_one", "2025-12-sdk", ("failed", "unknown_reason", None), ("failed", "exit_nonzero", 1)),
        (
            "terminated_without_exit_status",
            "2025-12-sdk",
            ("failed", "unknown_reason", None),
            ("finishing", None, None),
        ),
        (
            "terminated_all_jobs_done",
            "2025-12-sdk",
            ("failed", "unknown_reason", None),
            ("succeeded", "exit_zero", None),
        ),
        ("stopped_by_a_user", "2025-12-sdk", ("failed", "unknown_reason", None), ("stopped", "stopped_by_user", None)),
        ("stopped_by_a_user", "2025-12-fix", ("running", None, None), ("stopped", "stopped_by_user", None)),
        # bug 3: stale objects
        ("stale_object", "2025-12-sdk-stale", ("queued", None, None), ("succeeded", "exit_zero", 0)),
        # bug 4: missing metadata
        ("missing_metadata", "2025-12-sdk", ("failed", "unknown_reason", None), ("succeeded", "exit_zero", 0)),
        # the fix reads the first job's newest submission alone
        ("newest_submission_alone", "2025-12-fix", ("succeeded", "exit_zero", 0), ("failed", "exit_nonzero", 1)),
    ],
)
def test_the_old_rules_are_wrong_and_ours_are_right(name: str, rules: str, wrong: Verdict, right: Verdict) -> None:
    """Each incident has one run."""
    assert verdicts(trace(name), rules) == [wrong]
    assert verdicts(trace(name)) == [right]


def test_the_fix_never_sees_the_end_of_a_run_that_leaves_the_active_list() -> None:
    """Finished runs drop from it while another run is active; a poll by id knows."""
    path = trace("active_list_drops_finished")
    assert verdicts(path, "2025-12-fix") == [("running", None, None), ("running", None, None)]
    assert verdicts(path) == [("running", None, None), ("succeeded", "exit_zero", 0)]


def test_under_the_fix_a_run_takes_the_verdict_of_the_next_run_of_its_name() -> None:
    """It is matched by name; we key on the id."""
    path = trace("reused_name_takes_the_other_run")
    assert verdicts(path, "2025-12-fix") == [("failed", "exit_nonzero", 1), ("failed", "exit_nonzero", 1)]
    assert verdicts(path) == [("succeeded", "exit_zero", 0), ("failed", "exit_nonzero", 1)]


def test_the_error_at_once_comes_with_the_first_terminating_poll() -> None:
    """While the machine already knows the exit status: the error the site showed for a success."""
    (wrong,), (right,) = (runs(trace("terminated_exit_zero"), rules) for rules in ("2025-12-sdk", "current"))
    assert wrong["transitions"][-1]["position"] > right["transitions"][-1]["position"]
    assert (wrong["state"], right["state"]) == ("failed", "succeeded")


def test_the_ten_minute_timeout_comes_ten_minutes_after_first_sight() -> None:
    """Not a second earlier: the first poll at or after it."""
    (run,) = runs(trace("enum_str"), "2025-12-sdk-enum")
    assert run["transitions"][0]["at"] == "2025-12-15T09:00:00.010000Z"
    assert run["transitions"][-1]["at"] == "2025-12-15T09:10:00.010000Z"


def test_a_user_stop_is_polled_for_ever_by_the_fix_on_real_servers_too() -> None:
    """Both recordings of a stop."""
    for version in ("dstack-0.19.37", "dstack-0.22.5"):
        path = RECORDINGS / version / "stop_running.jsonl.zst"
        assert verdicts(path, "2025-12-fix") == [("running", None, None)]
        assert verdicts(path) == [("stopped", "stopped_by_user", None)]


def test_the_documents_figures_are_explained_to_the_cent() -> None:
    """426.83 s from the run's submission; dstack bills 426.2 s from the job's, at $1.99/h: $0.2356, not $0.2359."""
    (run,) = replay_trace(trace("missing_metadata")).runs
    assert run.submitted_at is not None
    assert run.finished_at is not None
    assert run.finished_at - run.submitted_at == 426_830_000
    assert run.facts is not None
    newest = run.facts.jobs[0].newest
    assert newest is not None
    assert newest.submitted_at is not None
    assert newest.finished_at is not None
    assert newest.price == 1_990_000
    billed = newest.finished_at - newest.submitted_at
    assert billed == 426_200_000
    assert round(billed / 1e6 * 1.99 / 3600, 4) == 0.2356
    assert round(426.83 * 1.99 / 3600, 4) == 0.2359
    assert run.cost == 235_600
    (misread,) = runs(trace("missing_metadata"), "2025-12-sdk")
    assert (misread["exit_status"], misread["provider_cost_usd"]) == (None, None)


def test_the_documents_cost_is_the_runs_and_the_machine_costs_more_than_twice_as_much() -> None:
    """$0.2356 by dstack; with ten minutes of idling the machine costs $0.5737, and every difference has its line."""
    world = Fold(READINGS)
    for _ in fold_polls(world, open_trace(trace("bill_beyond_the_run"))):
        pass
    replay = Replay(world).to_json()
    (run,), (vm,) = replay["runs"], replay["vms"]
    assert (run["provider_cost_usd"], run["cost_usd"], run["start"]) == ("0.235600", "0.235389", "cold")
    assert (vm["cost_low_usd"], vm["cost_usd"], vm["cost_high_usd"]) == ("0.566044", "0.573689", "0.573689")
    assert [(interval["phase"], interval["cost_usd"]) for interval in vm["intervals"]] == [
        ("provisioning", "0.065786"),
        ("busy", "0.169603"),
        ("idle", "0.333425"),
        ("terminating", "0.004875"),
    ]
    _, everything = reconcile(Costs(world.state))
    assert {line.cause.value: line.amount for line in everything.lines} == {
        "queueing": -205,
        "rounding": -6,
        "idle": 333_425,
        "tear-down": 4_875,
    }


def test_the_shipped_incident_is_a_real_success_the_first_poller_called_failed() -> None:
    """The incident that `steno demo` replays: a genuine recording, the poll that settles it named."""
    (wrong,), (right,) = (runs(incident_path(), rules) for rules in ("2025-12-sdk", "current"))
    assert (wrong["state"], wrong["reason"], wrong["evidence"]) == ("failed", "unknown_reason", [349])
    assert (right["state"], right["reason"], right["evidence"]) == ("succeeded", "exit_zero", [331])
    assert incident_path().read_bytes() == (RECORDINGS / "dstack-0.22.5/success.jsonl.zst").read_bytes()
    (difference,) = diff(replay_trace(incident_path(), "2025-12-sdk"), replay_trace(incident_path()))
    assert difference.name == "ok-run"
