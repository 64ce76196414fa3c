"""An imported trace is an archive: it changes no budget, limit, alert or refusal, and can be hidden."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stenotest.command_line import Steno
from stenotest.in_process import InProcess

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.events import types
from steno.events.clock import SECOND, SystemClock, parse_time
from steno.events.store.record import Batch, Record

TRACES = Path(__file__).parent.parent / "traces"
LIVE = TRACES / "dstack-0.22.5" / "unreachable.jsonl.zst"
NINE = sorted(path for path in TRACES.rglob("*.jsonl.zst") if path.stat().st_size < 16_000)[:9]
"""Shipped recordings, none of the live source; at the end of some a machine is open."""


@pytest.fixture
def call(tmp_path: Path) -> InProcess:
    return InProcess(tmp_path, COLUMNS="120", AMD_GRANT_CREDITS_TOTAL="5.00")


def told(call: InProcess, *words: object, **variables: str) -> Any:
    """The JSON of a command, without where the record ends."""
    answer = call.json(*words, **variables)
    answer.pop("position", None)
    return answer


def recorded(path: Path, trace: Path) -> None:
    """The record that a recorder would have written of the polls of a trace: every poll as of its project."""
    polls = [poll for _, poll in open_trace(trace) if poll is not None]
    source = polls[0].source
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        record.append_many([Batch(f"source/{source}", (types.RecorderStarted(source=source, software="1"),))])
        record.append_polls([msgspec.structs.replace(poll, source=source) for poll in polls])


def imported(call: InProcess, *traces: Path) -> None:
    for trace in traces:
        call.page("import", trace)


def test_nine_imported_traces_change_no_budget_and_no_list_of_what_goes_on(call: InProcess, tmp_path: Path) -> None:
    """The live machine's bill, the budget, the sources and the metrics are as before."""
    recorded(tmp_path / "record.db", LIVE)

    def figures() -> dict[str, Any]:
        budget = told(call, "budget")
        budget.pop("exhausted_at")  # counted from now
        return {
            "budget": budget,
            "metrics": told(call, "metrics"),
            "sources": told(call, "ps")["sources"],
            "live": [vm for vm in told(call, "vms")["vms"] if "archive" not in vm],
        }

    before = figures()
    assert float(before["budget"]["spent_usd"]) > 0
    imported(call, *NINE)
    assert figures() == before
    assert len(told(call, "vms", "--all")["vms"]) > 1
    assert "archive" in call("vms", "--all").stdout
    assert {source["source"]: source["kind"] for source in told(call, "sources")["sources"]}[
        "dstack/unreachable"
    ] == "live"


def test_an_archive_never_moves_a_live_bill_and_no_live_poll_moves_its(call: InProcess, tmp_path: Path) -> None:
    """An open machine of an archive is billed to the archive's last poll, whatever is polled or imported later."""
    imported(call, LIVE)
    alone = told(call, "vms", "--all")["vms"]
    assert alone[0]["intervals"][-1]["to"] is None
    recorded(tmp_path / "record.db", TRACES / "dstack-0.22.5" / "warm_reuse.jsonl.zst")
    imported(call, *NINE)
    there = {vm["vm_id"]: vm for vm in told(call, "vms", "--all")["vms"]}
    assert there[alone[0]["vm_id"]] == alone[0]


@pytest.mark.parametrize("archive", [False, True], ids=["live", "archive"])
def test_a_bill_is_the_same_wherever_it_is_shown(call: InProcess, tmp_path: Path, archive: bool) -> None:
    """List, machine, costs and replay of the record, replay of the trace."""
    if archive:
        imported(call, LIVE)
    else:
        recorded(tmp_path / "record.db", LIVE)
    (listed,) = told(call, "vms", "--all")["vms"]
    alone = told(call, "vms", listed["vm_id"])
    (replayed,) = told(call, "replay")["vms"]
    (traced,) = told(call, "replay", LIVE)["vms"]
    (row,) = told(call, "costs")["rows"]
    assert listed == replayed == {key: alone[key] for key in listed}
    assert {key: value for key, value in listed.items() if key != "archive"} == traced
    assert row["total_usd"] == listed["cost_usd"]
    assert ("archive" in listed, row["archive"]) == (archive, archive)


