"""The listener: a task over HTTP into real containers and back; what is lost on the way is asked again."""

from __future__ import annotations

import gc
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from stenolab.waiting import wait
from stenotest.kernels import ADDITION
from stenotest.listeners import TOKEN, Machine, listening

from engine.listener.server import LARGEST, DeadMan, ListenerServer
from engine.listener.tasks import Tasks

if TYPE_CHECKING:
    from conftest import Make
    from stenolab.docker import MortalEngine

    from engine.listener.sandbox import Containers

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
    said, frames = machine.read("one")
    assert (said["state"], said["code"]) == ("ended", 0), said
    assert [frame["status"] for frame in frames] == ["COMPILING", "CHECKING", *["TEST_RESULT"] * 3, "CHECKED"]
    assert machine.execute("one").json() == {"task_id": "one", "state": "ended"}
    assert machine.client.delete("/tasks/one").status_code == 200
    assert machine.client.get("/tasks/one").status_code == 404


def test_a_result_outlives_the_listener(containers: Containers, tmp_path: Path) -> None:
    """Whose engine was away meanwhile."""
    with listening(containers, tmp_path) as first:
        first.execute("kept")
        said, _ = first.read("kept")
    with listening(containers, tmp_path) as second:
        again, _ = second.read("kept")
        assert again == said
        assert second.execute("kept").json()["state"] == "ended"


def test_a_task_is_cancelled_whatever_it_does(machine: Machine) -> None:
    """One that runs, and one that waits; the next one runs then."""
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
    said, frames = machine.read("prints")
    assert frames[-1]["status"] == "CHECKED"
    assert [line for line in said["lines"] if line.startswith("| ")] == [
        f"| N is {n}" for n in (1, 1, 1000, 1000, 65537, 65537)
    ]


@pytest.mark.parametrize(
    ("last", "ends"), [("", "CHECKED"), ("sleep 600 &", "CHEATING_SUSPECTED"), ("exit 9", "RUNTIME_ERROR")]
)
def test_a_command_is_judged_in_a_container(machine: Machine, last: str, ends: str) -> None:
    """As on a machine without containers: what it leaves running is counted from outside."""
    prints = 'case = json.load(sys.stdin)["inputs"]; print([a + b for a, b in zip(case["A"], case["B"])])'
    machine.execute(f"command-{ends}", f"python3 -c 'import json, sys; {prints}'\n{last}", language="command")
    said, frames = machine.read(f"command-{ends}")
    assert frames[-1]["status"] == ends, said


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
        ("GET", "/tasks/nobody", b"", 404),
        ("GET", "/tasks/nobody?after=x", b"", 400),
        ("POST", "/cancel/nobody", b"", 404),
        ("GET", "/etc/passwd", b"", 404),
    ],
)
def test_a_bad_request_is_one_sentence(machine: Machine, method: str, path: str, body: bytes, status: int) -> None:
    found = machine.client.request(method, path, content=body)
    assert (found.status_code, list(found.json())) == (status, ["detail"])


def test_without_the_token_nothing_is_said(machine: Machine) -> None:
    for headers in ({"Authorization": "Bearer guess"}, {"Authorization": ""}):
        found = machine.client.get("/health", headers=headers)
        assert (found.status_code, list(found.json())) == (401, ["detail"])


def test_a_request_that_is_too_large_is_not_read(machine: Machine) -> None:
    with closing(socket.create_connection(("127.0.0.1", machine.server.server_address[1]), 60)) as client:
        head = f"POST /execute HTTP/1.1\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {LARGEST + 1}\r\n\r\n"
        client.sendall(head.encode())
        assert client.recv(64).startswith(b"HTTP/1.1 400 ")


def test_health_names_what_is_missing(make: Make, tmp_path: Path) -> None:
    """And nothing is run then: not without an engine, an image, a device."""
    without = make(image="no-such-image:1", devices=("/dev/no-such-gpu",), name="unwell")
    with listening(without, tmp_path) as machine:
        found = machine.client.get("/health")
        assert found.status_code == 503
        assert "no-such-image" in " ".join(found.json()["problems"])
        assert "/dev/no-such-gpu" in " ".join(found.json()["problems"])
        refused = machine.execute("never")
        assert (refused.status_code, "no-such-image" in refused.json()["detail"]) == (503, True)
        assert machine.client.get("/tasks/never").status_code == 404


def test_a_job_that_is_none_ends_as_an_error(machine: Machine) -> None:
    """The listener goes on."""
    machine.execute("strange", tests=[{"sizes": 3}])
    said, frames = machine.read("strange")
    assert (said["code"], frames[-1]["status"]) == (2, "ERROR")
    machine.execute("after")
    assert machine.read("after")[0]["code"] == 0


