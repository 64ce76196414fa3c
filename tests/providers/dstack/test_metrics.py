"""Samples as a dstack server gives them: of the run, and of each of its jobs."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from steno.engine.providers.dstack.client import Client, HttpAnswer
from steno.engine.providers.dstack.metrics import read_samples
from steno.engine.providers.dstack.provider import DstackProvider
from steno.engine.providers.dstack.settings import address
from steno.engine.state.samples import TASK, Sample
from steno.events.clock import SECOND, RandomIds, SystemClock, format_time, parse_time

AT = parse_time("2026-11-29T12:00:00Z")
GIB = 1 << 30


def metric(name: str, *values: object, first: int = AT) -> dict[str, Any]:
    """As the server gives them, the newest first."""
    times = [format_time(first - number * 10 * SECOND) for number in range(len(values))]
    return {"name": name, "timestamps": times, "values": list(values)}


def answer(*metrics: dict[str, Any]) -> dict[str, Any]:
    return {"metrics": list(metrics)}


WHOLE = answer(
    metric("cpu_usage_percent", 250, 100),
    metric("memory_working_set_bytes", 2 * GIB, GIB),
    metric("memory_total_bytes", 64 * GIB, 64 * GIB),
    metric("gpu_memory_total_bytes", 192 * GIB, 192 * GIB),
    metric("gpu_memory_usage_bytes_gpu0", 8 * GIB, 7 * GIB),
    metric("gpu_util_percent_gpu0", 90, 80),
)


def by_device(samples: list[Sample]) -> dict[tuple[str, int], Sample]:
    return {(sample.device, (sample.at - AT) // SECOND): sample for sample in samples}


def test_the_samples_of_a_job() -> None:
    """GPUs, and the processes together in percent of one core and resident memory."""
    samples = by_device(read_samples([WHOLE]))
    assert samples == {
        (TASK, 0): Sample(at=AT, device=TASK, use=250, memory=2048, memory_total=65536),
        (TASK, -10): Sample(at=AT - 10 * SECOND, device=TASK, use=100, memory=1024, memory_total=65536),
        ("0", 0): Sample(at=AT, device="0", use=90, memory=8192, memory_total=196608),
        ("0", -10): Sample(at=AT - 10 * SECOND, device="0", use=80, memory=7168, memory_total=196608),
    }


def test_the_samples_of_several_jobs() -> None:
    """Each GPU by its machine; the processes of all machines together, where each has a sample of the same ten seconds:
    a sum of some would look like less work.
    """
    later = answer(
        metric("cpu_usage_percent", 50, first=AT + SECOND),
        metric("memory_working_set_bytes", GIB, GIB, first=AT + SECOND),
        metric("gpu_util_percent_gpu1", 10, first=AT + SECOND),
    )
    samples = by_device(read_samples([WHOLE, later]))
    assert samples[TASK, 0] == Sample(at=AT, device=TASK, use=300, memory=3072)
    assert samples[TASK, -10] == Sample(at=AT - 10 * SECOND, device=TASK, memory=2048)
    assert {device for device, _ in samples} == {TASK, "0:0", "1:1"}
    assert samples["1:1", 1] == Sample(at=AT + SECOND, device="1:1", use=10)


class Server:
    """Answers as a server with these jobs (replica, job) would, and keeps what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *jobs: tuple[int, int], firing: str = "") -> None:
        self.runs, self.metrics = 0, list[dict[str, str]]()
        submissions = [{"id": f"s{number}", "submission_num": number, "status": "done"} for number in (0, 1)]
        specs = [{"replica_num": replica, "job_num": job} for replica, job in jobs]
        configuration = {"type": "task", "schedule": {"cron": ["0 0 * * *"]}} if firing else {"type": "task"}
        run = {
            "id": "r1",
            "status": "running",
            "run_spec": {"run_name": "name", "configuration": configuration},
            "jobs": [{"job_spec": spec, "job_submissions": submissions} for spec in specs],
        }

        def ask(_client: Client, _path: str, _body: object = None, **_: object) -> HttpAnswer:
            self.runs += 1
            return _http(run)

        def get(_client: Client, path: str, query: Mapping[str, str]) -> HttpAnswer:
            assert path == "/api/project/main/metrics/job/name"
            self.metrics.append(dict(query))
            return _http(WHOLE)

        monkeypatch.setattr(Client, "ask", ask)
        monkeypatch.setattr(Client, "get", get)
        where = address("http://127.0.0.1:1", "a-token-that-is-long", "main")
        self.provider = DstackProvider(where, clock=SystemClock(), ids=RandomIds())

    def devices(self, provider_id: str = "r1", since: int = 0) -> set[str]:
        tool, samples = self.provider.samples(provider_id, "name", since=since)
        assert tool == "dstack"
        return {sample.device for sample in samples}


def _http(content: object) -> HttpAnswer:
    return HttpAnswer(started_at=0, observed_at=AT, status=200, body=json.dumps(content).encode())


def test_a_run_is_asked_by_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later run can have its name. Each job is asked for all after the newest sample known; they are listed once."""
    server = Server(monkeypatch, (0, 1), (0, 0))
    assert server.devices() == server.devices(since=AT) == {TASK, "0:0", "1:0"}
    assert [query.get("after") for query in server.metrics] == [None, None, format_time(AT), format_time(AT)]
    assert [query["job_num"] for query in server.metrics] == ["0", "1", "0", "1"]
    assert {(query["run_id"], query["limit"]) for query in server.metrics} == {("r1", "10000")}
    assert server.runs == 1


@pytest.mark.parametrize(("provider_id", "devices"), [("r1#1", {TASK, "0"}), ("r1#0", set())])
def test_a_firing_gets_no_samples_of_a_later_one(
    monkeypatch: pytest.MonkeyPatch, provider_id: str, devices: set[str]
) -> None:
    """The server gives those of the newest submission only."""
    assert Server(monkeypatch, (0, 0), firing="daily").devices(provider_id) == devices