def test_every_recording_imported_is_replayed_as_its_trace(call: InProcess, tmp_path: Path) -> None:
    """Verdicts, times, bills and anomalies; positions are the record's own."""
    for trace in NINE:
        alone = {"STENO_RECORD": str(tmp_path / f"{trace.parent.name}-{trace.name}.db")}
        assert call("import", trace, **alone).exit_code == 0
        of_record, of_trace = told(call, "replay", **alone), told(call, "replay", trace)
        for key in ("runs", "vms", "anomalies", "blind"):
            assert [bare(item) for item in of_record[key]] == [bare(item) for item in of_trace[key]], (trace, key)


def bare(item: Any) -> Any:
    """An object without positions, and without the mark of an archive."""
    if isinstance(item, dict):
        return {key: bare(value) for key, value in item.items() if key not in ("position", "evidence", "archive")}
    return [bare(value) for value in item] if isinstance(item, list) else item


def test_a_live_source_takes_no_import_but_under_another_name(call: InProcess, tmp_path: Path) -> None:
    """The refusal names the way out; the runs that the record itself watched stay as it saw them."""
    recorded(tmp_path / "record.db", LIVE)
    before = told(call, "replay")
    refused = call("import", LIVE)
    assert refused.exit_code != 0
    assert "--as NAME" in str(refused.exception)
    assert told(call, "replay") == before
    assert call("import", LIVE, "--as", "copy").exit_code == 0
    after = told(call, "replay")
    assert (after["runs"], after["vms"]) == (before["runs"], before["vms"])
    assert call("import", LIVE, "--as", "no/name").exit_code == 2


def test_an_archive_takes_a_name_of_its_own_and_is_imported_once(call: InProcess) -> None:
    """All polls of the trace are of that one source."""
    assert call("import", LIVE, "--as", "march").exit_code == 0
    (source,) = told(call, "sources")["sources"]
    assert (source["source"], source["kind"], source["runs"], source["machines"]) == ("dstack/march", "archive", 1, 1)
    assert (source["first_poll_at"], source["last_poll_at"]) == (
        "2026-11-20T13:40:51.830700Z",
        "2026-11-20T13:45:46.850600Z",
    )
    assert told(call, "import", LIVE, "--as", "march")["polls"] == 0
    assert told(call, "sources")["sources"] == [source]


