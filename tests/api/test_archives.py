"""The service marks archives: they are marked, and neither blind, nor billed on, nor in any budget."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from stenotest.waiting import wait

from steno.cli.wiring.files import trace_reading
from steno.engine.fold.poll_reader import Until
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import replay_record, replay_trace
from steno.events.clock import SECOND, SystemClock, parse_time
from steno.events.poll import Poll
from steno.events.store.record import Batch, Record
from steno.events.traces.trace import import_trace
from steno.events.types import SourceHidden

TRACES = Path(__file__).parent.parent / "traces"
ALL = sorted(TRACES.rglob("*.jsonl.zst"))
LIVE = "several"
NINE = [path for path in ALL if LIVE not in path.name and path.parent.name == "dstack-0.22.5"][:9]
OPEN = "dstack/unreachable"
"""The archive of these at whose end a machine is open."""


def imported(path: Path, traces: list[Path]) -> int:
    """Where the record ends then."""
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        for trace in traces:
            import_trace(record, trace, trace_reading())
        return record.head().position


@pytest.fixture
def record(
    tmp_path: Path, polls: Callable[[str], tuple[Poll, ...]], recorded_again: Callable[[Path, tuple[Poll, ...]], Path]
) -> Path:
    """A record of one live project."""
    own = tuple(msgspec.structs.replace(poll, source=f"dstack/{LIVE}") for poll in polls(LIVE))
    return recorded_again(tmp_path / "record.db", own)


def told(client: httpx.Client, path: str) -> Any:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


def metrics(client: httpx.Client, *but: str) -> dict[str, float]:
    """Every figure about runs, machines, sources and money."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    names = ("steno_runs", "steno_machines", "steno_source", "steno_budget", "steno_spend", "steno_run_oldest")
    return {
        f"{sample.name}{json.dumps(sample.labels, sort_keys=True)}": sample.value
        for family in families
        if family.name.startswith(names) and family.name not in but
        for sample in family.samples
    }


MOVING = ("steno_source_blind_seconds", "steno_budget_exhausted_timestamp_seconds")
"""Counted from now."""


@pytest.fixture(scope="module")
def with_nine(
    served_on: Callable[..., Any],
    tmp_path_factory: pytest.TempPathFactory,
    polls: Callable[[str], tuple[Poll, ...]],
    recorded_again: Callable[[Path, tuple[Poll, ...]], Path],
) -> Any:
    """A service of a live project and the nine archives; tests only read from it."""
    own = tuple(msgspec.structs.replace(poll, source=f"dstack/{LIVE}") for poll in polls(LIVE))
    record = recorded_again(tmp_path_factory.mktemp("nine") / "record.db", own)
    imported(record, NINE)
    return served_on(record)


def test_nine_imported_traces_change_no_figure(served: Callable[..., Any], record: Path) -> None:
    """Overview (what the banner is drawn from), budget, offers and metrics say of a live project what they said."""
    before = served(record, budget__total="5.00")
    pages = {path: told(before.client, path) for path in ("/api/overview", "/api/budget", "/api/offers")}
    figures = metrics(before.client, *MOVING)
    before.stop()
    head = imported(record, NINE)
    after = served(record, budget__total="5.00")
    sources = told(after.client, f"/api/sources?min_position={head}")["sources"]
    assert [row["kind"] for row in sources].count("archive") == len(NINE)
    for path, page in pages.items():
        now = told(after.client, path)
        for changing in ("position", "at", "head", "exhausted_at", "window"):
            now.pop(changing, None)
            page.pop(changing, None)
        for body in (now, page):
            body.get("budget", {}).pop("exhausted_at", None)
            if body.get("burn"):
                body["burn"] = body["burn"][-1]["spent_usd"]
        assert now == page, path
    assert metrics(after.client, *MOVING) == figures


