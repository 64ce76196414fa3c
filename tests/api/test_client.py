"""The Python client, sync and async, against the real service and a real recorder."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import anyio
import msgspec
import pytest
from stenotest.waiting import wait

from steno.projections.client import (
    AsyncStenoClient,
    Refused,
    StenoClient,
    Unreachable,
    budget,
    costs,
    explain,
    like,
    machine,
    machines,
    objects,
    run,
    runs,
    spend,
    starts,
    stop,
    stop_machine,
    submit,
    utilisation,
)

if TYPE_CHECKING:
    from conftest import Serve
    from stenolab.steno import Steno

pytestmark = pytest.mark.slow

ANSWERS = {
    objects.RunInfo: "RunAnswer",
    objects.RanInfo: "RanObject",
    objects.MachineInfo: "VmObject",
    objects.PhaseInfo: "IntervalObject",
    objects.CostInfo: "CostAnswer",
    objects.CostRowInfo: "CostRow",
    objects.BudgetInfo: "BudgetAnswerAnswer",
    objects.SpendInfo: "SpendAnswer",
    objects.SeriesInfo: "Series",
    objects.UseInfo: "UtilisationAnswer",
    objects.StripInfo: "UseStrip",
    objects.StartsInfo: "StartsAnswer",
    objects.StartFiguresInfo: "StartFigures",
    objects.BucketInfo: "StartBucket",
    objects.LikeInfo: "LikeAnswer",
    objects.PartInfo: "LikeSpan",
    objects.ChangeInfo: "StreamMessage",
    objects.AcceptedInfo: "RunAccepted",
    objects.StopInfo: "RunStop",
}


@pytest.fixture(scope="module")
def here(served_on: Serve, towns: Path) -> str:
    return served_on(towns).url


@pytest.fixture
def steno_here(here: str) -> Iterator[StenoClient]:
    with StenoClient(here) as client:
        yield client


def test_every_field_is_one_that_the_service_answers(steno_here: StenoClient) -> None:
    """By name, and whether it may be null."""
    document: dict[str, Any] = steno_here._http.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    for ours, theirs in ANSWERS.items():
        properties = schemas[theirs]["properties"]
        for field in msgspec.structs.fields(ours):
            assert field.encode_name in properties, (theirs, field.encode_name)
            may_be_null = "null" in str(properties[field.encode_name])
            assert not may_be_null or type(None) in getattr(field.type, "__args__", ()), (theirs, field.name)


def test_lists_come_whole_and_typed(steno_here: StenoClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Page by page, with the filters of the API; money is exact."""
    monkeypatch.setattr("steno.projections.client.attempts._PAGE", 2)
    every = list(steno_here.each(runs()))
    assert len({item.run_id for item in every}) == len(every) > 4
    failed = list(steno_here.each(runs(state="failed", order="oldest")))
    assert {each.run_id for each in failed} == {item.run_id for item in every if item.state == "failed"}
    paid = next(item for item in every if item.cost_usd)
    assert steno_here.ask(run(paid.run_id)) == paid
    assert isinstance(paid.cost_usd, Decimal)
    assert paid.submitted_at is not None
    assert paid.submitted_at.tzinfo is not None
    assert steno_here.ask(explain(paid.run_id))["run"]["run_id"] == paid.run_id
    rented = list(steno_here.each(machines()))
    assert steno_here.ask(machine(rented[0].vm_id)).intervals == rented[0].intervals
    report = steno_here.ask(costs("run"))
    assert sum(row.total_usd for row in report.rows) == report.total.total_usd
    assert steno_here.ask(budget()).spent_usd >= 0
    then = steno_here.ask(run(paid.run_id, at=paid.evidence[-1] - 1))
    assert not then.ended


def test_charts_are_typed(steno_here: StenoClient) -> None:
    """Their days in a range, and their money exactly."""
    since, until = "2025-11-01", datetime(2026, 12, 31, tzinfo=UTC)
    total = steno_here.ask(costs()).total.total_usd
    for by in ("line", "gpu", "user"):
        chart = steno_here.ask(spend(by, since=since, until=until))
        assert sum(sum(series.daily) for series in chart.series) == sum(chart.daily) == chart.total_usd == total > 0
    use = steno_here.ask(utilisation("vm", since=since, until=until))
    assert {strip.key for strip in use.strips} == {item.vm_id for item in steno_here.each(machines())}
    assert sum(billed for billed, _ in use.total.days) == pytest.approx(use.total.billed_seconds)
    kinds = steno_here.ask(starts(since=since, until=until))
    assert kinds.cold.count == sum(bucket.cold for bucket in kinds.buckets) > 0
    beside = steno_here.ask(like("ok-run"))
    assert (beside.name, beside.runs, beside.median_cost_usd) == ("ok-run", 0, None)
    assert isinstance(beside.cost_usd, Decimal)
    with pytest.raises(Refused, match="since"):
        steno_here.ask(spend(since=until, until=since))


