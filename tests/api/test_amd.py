"""The first site's front end against the real service, a real recorder and real compilers on this machine."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import pytest
from httpx_sse import connect_sse
from stenotest import steno_process
from stenotest.command_line import VARIABLES
from stenotest.kernels import AT_ONCE, DOING, SHIPPED, asked, briefly
from stenotest.waiting import LIMIT_S

from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.projections.client import Refused
from steno.projections.client.kernels import follow_hip_kernel, get_orchestrator_metrics, submit_hip_kernel

if TYPE_CHECKING:
    from conftest import Serve

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("amd"),
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler: apt-get install g++"),
]

Item = dict[str, Any]
SUBMIT = "/api/amd/submit"
FIXED = (
    "position", "status", "message", "run_id", "name", "at", "elapsed_seconds", "vm_state", "cost_usd", "vm_metrics",
    "final",
)  # fmt: skip
METRICS = [
    "total_cost_usd",
    "remaining_credits_usd",
    "credits_used_pct",
    "tasks_completed",
    "cold_starts",
    "warm_reuses",
    "active_vms",
]
PRICED = {"STENO_LOCAL_PRICE": "1.99", "STENO_LOCAL_GPU": "MI300X", "STENO_LOCAL_BOOT": "12", "STENO_MAX_VMS": "1"}
"""This machine as one MI300X at $1.99 an hour; it boots once, for longer than any poll of it takes."""
BAD = SHIPPED["vector-add"].example.replace("a[i] + b[i]", "a[i] - b[i]")


@dataclass
class Site:
    """A record and the recorder that acts on it."""

    record: Path
    environment: dict[str, str]

    def steno(self, *words: str) -> str:
        """The output of a `steno` command."""
        return steno_process.run([*words, "--record", str(self.record)], env=self.environment, check=True).stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """`steno record` as a process of its own, for all tests here."""
    folder = tmp_path_factory.mktemp("site")
    record = folder / "record.db"
    with Record.open(record, write=True, create=True, clock=SystemClock()):
        pass
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", **PRICED}
    words = ["up", "--record", str(record)]
    options = {"program": AT_ONCE, "env": environment | VARIABLES, "cwd": folder, "stdout": subprocess.DEVNULL}
    with steno_process.Popen(words, **options) as up:
        try:
            yield Site(record, environment)
            up.terminate()
            up.wait(LIMIT_S)
        finally:
            up.kill()


@dataclass
class Gate:
    """A kernel that goes on when it is told to, or after five minutes."""

    path: Path

    @property
    def source(self) -> str:
        """A right answer to vector-add."""
        return DOING % f'system("for i in $(seq 3000); do [ -e {self.path} ] && break; sleep 0.1; done");'

    def open(self) -> None:
        """Let it go on."""
        self.path.touch()


@pytest.fixture
def gate() -> Iterator[Gate]:
    """It is open when the test has ended: the next one needs the machine. A kernel's own user can look for it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        made = Gate(Path(folder) / "go")
        yield made
        made.open()


def shown(url: str, path: str, least: int = 0) -> Any:
    """The answer of the service, once it shows that position."""
    with httpx.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as client:
        assert client.get("/api/runs", params={"min_position": least}).status_code == 200
        answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def url(site: Site, served: Serve) -> str:
    """Where the service of that record is, in this process."""
    return served(
        site.record, kernel__unsafe_local="true", local__price="1.99", local__gpu="MI300X", api__submit_rate="off"
    ).url


@contextmanager
def streaming(url: str, method: str = "POST", path: str = SUBMIT, **more: Any) -> Iterator[Iterator[Item]]:
    """The statuses of a kernel as they arrive."""
    with (
        httpx.Client(base_url=url, timeout=LIMIT_S, trust_env=False) as client,
        connect_sse(client, method, path, **more) as source,
    ):
        assert source.response.status_code == 200, source.response.read()
        yield (event.json() for event in source.iter_sse() if event.data)