def test_a_machine_that_nobody_asks_for_ends() -> None:
    """By the time since the last word, once nothing runs."""
    now, idle = [0.0], [True]
    dead_man = DeadMan(900, lambda: idle[0], lambda: now[0])
    now[0] = 899
    assert not dead_man.due
    now[0] = 900
    assert dead_man.due
    idle[0] = False
    assert not dead_man.due
    dead_man.hear()
    idle[0] = True
    assert (dead_man.due, dead_man.left) == (False, 900)


def test_a_forgotten_listener_ends_by_itself(containers: Containers, tmp_path: Path) -> None:
    tasks = Tasks(containers, tmp_path)
    server = ListenerServer(("127.0.0.1", 0), TOKEN, tasks, containers, DeadMan(0.1, lambda: tasks.idle))
    assert server.serve() is True
    tasks.close()


def test_the_judges_own_program_is_compiled_for_the_first_task_only(
    machine: Machine, containers: Containers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes longer than most solutions."""
    machine.execute("first")
    machine.read("first")
    compiled = list[str]()
    run = containers.run

    def counted(argv: Sequence[str], files: Mapping[str, bytes], **rest: Any) -> Any:
        compiled.extend(files)
        return run(argv, files, **rest)

    monkeypatch.setattr(containers, "run", counted)
    machine.execute("second")
    assert machine.read("second")[0]["code"] == 0
    assert "solution.hip" in compiled
    assert "program.hip" not in compiled


def test_a_task_ends_at_its_own_limit(machine: Machine) -> None:
    """Whatever its program does; the next one runs."""
    machine.execute("endless", ENDLESS, max_duration=2)
    said, _ = machine.read("endless")
    assert (said["state"], said["code"]) == ("timed_out", None)
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
        return len(pool._ready) == len(there) == ready and not pool._busy

    with listening(containers, tmp_path) as machine:
        machine.execute("endless", ENDLESS)
        wait(lambda: "CHECKING" in machine.client.get("/tasks/endless").text, seconds=120, what="the program runs")
        mortal.kill()
        said, frames = machine.read("endless")
        assert (said["state"], said["code"], frames[-1]["status"]) == ("ended", 2, "ERROR"), frames
        assert gone in frames[-1]["message"]
        health = machine.client.get("/health")
        assert health.status_code == 503
        assert gone in health.text
        refused = machine.execute("meanwhile")
        assert (refused.status_code, gone in refused.text) == (503, True)
        mortal.start(engine)
        machine.execute("after")
        said, frames = machine.read("after")
        assert said["code"] == 0, frames
        assert machine.client.get("/health").status_code == 200
        wait(full, seconds=60, what="a full pool and nothing else")
    gc.collect()  # such sockets, here


BODIES = (
    ADDITION,
    "nonsense",
    ADDITION.replace("+", "-"),
    "#include <cstdlib>\n" + ADDITION.replace("{\n", "{ abort();\n", 1),
)
"""A right kernel, one that does not compile, a wrong one, and one that crashes."""


@pytest.mark.parametrize("tasks", [8, pytest.param(500, marks=pytest.mark.long)])
def test_nothing_is_left_of_many_tasks(
    machine: Machine, containers: Containers, tasks: int, record_property: Callable[..., None]
) -> None:
    """Containers, processes, bytes on the engine's disk, descriptors and files are as many as before."""

    def count() -> dict[str, int]:
        own = f"steno.pool={containers._labels['steno.pool']}"  # another process of pytest may have a pool too
        found = [one for one, _ in containers.daemon.labelled("steno=listener", own)]
        with containers.daemon.client() as client:
            used = client.df()
            inside = [client.api.top(one)["Processes"] for one in found]
        return {
            "containers": len(found),
            "processes": sum(map(len, inside))
            + len(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()),
            "bytes": used["LayersSize"] + sum(one.get("SizeRw", 0) for one in used["Containers"] if one["Id"] in found),
            "volumes": len(used["Volumes"] or ()),
            "threads": threading.active_count(),
            "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
            "files": len(list(machine.server.tasks._folder.iterdir())),
        }

    def run(number: int) -> float:
        began = time.monotonic()
        machine.execute(f"many-{number}", BODIES[number % len(BODIES)])
        said, frames = machine.read(f"many-{number}")
        assert said["code"] == (0 if number % len(BODIES) == 0 else 1), frames[-1]
        machine.client.delete(f"/tasks/many-{number}")
        return time.monotonic() - began

    def settled() -> dict[str, int]:
        """When the pool is full and rests: each of its containers has a connection, which comes after the container."""
        pool = containers.warm()
        wait(lambda: len(pool._ready) == READY and not pool._busy, seconds=60, what="a full pool")
        return count()

    run(0)  # the connections are there, and their threads
    before = settled()
    took = [run(number) for number in range(1, tasks + 1)]
    record_property("median_seconds", statistics.median(took))
    after = settled()
    assert {name: found for name, found in after.items() if found > before[name]} == {}
