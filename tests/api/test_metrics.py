"""Metrics, health and readiness for an operator's tools."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families
from stenotest.waiting import wait

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import replay_record
from steno.engine.state.run import Run
from steno.engine.state.samples import Sample, pack
from steno.engine.state.states import State
from steno.events import types
from steno.events.clock import SECOND, SystemClock
from steno.events.poll import Poll
from steno.events.store.append import Batch
from steno.events.store.record import Record
from steno.projections.api import operations
from steno.projections.api.problems import OTHER

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Serve, Served

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def samples(here: Served) -> Samples:
    """Every sample of a scrape, by name and labels."""
    answer = here.client.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    values: Samples = {}
    for family in text_string_to_metric_families(answer.text):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in values
            values[key] = sample.value
    return values


def of(values: Samples, name: str, **labels: str) -> float:
    """The value of a sample."""
    return values[name, tuple(sorted(labels.items()))]


def writing(path: Path) -> Record:
    """The record, to be written."""
    return Record.open(path, clock=SystemClock(), shapes=READINGS.shape, write=True)


def a_poll(*, answered: bool, took: int = 30_000) -> Poll:
    """A poll of now."""
    now = SystemClock().now()
    return Poll(
        source="dstack/lab",
        path="/api/project/lab/runs/list",
        req=b"{}",
        started_at=now - took,
        observed_at=now,
        status=200 if answered else None,
        error=None if answered else "refused",
        body=b"[]" if answered else None,
        text=False,
        answered=answered,
    )


def test_runs_and_machines_are_those_of_a_replay(served: Serve, town: Path) -> None:
    """By state and reason; the money is that of `steno budget`. Steps are counted from the snapshot: here from none."""
    town.with_name("record.db.snapshot").unlink()
    here = served(town, budget__total="1400")
    values = samples(here)
    with Record.open(town, clock=SystemClock(), shapes=READINGS.shape) as record:
        replay = replay_record(record)
    for run in replay.runs:
        alike = [other for other in replay.runs if (other.state, other.reason) == (run.state, run.reason)]
        reason = "" if run.reason is None else run.reason.value
        assert of(values, "steno_runs", state=run.state.value, reason=reason) == len(alike)
    assert sum(value for (name, _), value in values.items() if name == "steno_runs") == len(replay.runs)
    present = [vm for vm in replay.vms if vm.state.value != "terminated"]
    assert sum(value for (name, _), value in values.items() if name == "steno_machines") == len(present)
    budget = here.client.get("/api/budget").json()
    assert f"{of(values, 'steno_budget_spent_usd'):.6f}" == budget["spent_usd"]
    assert f"{of(values, 'steno_budget_remaining_usd'):.6f}" == budget["remaining_usd"]
    steps = sum(len(run.transitions) for run in replay.runs)
    assert sum(value for (name, _), value in values.items() if name == "steno_run_state_seconds_count") <= steps
    assert of(values, "steno_run_state_seconds_count", state="running") > 0


def test_polls_are_counted_by_source_and_endpoint(served: Serve, town: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long they took, how many had no answer, how long the source was silent."""
    here = served(town)
    samples(here)
    with writing(town) as record:
        record.append_polls([a_poll(answered=True), a_poll(answered=False), a_poll(answered=True)])
    where = {"source": "dstack/lab", "endpoint": "runs/list"}
    wait(lambda: samples(here).get(("steno_poll_duration_seconds_count", tuple(sorted(where.items())))) == 3)
    monkeypatch.setattr("steno.engine.state.sources.STALE_AFTER", 3600 * SECOND)  # however long this takes
    values = samples(here)
    assert of(values, "steno_poll_failures_total", **where) == 1
    assert of(values, "steno_poll_duration_seconds_bucket", **where, le="0.025") == 0
    assert of(values, "steno_poll_duration_seconds_bucket", **where, le="0.05") == 3
    assert of(values, "steno_source_observability", source="dstack/lab", state="fresh") == 1
    assert of(values, "steno_source_observability", source="dstack/lab", state="blind") == 0
    assert of(values, "steno_append_latency_seconds_count") >= 3
    assert of(values, "steno_publish_latency_seconds_count") >= 3


def test_a_gap_counts_as_blind_time(served: Serve, town: Path) -> None:
    """From the last answer to the next."""
    here = served(town)
    samples(here)
    first, last = a_poll(answered=True), a_poll(answered=True)
    at = first.observed_at - 500 * SECOND
    first = Poll(
        **{name: getattr(first, name) for name in first.__struct_fields__} | {"started_at": at - 1, "observed_at": at}
    )
    with writing(town) as record:
        record.append_polls([first, last])
    key = ("steno_source_blind_seconds_total", (("source", "dstack/lab"),))
    wait(lambda: 499 < samples(here).get(key, 0) < 501)


def test_notices_are_counted_from_the_beginning_of_the_record(served: Serve, town: Path) -> None:
    """A notice that was pending before the server started is pending still."""
    with writing(town) as record:
        notices = [types.NoticeIntended(notice_id=name, kind="budget", body=b"{}") for name in ("a", "b", "c")]
        record.append_many([Batch(f"notice/{notice.notice_id}", [notice]) for notice in notices])
        record.append_many([Batch("notice/a", [types.NoticeDelivered(notice_id="a", status=200, attempt=1)])])
    here = served(town)
    assert of(samples(here), "steno_notices_pending") == 2
    with writing(town) as record:
        failed = types.NoticeFailed(notice_id="b", error="no", attempt=9, final=True)
        record.append_many([Batch("notice/b", [failed])])
    wait(lambda: of(samples(here), "steno_notices_pending") == 1)
    values = samples(here)
    assert of(values, "steno_notices_given_up") == 1
    assert of(values, "steno_notice_failures_total", final="true") == 1
    assert of(values, "steno_notices_delivered_total") == 1