def test_a_bill_is_one_figure_in_every_answer(with_nine: Any) -> None:
    """List, machine, costs, and a replay of the record; of live and imported machines alike."""
    client, record = with_nine.client, with_nine.record
    listed = {vm["vm_id"]: vm for vm in told(client, "/api/vms?limit=100")["vms"]}
    with Record.open(record, shapes=READINGS.shape, clock=SystemClock()) as there:
        replayed = {vm["vm_id"]: vm for vm in replay_record(there).to_json()["vms"]}
    assert listed.keys() == replayed.keys()
    assert {vm_id: {key: listed[vm_id][key] for key in vm} for vm_id, vm in replayed.items()} == replayed
    rows = {row["key"]: row for row in told(client, "/api/costs?by=vm")["rows"]}
    for vm_id, vm in listed.items():
        alone = told(client, f"/api/vms/{vm_id}")
        assert {key: alone[key] for key in replayed[vm_id]} == replayed[vm_id]
        assert rows[vm_id]["total_usd"] == vm["cost_usd"]
        assert rows[vm_id]["archive"] is (vm["source"] != f"dstack/{LIVE}")
        assert vm.get("archive") == (None if vm["source"] == f"dstack/{LIVE}" else vm["source"])
    assert any(vm["intervals"][-1]["to"] is None for vm in listed.values() if "archive" in vm)
    assert told(client, "/api/vms?live=true")["vms"] == [
        vm for vm in listed.values() if "archive" not in vm and vm["intervals"][-1]["to"] is None
    ]


def test_sources_are_listed_and_hidden_ones_are_in_no_list(served: Callable[..., Any], record: Path) -> None:
    """Their runs and machines come back with `hidden=true`."""
    imported(record, NINE)
    with Record.open(record, write=True, shapes=READINGS.shape, clock=SystemClock()) as there:
        there.append_many([Batch(f"source/{OPEN}", (SourceHidden(source=OPEN, by="ada"),))])
    client = served(record).client
    sources = {row["source"]: row for row in told(client, "/api/sources")["sources"]}
    assert {name for name, row in sources.items() if row["kind"] == "live"} == {f"dstack/{LIVE}"}
    assert [name for name, row in sources.items() if row["hidden"]] == [OPEN]
    for path, key in (("/api/runs?limit=100", "runs"), ("/api/vms?limit=100", "vms")):
        listed, all_of_them = told(client, path)[key], told(client, f"{path}&hidden=true")[key]
        assert {each.get("archive") for each in all_of_them} - {item.get("archive") for item in listed} == {OPEN}
    assert not any(row["key"] == OPEN for row in told(client, "/api/costs?by=vm")["rows"])


def test_no_stop_reaches_an_archive(with_nine: Any) -> None:
    """409, and the record has no request."""
    service = with_nine
    (vm,) = [vm for vm in told(service.client, "/api/vms?limit=100")["vms"] if vm.get("archive") == OPEN]
    answer = service.client.post(f"/api/vms/{vm['vm_id']}/stop", json={})
    assert answer.status_code == 409, answer.text
    assert "part of the archive" in answer.json()["detail"]
    assert not told(service.client, "/api/events?type=VmStopRequested")["events"]


@pytest.mark.parametrize("minute", [48, *(pytest.param(minute, marks=pytest.mark.long) for minute in (39, 41, 43, 54))])
def test_a_moment_shows_archives_by_their_own_clocks(with_nine: Any, minute: int) -> None:
    """Each run as a replay of its own trace has it up to then, whenever it was imported; none before its time."""
    time = f"2026-11-20T13:{minute}:30Z"
    until = Until(at=parse_time(time))
    listed = {run["run_id"]: run for run in told(with_nine.client, f"/api/runs?limit=100&at={time}")["runs"]}
    expected = {}
    for trace in [*NINE, *(path for path in ALL if path.parent.name == "dstack-0.22.5" and LIVE in path.name)]:
        for run in replay_trace(trace, until=until).to_json()["runs"]:
            expected[run["run_id"]] = (run["state"], run["reason"], run["cost_usd"])
    assert {run_id: (run["state"], run["reason"], run["cost_usd"]) for run_id, run in listed.items()} == expected


