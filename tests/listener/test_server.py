"""The listener: a task over HTTP into real containers and back; what is lost on the way is asked again."""

from __future__ import annotations

import gc
import json
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from stenotest.kernels import ADDITION, PATIENT, briefly, submission
from stenotest.listeners import SLEEPING, TOKEN, Machine, job, listening
from stenotest.waiting import wait

from steno.engine.kernel.executor import job_of
from steno.engine.listener.server import LARGEST, ListenerServer

if TYPE_CHECKING:
    from conftest import Make
    from stenolab.docker import MortalEngine

    from steno.engine.listener.sandbox import Containers

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("docker")]

READY = 2  # containers started ahead of need
ENDLESS = 'extern "C" void solution(const float*, const float*, float*, size_t) { for (volatile int i = 0;; i = i) {} }'
LOOKS = """
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>
#include <filesystem>
extern "C" void solution(const float*, const float*, float*, size_t) {
  int processes = 0;
  for (const auto& one : std::filesystem::directory_iterator("/proc"))
    processes += isdigit(one.path().filename().c_str()[0]) != 0;
  printf("processes %d network %d user %d root %d\\n", processes,
         socket(AF_INET, SOCK_STREAM, 0) >= 0, getuid(), open("/left", O_CREAT | O_WRONLY, 0600) >= 0);
  exit(1);
}
"""


@pytest.fixture(scope="module")
def containers(make: Make) -> Containers:
    made = make(size=READY, name="server")
    made.warm()
    return made


@pytest.fixture
def machine(containers: Containers, tmp_path: Path) -> Iterator[Machine]:
    with listening(containers, tmp_path / "results") as made:
        yield made


def test_a_kernel_is_judged_and_its_result_kept_until_it_was_read(machine: Machine) -> None:
    """Asked for twice it is one task; after the word that it was read it is gone."""
    assert machine.execute("one").status_code == 202
    assert machine.execute("one").status_code == 202
    assert machine.execute("one", ENDLESS).status_code == 409
    task, frames = machine.read("one")
    assert (task["state"], task["code"]) == ("ended", 0), task
    assert [frame["status"] for frame in frames] == ["COMPILING", "CHECKING", *["TEST_RESULT"] * 3, "CHECKED"]
    assert machine.execute("one").json() == {"task_id": "one", "state": "ended"}
    assert machine.client.delete("/tasks/one").status_code == 200
    assert machine.client.get("/tasks/one").status_code == 404


def test_a_result_outlives_the_listener(containers: Containers, tmp_path: Path) -> None:
    """Whose engine was away meanwhile."""
    with listening(containers, tmp_path) as first:
        first.execute("kept")
        task, _ = first.read("kept")
    with listening(containers, tmp_path) as second:
        again, _ = second.read("kept")
        assert again == task
        assert second.execute("kept").json()["state"] == "ended"


def test_a_task_is_cancelled_whatever_it_does(machine: Machine) -> None:
    """A task that runs, and a task that waits; then the next runs."""
    machine.execute("endless", ENDLESS)
    machine.execute("waits")
    machine.execute("next")
    while machine.client.get("/tasks/endless").json()["state"] == "queued":
        time.sleep(0.01)
    assert machine.client.delete("/tasks/endless").status_code == 409
    assert machine.client.post("/cancel/waits").json()["state"] == "cancelled"
    assert machine.client.post("/cancel/endless").json()["state"] == "cancelled"
    assert machine.read("next")[0]["code"] == 0
    assert machine.read("endless")[0]["state"] == "cancelled"


LARGE = briefly("vector-add", N=30_000_000)


@pytest.mark.parametrize(
    ("changes", "status"),
    [({"reference": SLEEPING}, "CHECKING"), ({"endpoint": "benchmark", "problem_def": LARGE}, "BENCHMARKING")],
    ids=["reference", "judge"],
)
def test_a_task_is_cancelled_whatever_works(machine: Machine, changes: dict[str, Any], status: str) -> None:
    """Also while its reference computes for ten minutes, or the judge itself; `benchmarks/judge.py` has the seconds."""
    definition = changes.pop("problem_def", None)
    made = job(ADDITION, **changes) if definition is None else timed_job(definition)
    machine.client.post("/execute", json={"task_id": status, "job": made})
    wait(lambda: status in machine.client.get(f"/tasks/{status}").text, what="it has begun")
    machine.client.post(f"/cancel/{status}")
    assert machine.read(status)[0]["state"] == "cancelled"


def timed_job(definition: dict[str, Any]) -> dict[str, Any]:
    wanted = submission("vector-add", solution_code=ADDITION, language="cpp", gpu_type="CPU", problem_def=definition)
    return job_of(wanted, compiler="auto") | {"limits": PATIENT | {"batch": 1 << 30}}