def test_requests_are_counted_by_route_never_by_path(served: Serve, town: Path) -> None:
    """Whoever asks for a thousand paths makes no thousand labels."""
    here = served(town)
    for path in ("/api/runs", "/api/runs/a", "/api/runs/b", "/api/nothing/c", "/api/nothing/d", "/%00x"):
        here.client.get(path)
    for path in ("/costs", "/runs/a", "/login", "/assets/x/y.js", "/api/kernels/leaderboard-2", "/api/runs/a/stream"):
        here.client.get(path)
    values = samples(here)
    assert of(values, "steno_http_requests_total", method="GET", route="/api/runs", status="200") == 1
    assert of(values, "steno_http_requests_total", method="GET", route="/api/runs/{id}", status="404") == 2
    assert of(values, "steno_http_request_duration_seconds_count", method="GET", route="/api/runs/{id}") == 2
    assert {dict(labels)["route"] for (name, labels) in values if name == "steno_http_requests_total"} <= {
        "/api/runs", "/api/runs/{id}", OTHER, "/metrics", "/{page}", "/assets/{path}", "/api/kernels/{id}",
        "/api/runs/{id}/stream",
    }  # fmt: skip


def test_names_follow_prometheus(served: Serve, town: Path) -> None:
    """Ours begin with `steno_`; every one is described."""
    text = served(town).client.get("/metrics").text
    families = [
        family for family in text_string_to_metric_families(text) if not family.name.startswith(("process_", "python_"))
    ]
    assert all(
        re.fullmatch(r"steno_[a-z_]+", family.name) and family.documentation.endswith(".") for family in families
    )
    assert len(families) > 30


@pytest.mark.ci
def test_gpus_of_running_runs_are_counted_by_source_and_model(
    served: Serve, empty_record: Path, polls: Callable[[str], tuple[Poll, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As their newest samples say; no id of a run is a label, and there is a bound, beyond which all are `other`."""
    path, running = empty_record, list[Run]()
    for poll in polls("warm_reuse"):
        with writing(path) as record:
            record.append_polls([poll])
            running = [run for run in replay_record(record).runs if run.state is State.RUNNING]
        if running:
            break
    (run,) = running
    here = served(path)
    assert not [name for name, _ in samples(here) if name.startswith("steno_gpu")]
    now = SystemClock().now()
    gpus = [
        Sample(at=now, device="0", use=3, memory=1024),
        Sample(at=now, device="1", use=4),
        Sample(at=now, device=""),
    ]
    old = Sample(at=now - 5 * SECOND, device="0", use=90, memory=1)
    event = types.SamplesRecorded(
        run_id=run.run_id, provider="dstack", provider_id="1", source="dstack", block=pack([old, *gpus])
    )
    with writing(path) as record:
        record.append_many([Batch(run.subject, [event])])
    wait(lambda: any(name == "steno_gpu_runs" for name, _ in samples(here)))
    values = samples(here)
    labels = [dict(labels) for name, labels in values if name.startswith("steno_gpu")]
    assert all(set(pair) == {"source", "gpu"} for pair in labels)
    where = labels[0]
    assert where["source"] == "dstack/warm-reuse"
    for name, value in (
        ("runs", 1), ("low_use_runs", 1), ("devices", 2), ("use_ratio", 0.07), ("memory_used_bytes", 1024 << 20)
    ):  # fmt: skip
        assert of(values, f"steno_gpu_{name}", **where) == pytest.approx(value)
    monkeypatch.setattr(operations, "_KINDS", 0)
    assert of(samples(here), "steno_gpu_runs", source="other", gpu="other") == 1


def test_listeners_are_counted(served: Serve, town: Path) -> None:
    """While they listen."""
    here = served(town)
    with here.client.stream("GET", "/api/stream") as response:
        lines = response.iter_lines()
        assert next(lines) == "retry: 1000"
        assert of(samples(here), "steno_stream_clients") == 1
    wait(lambda: of(samples(here), "steno_stream_clients") == 0)


def test_healthy_and_ready(served: Serve, town: Path) -> None:
    """With where it stands, and the sources."""
    here = served(town)
    assert here.client.get("/healthz").json() == {"status": "ok"}
    wait(lambda: here.client.get("/readyz").status_code == 200)
    ready = here.client.get("/readyz").json()
    assert (ready["status"], ready["reasons"], ready["lag"]["positions"]) == ("ready", [], 0)
    assert ready["position"] == ready["head"] > 0
    assert {source["observability"] for source in ready["sources"]} == {"blind"}


def test_a_record_that_cannot_be_read_is_told_and_the_process_lives(served: Serve, town: Path) -> None:
    """503 with the reason; `/metrics` goes on with what is left."""
    here = served(town)
    wait(lambda: here.client.get("/readyz").status_code == 200)
    for end in ("", "-wal", "-shm"):
        Path(f"{town}{end}").unlink(missing_ok=True)
    wait(lambda: here.client.get("/readyz").status_code == 503)
    wait(lambda: any("replaced" in reason for reason in here.client.get("/readyz").json()["reasons"]))
    assert here.client.get("/healthz").status_code == 200
    assert of(samples(here), "steno_ready") == 0