def posted(url: str, body: Item, **headers: str) -> list[Item]:
    """Every status of a kernel."""
    with streaming(url, json=body, headers=headers) as items:
        return list(items)


def resumed(url: str, run_id: str, after: int | None = None) -> list[Item]:
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    with streaming(url, "GET", f"/api/amd/runs/{run_id}/stream", headers=headers) as items:
        return list(items)


@contextmanager
def refused(url: str, body: Item | bytes, **headers: str) -> Iterator[Item]:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
    answer = httpx.post(f"{url}/api/amd/submit", content=content, headers=headers, trust_env=False, timeout=LIMIT_S)
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    yield answer.json()


def statuses(items: list[Item]) -> list[str]:
    return [item["status"] for item in items]


def seeds_request(host: str) -> bytes:
    """The fetch of the seeds as a browser's JavaScript outside a page sends it, byte for byte."""
    body = json.dumps(
        {
            "solution_code": SHIPPED["matmul"].example,
            "problem": "matmul",
            "problem_def": briefly("matmul", M=64, N=64, K=64),
            "gpu_type": "MI300X",
            "dtype": "float32",
            "language": "hip",
            "endpoint": "benchmark",
        },
        separators=(",", ":"),
    ).encode()
    lines = (
        "POST /api/amd/submit HTTP/1.1",
        f"host: {host}",
        "connection: keep-alive",
        "Content-Type: application/json",
        "accept: */*",
        "accept-language: *",
        "sec-fetch-mode: cors",
        "user-agent: node",
        "accept-encoding: gzip, deflate",
        f"content-length: {len(body)}",
    )
    return "\r\n".join([*lines, "", ""]).encode() + body


def by_socket(url: str, request: bytes) -> tuple[http.client.HTTPResponse, bytes]:
    at = urlsplit(url)
    with closing(socket.create_connection((at.hostname, at.port or 80), timeout=LIMIT_S)) as raw:
        raw.sendall(request)
        answer = http.client.HTTPResponse(raw)
        answer.begin()
        return answer, answer.read()