@pytest.mark.ci
def test_the_dashboard_marks_archives_and_calls_none_blind(
    served: Callable[..., Any], tmp_path: Path, see: Callable[..., Any]
) -> None:
    """Lists, costs and the machine's page; nothing on the banner; no button stops what was imported."""
    path = tmp_path / "imported.db"
    imported(path, [path for path in NINE if path.name.startswith(("success", OPEN.partition("/")[2]))])
    here = served(path)
    seen = see(here.url)
    page = seen.go("/")
    assert "blind" not in page.locator(".strip").inner_text()
    assert page.get_by_role("heading", name="Recently ended").count() == 0, "no live run has ended"
    for place in ("/runs", "/machines", "/costs?by=vm", "/costs?by=run"):
        seen.go(place)
        assert page.locator("td", has_text="archive").count() > 0, place
    vm = next(vm for vm in told(here.client, "/api/vms?limit=100")["vms"] if vm["archive"] == OPEN)
    seen.go(f"/machines/{vm['vm_id']}")
    assert "up, to the last poll" in page.locator("#page").inner_text()
    assert page.get_by_role("button", name="Stop").count() == 0
    assert seen.complaints == []


@pytest.mark.ci
def test_the_dashboard_shows_a_bill_as_it_grows(
    served: Callable[..., Any],
    tmp_path: Path,
    see: Callable[..., Any],
    polls: Callable[[str], tuple[Poll, ...]],
    recorded_again: Callable[[Path, tuple[Poll, ...]], Path],
) -> None:
    """An unchanged poll raises a machine's bill without a stream message: the page reads the bill again."""
    source = tuple(msgspec.structs.replace(poll, source=OPEN) for poll in polls("unreachable"))
    path = recorded_again(tmp_path / "live.db", source)
    here = served(path)
    (vm,) = told(here.client, "/api/vms")["vms"]
    assert vm["intervals"][-1]["to"] is None
    seen = see(here.url)
    for place in ("/machines", f"/machines/{vm['vm_id']}"):
        page = seen.go(place)
        before = page.locator("#page").inner_text()
        costs = re.findall(r"\$[0-9.]+", before)
        last = max(poll.observed_at for poll in source) + 1800 * SECOND
        quiet = msgspec.structs.replace(source[-1], started_at=last, observed_at=last)
        recorded_again(path, (quiet,))
        seen.until(f"JSON.stringify(document.querySelector('#page').innerText.match(/\\$[0-9.]+/g)) != {dumped(costs)}")
        source = (*source, quiet)


def dumped(costs: list[str]) -> str:
    """Their `JSON.stringify` as a literal."""
    return json.dumps(json.dumps(costs, separators=(",", ":")))


def test_traces_imported_beside_a_service_are_in_no_counter(served: Callable[..., Any], record: Path) -> None:
    """They did not happen now: no failed poll, no latency, no anomaly and no gap that an alert rule would fire on."""
    here = served(record)
    names = ("steno_poll", "steno_anomalies", "steno_append", "steno_run_state", "steno_source_blind")

    def counted() -> dict[str, float]:
        families = text_string_to_metric_families(here.client.get("/metrics").text)
        return {
            f"{sample.name}{json.dumps(sample.labels, sort_keys=True)}": sample.value
            for family in families
            if family.name.startswith(names)
            for sample in family.samples
            if not sample.name.endswith("_created") and LIVE not in sample.labels.get("source", "")
        }

    before = counted()
    head = imported(record, NINE)
    assert len(told(here.client, f"/api/sources?min_position={head}")["sources"]) > len(NINE)
    wait(lambda: "steno_stream_lag_positions 0.0" in here.client.get("/metrics").text, what="the feed")
    assert counted() == before