def test_a_recorder_may_go_on_with_the_source_of_an_archive(call: InProcess, tmp_path: Path) -> None:
    """From then on the source is live; what was imported and is not seen again stays an archive."""
    imported(call, LIVE)
    (archived,) = told(call, "vms", "--all")["vms"]
    with Record.open(tmp_path / "record.db", write=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        poll = next(poll for _, poll in open_trace(LIVE) if poll is not None and poll.path.endswith("instances/list"))
        started = types.RecorderStarted(source=poll.source, software="1")
        record.append_many([Batch(f"source/{poll.source}", (started,))])
        late = parse_time("2026-11-22T09:00:00Z")
        for number in range(0, 2000, 20):
            at = late + number * SECOND
            empty: dict[str, Any] = {
                "started_at": at,
                "observed_at": at,
                "body": b"[]",
                "answered": True,
                "status": 200,
            }
            record.append_polls([msgspec.structs.replace(poll, **empty)])
    assert told(call, "vms", "--all")["vms"] == [archived]
    assert told(call, "budget")["spent_usd"] == "0.000000"
    assert [source["source"] for source in told(call, "ps")["sources"]] == ["dstack/unreachable"]


def test_a_hidden_archive_is_in_no_list_and_comes_back(call: InProcess, tmp_path: Path) -> None:
    """Nothing is deleted: the moment before shows it, and so does `--hidden`."""
    recorded(tmp_path / "record.db", TRACES / "dstack-0.22.5" / "success.jsonl.zst")
    only_live = (told(call, "ps", "--all")["runs"], told(call, "vms", "--all")["vms"], told(call, "costs"))
    imported(call, LIVE)
    with_it = (told(call, "ps", "--all")["runs"], told(call, "vms", "--all")["vms"], told(call, "costs"))
    assert len(with_it[0]) == len(only_live[0]) + 1
    before = call.json("sources")["position"]
    assert told(call, "sources", "hide", "unreachable") == {"source": "dstack/unreachable", "hidden": True}
    assert (told(call, "ps", "--all")["runs"], told(call, "vms", "--all")["vms"], told(call, "costs")) == only_live
    assert told(call, "ps", "--all", "--hidden")["runs"] == with_it[0]
    assert told(call, "vms", "--all", "--hidden")["vms"] == with_it[1]
    assert told(call, "ps", "--all", "--at", before)["runs"] == with_it[0]
    assert [source["hidden"] for source in told(call, "sources")["sources"]] == [False, True]
    assert "hidden already" in call("sources", "hide", "dstack/unreachable").stdout
    assert told(call, "sources", "show", "unreachable") == {"source": "dstack/unreachable", "hidden": False}
    assert (told(call, "ps", "--all")["runs"], told(call, "vms", "--all")["vms"], told(call, "costs")) == with_it


def test_only_an_archive_is_hidden(call: InProcess, tmp_path: Path) -> None:
    """A live source costs money, so it stays in sight; an unknown name is told."""
    recorded(tmp_path / "record.db", LIVE)
    assert "recorded live" in str(call("sources", "hide", "dstack/unreachable").exception)
    assert "steno sources" in str(call("sources", "hide", "nosuch").exception)


def test_steno_acts_on_nothing_in_an_archive(call: InProcess) -> None:
    """A stop of an open run or machine is refused, and no provider is asked."""
    imported(call, LIVE)
    (vm,) = told(call, "vms", "--all")["vms"]
    assert "part of the archive" in str(call("vms", "stop", vm["vm_id"]).exception)
    assert "part of the archive" in call("explain", vm["vm_id"]).stdout


@pytest.mark.slow
def test_nine_imported_traces_refuse_no_submission(steno: Steno) -> None:
    """A budget of $5.00 takes the same run with and without them, and no threshold is crossed."""
    tight = {"STENO_LOCAL_PRICE": "1.99", "STENO_MAX_VMS": "1", "STENO_IDLE_TIMEOUT": "1", "STENO_BUDGET": "5.00"}
    for trace in NINE:
        assert steno("import", trace).returncode == 0
    done = steno("submit", "--wait", "--max-duration", "10m", "--name", "matmul", "--", "true", **tight)
    assert done.returncode == 0, done.stderr
    types_seen = [json.loads(line)["type"] for line in steno("events", "--json").stdout.splitlines()]
    assert "BudgetCrossed" not in types_seen
    assert float(json.loads(steno("budget", "--json", **tight).stdout)["spent_usd"]) < 0.1


@pytest.mark.ci
@pytest.mark.parametrize("minute", [46, pytest.param(40, marks=pytest.mark.long)])
def test_at_a_time_an_archive_is_where_its_own_clock_was(call: InProcess, tmp_path: Path, minute: int) -> None:
    """No run is listed before its time, whenever its trace was imported; live runs are as the record knew them."""
    recorded(tmp_path / "record.db", LIVE)
    imported(call, *NINE)
    every = {run["run_id"]: run for run in told(call, "ps", "--all")["runs"]}
    time = f"2026-11-20T13:{minute}:00Z"
    then = parse_time(time)
    answer = {run["run_id"]: run for run in told(call, "ps", "--all", "--at", time)["runs"]}
    for trace in (LIVE, *NINE):
        alone = told(call, "replay", trace, "--until", time)
        assert {run["run_id"] for run in alone["runs"]} <= answer.keys(), (time, trace.name)
        for run in alone["runs"]:
            there = answer[run["run_id"]]
            assert (there["state"], there["cost_usd"]) == (run["state"], run["cost_usd"]), (time, trace.name)
    for run_id, run in answer.items():
        assert all(parse_time(step["at"]) <= then for step in run["transitions"]), (time, run["name"])
        assert parse_time(every[run_id]["submitted_at"]) <= then