def test_a_refusal_says_why_and_silence_ends(steno_here: StenoClient) -> None:
    """A problem of the service is raised with its status and field; a service that is not there, after `patience`."""
    with pytest.raises(Refused, match="nobody") as refused:
        steno_here.ask(run("nobody"))
    assert refused.value.status == 404
    with pytest.raises(Refused, match="sort") as wrong:
        list(steno_here.each(runs(sort="size")))  # type: ignore[typeddict-item]
    assert (wrong.value.status, wrong.value.field) == (400, "sort")
    with pytest.raises(Refused):
        list(steno_here.logs("nobody"))
    with pytest.raises(Refused):
        next(steno_here.changes("nobody"))
    with StenoClient("http://127.0.0.1:9", patience=0.5) as nowhere:
        for ask in (lambda: nowhere.ask(budget()), lambda: next(nowhere.changes())):
            with pytest.raises(Unreachable, match="does not answer"):
                ask()


class Quiet(BaseHTTPRequestHandler):
    """A stream that is silent at first and ends; the second has a change at once."""

    silent: ClassVar = [0.6, 0.0]  # seconds

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        seconds = self.silent.pop(0)
        time.sleep(seconds)
        if not seconds:
            change = b'{"position": 1, "event": "x", "stream": "run/x", "at": "2026-11-20T15:00:00Z"}'
            self.wfile.write(b"id: 1-00000000\ndata: " + change + b"\n\n")

    def log_message(self, *_: object) -> None:
        """Nothing."""


def test_a_stream_that_was_silent_and_ends_is_resumed() -> None:
    """The service was there until its end, so `patience` counts from then."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with StenoClient(f"http://127.0.0.1:{server.server_port}", patience=0.5) as client:
            assert next(client.changes()).position == 1
        server.shutdown()


@pytest.fixture
def up(steno: Steno) -> str:
    running = steno.up("--port", "0", STENO_LOCAL_PRICE="1.99")
    match = re.search(r"serving (http://\S+) ", running.out)
    assert match is not None, running.out
    return match[1]


def assert_ended_alike(later: objects.RunInfo, ended: objects.RunInfo) -> None:
    """Alike in all but the cost: the next answer about its machine may lower it, and never raises it."""
    assert later.cost_usd is not None
    assert ended.cost_usd is not None
    assert 0 < later.cost_usd <= ended.cost_usd
    assert msgspec.structs.replace(later, cost_usd=ended.cost_usd) == ended


def test_a_run_from_submission_to_its_output(up: str, tmp_path: Path) -> None:
    """Sync and async: submitted once by its key, followed, stopped, its output read; changes resume at a position."""
    go = tmp_path / "go"
    task = [f"while [ ! -e {go} ]; do sleep 0.05; done", "echo done"]
    with StenoClient(up) as client:
        request = submit(task, name="ours", idempotency_key="once")
        accepted = client.ask(request)
        assert client.ask(request) == accepted
        seen = next(
            change
            for change in client.changes(accepted.run_id, after=0)
            if change.run and change.run.state == "running"
        )
        go.touch()
        ended = client.wait(accepted.run_id)
        assert (ended.state, ended.reason, ended.exit_status) == ("succeeded", "exit_zero", 0)
        assert_ended_alike(client.wait(accepted.run_id), ended)
        wait(lambda: client.wait(accepted.run_id) == client.ask(run("ours")), what="the same run, its cost included")
        assert "".join(client.logs("ours", follow=True)) == "done\n"
        later = next(client.changes(after=seen.position))
        assert later.position > seen.position
        assert client.ask(stop("ours")).asked is False

    async def through() -> None:
        async with AsyncStenoClient(up) as client:
            accepted = await client.ask(submit({"type": "task", "commands": ["sleep 600"]}))
            async for change in client.changes(accepted.run_id, after=accepted.position - 1):
                if change.run is not None and change.run.state == "running":
                    break
            assert (await client.ask(stop(accepted.run_id, abort=True))).asked
            ended = await client.wait(accepted.run_id)
            assert ended.state == "stopped"
            (listed,) = [item async for item in client.each(runs(state="stopped"))]
            assert_ended_alike(listed, ended)
            assert [piece async for piece in client.logs(accepted.run_id)] == []
            some = [item async for item in client.each(machines())]
            await client.ask(stop_machine(some[0].vm_id, when_idle=True))
            with pytest.raises(Refused):
                await client.ask(run("nobody"))
        async with AsyncStenoClient("http://127.0.0.1:9", patience=0.3) as nowhere:
            with pytest.raises(Unreachable):
                await nowhere.ask(budget())

    anyio.run(through)