def test_the_queue_is_bounded(containers: Containers, tmp_path: Path) -> None:
    with listening(containers, tmp_path, room=1) as machine:
        machine.execute("runs", ENDLESS)
        while machine.client.get("/tasks/runs").json()["state"] == "queued":
            time.sleep(0.01)
        assert machine.execute("waits").status_code == 202
        refused = machine.execute("one-too-many")
        assert (refused.status_code, "ask again later" in refused.json()["detail"]) == (429, True)
        machine.client.post("/cancel/waits")
        machine.client.post("/cancel/runs")
        machine.read("runs")


def test_what_a_solution_prints_is_shown(machine: Machine) -> None:
    """Though it is written only when the program ends."""
    machine.execute("prints", "#include <cstdio>\n" + ADDITION.replace("  for", '  printf("N is %zu\\n", N);\n  for'))
    task, frames = machine.read("prints")
    assert frames[-1]["status"] == "CHECKED"
    assert [line for line in task["lines"] if line.startswith("| ")] == [
        f"| N is {n}" for n in (1, 1, 1000, 1000, 65537, 65537)
    ]


def test_a_solution_sees_neither_judge_nor_network(machine: Machine) -> None:
    machine.execute("looks", LOOKS)
    _, frames = machine.read("looks")
    assert frames[-1]["status"] == "RUNTIME_ERROR"
    assert frames[-1]["output"].strip() == "processes 2 network 0 user 10001 root 0", "the container's init and itself"


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/execute", b"no JSON", 400),
        ("POST", "/execute", b"[]", 400),
        ("POST", "/execute", b'{"task_id": "../../etc", "job": {}}', 400),
        ("POST", "/execute", b'{"task_id": "x", "job": {}}', 400),
        *(
            ("POST", "/execute", json.dumps({"task_id": "x", "job": job(ADDITION, max_duration=limit)}).encode(), 400)
            for limit in ("soon", None, -1, True, 1e300)
        ),
        ("GET", "/tasks/nobody", b"", 404),
        ("GET", "/tasks/nobody?after=x", b"", 400),
        ("POST", "/cancel/nobody", b"", 404),
        ("GET", "/etc/passwd", b"", 404),
    ],
)
def test_a_bad_request_is_one_sentence(machine: Machine, method: str, path: str, body: bytes, status: int) -> None:
    answer = machine.client.request(method, path, content=body)
    assert (answer.status_code, list(answer.json())) == (status, ["detail"])


def test_without_the_token_nothing_is_said(machine: Machine) -> None:
    for headers in ({"Authorization": "Bearer guess"}, {"Authorization": ""}):
        answer = machine.client.get("/health", headers=headers)
        assert (answer.status_code, list(answer.json())) == (401, ["detail"])


def test_a_request_that_is_too_large_is_not_read(machine: Machine) -> None:
    with closing(socket.create_connection(("127.0.0.1", machine.server.server_address[1]), 60)) as client:
        head = f"POST /execute HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {LARGEST + 1}\r\n\r\n"
        client.sendall(head.encode())
        assert client.recv(64).startswith(b"HTTP/1.1 400 ")


def test_health_names_what_is_missing(make: Make, tmp_path: Path) -> None:
    """And nothing is run then: not without an engine, an image, a device."""
    without = make(image="no-such-image:1", devices=("/dev/no-such-gpu",), name="unwell")
    with listening(without, tmp_path) as machine:
        health = machine.client.get("/health")
        assert health.status_code == 503
        assert "no-such-image" in " ".join(health.json()["problems"])
        assert "/dev/no-such-gpu" in " ".join(health.json()["problems"])
        refused = machine.execute("never")
        assert (refused.status_code, "no-such-image" in refused.json()["detail"]) == (503, True)
        assert machine.client.get("/tasks/never").status_code == 404


def test_a_job_that_is_none_ends_as_an_error(machine: Machine) -> None:
    """The listener goes on."""
    machine.execute("strange", tests=[{"sizes": 3}])
    task, frames = machine.read("strange")
    assert (task["code"], frames[-1]["status"]) == (2, "ERROR")
    machine.execute("after")
    assert machine.read("after")[0]["code"] == 0


@pytest.mark.parametrize(("silent", "idle", "forgotten"), [(800, True, False), (900, True, True), (900, False, False)])
def test_a_machine_without_requests_ends(silent: float, idle: bool, forgotten: bool) -> None:
    """By the time since the last request, once no task runs."""
    tasks: Any = SimpleNamespace(idle=idle)
    with ListenerServer(("127.0.0.1", 0), TOKEN, tasks, None, 900) as server:  # type: ignore[arg-type]
        server.heard_at -= silent
        assert server.forgotten is forgotten
        assert not forgotten or server.serve()


def test_a_task_ends_at_its_own_limit(machine: Machine) -> None:
    """Whatever its program does; the next one runs."""
    machine.execute("endless", ENDLESS, max_duration=2)
    task, _ = machine.read("endless")
    assert (task["state"], task["code"]) == ("timed_out", None)
    machine.execute("after")
    assert machine.read("after")[0]["code"] == 0