def test_the_seeds_request_byte_for_byte_cold_then_warm(url: str, site: Site) -> None:
    """No token, their headers, their payload: the statuses of their timelines, up to their final message."""
    answer, body = by_socket(url, seeds_request(urlsplit(url).netloc))
    assert (answer.status, answer.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
    events = [block.split("\n") for block in body.decode().split("\n\n") if block.startswith("id: ")]
    cold = [json.loads(data.removeprefix("data: ")) for _, data in events]
    ids = [int(first.removeprefix("id: ").partition("-")[0]) for first, _ in events]
    assert ids == [item["position"] for item in cold]
    assert statuses(cold) == [
        "IN_QUEUE",
        "PROVISIONING",
        "COMPILING",
        "CHECKING",
        *["TEST_RESULT"] * 3,
        "CHECKED",
        "BENCHMARKING",
        "BENCHMARK_RESULT",
        "BENCHMARKED",
    ]
    assert all(tuple(item)[: len(FIXED)] == FIXED for item in cold)
    assert [item["position"] for item in cold] == sorted({item["position"] for item in cold})
    assert (cold[0]["vm_state"], cold[-1]["vm_state"]) == (None, "COLD_START")
    assert cold[-1]["message"] == "Benchmark completed successfully"
    assert (cold[-1]["reason"], cold[-1]["exit_status"], cold[-1]["final"]) == ("exit_zero", 0, True)
    assert cold[-1]["vm_metrics"]["price_usd_per_hour"] == 1.99
    assert cold[-1]["cost_usd"] > 0
    assert cold[-1]["elapsed_seconds"] > cold[2]["elapsed_seconds"] > 0

    warm = posted(url, asked(endpoint="checker"))  # its process may be seen before it has begun: "PROVISIONING"
    assert statuses(warm)[statuses(warm).index("COMPILING") :] == statuses(cold)[2:8]
    assert (warm[-1]["status"], warm[-1]["vm_state"]) == ("CHECKED", "WARM_REUSE")
    assert warm[-1]["vm_metrics"]["vm_id"] == cold[-1]["vm_metrics"]["vm_id"]

    figures = shown(url, "/api/amd/metrics", warm[-1]["position"])
    assert list(figures) == METRICS
    printed = json.loads(site.steno("metrics", "--json"))
    go_on = {"total_cost_usd": 0, "remaining_credits_usd": 0, "credits_used_pct": 0}
    assert figures | go_on == printed | go_on
    assert figures["tasks_completed"] == figures["cold_starts"] + figures["warm_reuses"] >= 2
    assert get_orchestrator_metrics(base_url=url).keys() == figures.keys()


@pytest.mark.ci
@pytest.mark.parametrize(
    ("source", "status", "reason"),
    [
        ("int nothing;", "COMPILE_ERROR", "compile_error"),
        (BAD, "WRONG_ANSWER", "wrong_answer"),
        pytest.param(DOING % "abort();", "RUNTIME_ERROR", "runtime_error", marks=pytest.mark.long),
    ],
)
def test_a_failure_ends_in_what_was_wrong(url: str, source: str, status: str, reason: str) -> None:
    """The run failed, its reason is the task's own, and the last status is the same."""
    items = posted(url, asked(solution_code=source))
    assert statuses(items)[-1] == status
    assert items[-1]["reason"] == reason
    assert items[-1]["message"]
    run = shown(url, f"/api/runs/{items[0]['run_id']}", items[-1]["position"])
    assert (run["state"], run["reason"]) == ("failed", reason)
    assert shown(url, f"/api/runs/{items[0]['run_id']}/explain")


@pytest.mark.ci
def test_a_check_ends_checked_and_can_be_taken_up_anywhere(site: Site, served: Serve, url: str) -> None:
    """From every position of the story comes the rest of it, the same after a restart of the service. The same key is
    the same kernel, however often it comes; with another body it is refused.
    """
    body, key = asked(endpoint="checker"), "key-of-a-front-end"
    whole = posted(url, body, **{"Idempotency-Key": key})
    assert statuses(whole)[-1] == "CHECKED"
    assert "BENCHMARKING" not in statuses(whole)
    run_id, again = whole[0]["run_id"], served(site.record, kernel__unsafe_local="true").url
    story = [(item["position"], item["status"], item["message"]) for item in whole]
    for where in (url, again):
        assert [(item["position"], item["status"], item["message"]) for item in resumed(where, run_id)] == story
        for index in (0, len(whole) // 2, len(whole) - 1):
            rest = resumed(where, run_id, whole[index]["position"])
            assert [item["position"] for item in rest] == [position for position, *_ in story[index + 1 :]]
    for answered in (resumed(url, whole[0]["name"]), posted(url, body, **{"Idempotency-Key": key})):
        assert [item["position"] for item in answered] == [position for position, *_ in story]
    with refused(url, asked(endpoint="benchmark"), Idempotency_Key=key) as problem:
        assert problem["status"] == 409


def test_nobody_who_reads_the_record_reads_a_solution(url: str, site: Site) -> None:
    """It is a secret of its request: kept until the provider has it, then gone; frames do not repeat it."""
    source = "// nobody else's business 7f3a\n" + SHIPPED["vector-add"].example
    posted(url, asked(solution_code=source, endpoint="checker"))
    for path in site.record.parent.glob("record.db*"):
        if path.is_file():
            assert b"nobody else's business" not in path.read_bytes()


def test_a_second_kernel_waits_in_the_queue_and_says_why(url: str, gate: Gate) -> None:
    """Only one machine is allowed: the second kernel waits for its turn, then takes over the warm machine."""
    with streaming(url, json=asked(solution_code=gate.source, endpoint="checker")) as before:
        first = [next(before)]  # it is submitted
        with streaming(url, json=asked(endpoint="checker")) as items:
            second = []
            for item in items:
                second.append(item)
                if item.get("why") == "cap":
                    gate.open()
        first += before
    assert (first[-1]["status"], second[-1]["status"]) == ("CHECKED", "CHECKED")
    held = [item for item in second if item.get("why") == "cap"]
    assert held, [(item["position"], item["status"], item["message"]) for item in second]
    assert held[0]["status"] == "IN_QUEUE"
    assert second[-1]["vm_state"] == "WARM_REUSE"


@pytest.mark.ci
@pytest.mark.parametrize(("cancels", "ends"), [("false", "CHECKED"), ("true", "ERROR")])
def test_closing_the_stream_stops_a_kernel_only_if_so_set(
    site: Site, served: Serve, gate: Gate, cancels: str, ends: str
) -> None:
    """By default a front end that goes away takes nothing with it; what happened to it can be asked later."""
    url = served(site.record, kernel__unsafe_local="true", local__price="1.99", kernel__cancel_on_close=cancels).url
    with streaming(url, json=asked(solution_code=gate.source, endpoint="checker")) as statuses_so_far:
        first = next(statuses_so_far)
    if cancels == "false":
        gate.open()
    items = resumed(url, first["run_id"])
    assert statuses(items)[-1] == ends
    if cancels == "true":
        assert items[-1]["reason"] == "stopped_by_user"


def test_a_stop_of_the_run_ends_its_story(url: str, gate: Gate) -> None:
    """POST …/stop is there for whoever wants to cancel."""
    with streaming(url, json=asked(solution_code=gate.source, endpoint="checker")) as items:
        stopped = httpx.post(f"{url}/api/runs/{next(items)['run_id']}/stop", timeout=LIMIT_S, trust_env=False)
        assert stopped.status_code == 202
        *_, last = items
    assert (last["status"], last["reason"], last["message"]) == ("ERROR", "stopped_by_user", "stopped by a user")


@pytest.mark.ci
def test_the_client_comes_back_by_itself(site: Site, served: Serve, gate: Gate, a_port: str) -> None:
    """Its service is restarted in the middle, at the same address: every status is given once, in order."""
    first = served(site.record, kernel__unsafe_local="true", local__price="1.99", api__port=a_port)
    items: list[Item] = []
    statuses_of = submit_hip_kernel(gate.source, "vector-add", endpoint="checker", base_url=first.url)
    items.append(next(statuses_of))
    first.stop()
    served(site.record, kernel__unsafe_local="true", local__price="1.99", api__port=a_port)
    gate.open()
    items.extend(statuses_of)
    assert statuses(items)[-1] == "CHECKED"
    again = list(follow_hip_kernel(items[0]["run_id"], base_url=first.url))
    assert [item["position"] for item in items] == [item["position"] for item in again]


def test_the_client_says_what_was_refused(url: str) -> None:
    """With the field, as the service names it."""
    with pytest.raises(Refused) as error:
        next(submit_hip_kernel("int x;", "nothing-like-it", base_url=url))
    assert (error.value.status, error.value.field) == (422, "problem")


def test_a_budget_that_cannot_bear_it_refuses_before_anything(site: Site, served: Serve) -> None:
    """A problem, no stream: nothing is in the record."""
    # A record of its own: the policy in force of the other one is its recorder's.
    record = site.record.with_name("poor.db")
    with Record.open(record, write=True, create=True, clock=SystemClock()):
        pass
    poor = served(
        record, kernel__unsafe_local="true", local__price="1.99", local__gpu="MI300X", budget__total="0.01"
    ).url
    with refused(poor, asked()) as problem:
        assert problem["status"] == 403
    assert shown(poor, "/api/runs")["runs"] == []