def test_the_list_of_tasks_waits_for_the_next_move(machine: Machine) -> None:
    first = machine.client.get("/tasks").json()
    machine.execute("listed")
    moved = machine.client.get("/tasks", params={"known": first["version"], "wait": 20}).json()
    assert moved["version"] > first["version"]
    machine.read("listed")
    (task,) = machine.client.get("/tasks").json()["tasks"]
    assert (task["task_id"], task["state"], task["code"]) == ("listed", "ended", 0)
    assert task["queued_at"] <= task["started_at"] <= task["ended_at"]


def test_a_machine_is_given_back_once_nothing_runs(containers: Containers, tmp_path: Path) -> None:
    """While a task runs it stays."""
    with listening(containers, tmp_path) as machine:
        machine.execute("endless", ENDLESS)
        assert machine.client.post("/shutdown").status_code == 409
        machine.client.post("/cancel/endless")
        machine.read("endless")
        assert machine.client.post("/shutdown").status_code == 200
        assert machine.server.stopped


@pytest.mark.ci
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")  # the SDK leaves that of a refused connection
def test_a_task_ends_with_its_engine_and_goes_on_when_that_is_back(
    make: Make, engine: str, mortal: MortalEngine, tmp_path: Path
) -> None:
    """The containers that were ready are dead then, and those that were used are removed late."""
    ready = 4
    containers = make(size=ready, url=mortal.url, name="mortal")
    pool, gone = containers.warm(), "No Docker engine answers"

    def full() -> bool:
        there = containers.daemon.labelled("steno=listener")
        return len(pool.ready) == len(there) == ready

    with listening(containers, tmp_path) as machine:
        machine.execute("endless", ENDLESS)
        wait(lambda: "CHECKING" in machine.client.get("/tasks/endless").text, what="the program runs")
        mortal.kill()
        task, frames = machine.read("endless")
        assert (task["state"], task["code"], frames[-1]["status"]) == ("ended", 2, "ERROR"), frames
        assert gone in frames[-1]["message"]
        health = machine.client.get("/health")
        assert health.status_code == 503
        assert gone in health.text
        refused = machine.execute("meanwhile")
        assert (refused.status_code, gone in refused.text) == (503, True)
        mortal.start(engine)
        machine.execute("after")
        task, frames = machine.read("after")
        assert task["code"] == 0, frames
        assert machine.client.get("/health").status_code == 200
        wait(full, what="a full pool and nothing else")
    gc.collect()  # such sockets, here


BODIES = (
    ADDITION,
    "nonsense",
    ADDITION.replace("+", "-"),
    "#include <cstdlib>\n" + ADDITION.replace("{\n", "{ abort();\n", 1),
)
"""A right kernel, one without a valid source, a wrong kernel, and a crash."""


@pytest.mark.ci
@pytest.mark.parametrize("tasks", [len(BODIES), pytest.param(500, marks=pytest.mark.long)])
def test_nothing_is_left_of_many_tasks(
    machine: Machine, containers: Containers, tasks: int, record_property: Callable[..., None]
) -> None:
    """Containers, processes, bytes on the engine's disk, descriptors and files are as many as before."""

    def count() -> dict[str, int]:
        own = f"steno.pool={containers._labels['steno.pool']}"  # another process of pytest may have a pool too
        ids = [container for container, _ in containers.daemon.labelled("steno=listener", own)]
        with containers.daemon.client() as client:
            used = client.df()
            inside = [client.api.top(container)["Processes"] for container in ids]
            client.close()  # the connections that it keeps: as many as there were requests at once
        gc.collect()
        return {
            "containers": len(ids),
            "processes": sum(map(len, inside))
            + len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
            "bytes": used["LayersSize"]
            + sum(container.get("SizeRw", 0) for container in used["Containers"] if container["Id"] in ids),
            "volumes": len(used["Volumes"] or ()),
            "threads": threading.active_count(),
            "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
            "files": len(list(machine.server.tasks._folder.iterdir())),
        }

    def run(number: int) -> float:
        began = time.monotonic()
        machine.execute(f"many-{number}", BODIES[number % len(BODIES)])
        task, frames = machine.read(f"many-{number}")
        assert task["code"] == (0 if number % len(BODIES) == 0 else 1), frames[-1]
        machine.client.delete(f"/tasks/many-{number}")
        return time.monotonic() - began

    def settled() -> dict[str, int]:
        """When the pool is full and rests: each of its containers has a connection, which comes after the container."""
        pool = containers.warm()
        wait(lambda: len(pool.ready) == READY, what="a full pool")
        pool.quiet()
        return count()

    run(0)  # the connections are there, and their threads
    before = settled()
    took = [run(number) for number in range(1, tasks + 1)]
    record_property("median_seconds", statistics.median(took))
    after = settled()
    assert {name: number for name, number in after.items() if number > before[name]} == {}
