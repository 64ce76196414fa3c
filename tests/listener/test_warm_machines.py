"""Kernels on machines that stay warm, through the real command: `steno up` on local, a listener, real containers."""

import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import httpx
import pytest
from stenolab.docker import IMAGE
from stenolab.steno import Background, Steno
from stenotest.kernels import ADDITION, told
from stenotest.waiting import LIMIT_S, wait

from steno.engine.kernel import kept_machine
from steno.engine.kernel.executor import MAX_VARIABLE
from steno.engine.kernel.kept_machine import listener_task
from steno.engine.kernel.machine.exchange import SHARED
from steno.engine.listener.daemon import Daemon
from steno.engine.listener.sandbox import remove_containers_of
from steno.engine.providers.registry import kind, load_settings
from steno.engine.providers.task import LISTENER
from steno.engine.state.kernel_mark import FORGOTTEN

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("docker")]

ENDLESS = 'extern "C" void solution(const float*, const float*, float*, size_t) { for (volatile int i = 0;; i = i) {} }'
WRONG = 'extern "C" void solution(const float*, const float*, float* C, size_t N) { if (N) C[0] = 7; }'
_SERVING = re.compile(r"serving (http://\S+)")


class Site:
    """A host with an engine, `steno up` and a browser's side of the API."""

    def __init__(self, steno: Steno) -> None:
        self.steno = steno
        self.up: Background | None = None
        self.url = ""

    def start(self, **environment: str) -> Background:
        self.up = up = self.steno.up(**environment)
        address = wait(lambda: _SERVING.search(up.out), what="the service")
        self.url = address[1]
        return up

    def submitted(self, source: str = ADDITION) -> list[dict[str, Any]]:
        return told(self.url, source)

    def submit(self, source: str = ADDITION, name: str = "add.cpp") -> str:
        """The name of a kernel that is submitted by the command."""
        path = self.file(source, name)
        return self.steno("kernel", "submit", path, "--problem", "vector-add", "--checker").out.strip()

    def file(self, source: str = ADDITION, name: str = "add.cpp") -> Path:
        path = self.steno.work / name
        path.write_text(source)
        return path

    def machines(self) -> list[dict[str, Any]]:
        """The warm machines that are not gone, as `steno vms` lists them."""
        machines = self.steno.json("vms")["vms"]
        return [vm for vm in machines if vm["source"].startswith("kernels/") and vm["state"] != "terminated"]


@pytest.fixture(scope="module")
def site(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A host; `steno up` runs there, and a machine is warm."""
    made = _site(engine, tmp_path_factory.mktemp("site"))
    made.start()
    yield made
    _end(made)


@pytest.fixture
def other(engine: str, tmp_path: Path) -> Iterator[Site]:
    """A host whose service a test starts, and may end."""
    made = _site(engine, tmp_path)
    yield made
    _end(made)


def _site(engine: str, folder: Path) -> Site:
    more = {"DOCKER_HOST": engine, "STENO_KERNEL_IMAGE": "steno-lab/kernel:1", "AMD_CONTAINER_MEMORY_LIMIT": "1GB"}
    return Site(Steno(folder=folder, **more))


def _end(site: Site) -> None:
    """Ends every listener that still runs: it is a process of this host, whose memory has its tensors."""
    ended = list[str]()
    for run in site.steno.json("ps", "--all")["runs"] if site.steno.record.exists() else ():
        if run["name"].startswith("kernels-") and run["finished_at"] is None:
            site.steno("stop", run["run_id"], "--abort", code=None)
            ended.append(run["run_id"])
    site.steno.close()
    remove_containers_of(ended)


def test_the_first_kernel_starts_a_machine_and_the_second_finds_it_warm(site: Site) -> None:
    """Status by status; both runs end by the verdict, and the machine stays."""
    cold, warm = site.submitted(), site.submitted()
    assert [item["status"] for item in warm] == ["IN_QUEUE", "COMPILING", "CHECKING", *["TEST_RESULT"] * 3, "CHECKED"]
    assert (cold[-1]["status"], cold[-1]["vm_state"]) == ("CHECKED", "COLD_START")
    assert (warm[-1]["status"], warm[-1]["vm_state"]) == ("CHECKED", "WARM_REUSE")
    assert any("kernels-cpu" in item["message"] for item in cold if item["status"] == "IN_QUEUE"), (
        "it says what it waits for"
    )
    (machine,) = site.machines()
    assert {item["vm_metrics"]["vm_id"] for item in (cold[-1], warm[-1])} == {machine["vm_id"]}
    run = site.steno.json("show", warm[0]["name"])
    assert (run["state"], run["reason"], run["exit_status"]) == ("succeeded", "exit_zero", 0)
    site.steno("verify")


@pytest.mark.ci
def test_what_is_wrong_with_a_kernel_is_told(site: Site) -> None:
    """As without a warm machine: the reasons are the run's own."""
    assert site.submitted(WRONG)[-1]["status"] == "WRONG_ANSWER"
    assert site.submitted("nonsense")[-1]["status"] == "COMPILE_ERROR"
    assert (
        site.submitted("#include <cstdlib>\n" + ADDITION.replace("{\n", "{ abort();\n", 1))[-1]["status"]
        == "RUNTIME_ERROR"
    )


@pytest.mark.ci
def test_the_command_submits_and_follows(site: Site) -> None:
    """`kernel submit --wait`, and `logs`: the lines by which a kernel reports are not its output."""
    command = site.steno("kernel", "submit", site.file(), "--problem", "vector-add", "--checker", "--wait", "--json")
    kernel = command.json()
    assert kernel["statuses"][-1]["status"] == "CHECKED"
    assert [step["status"] for step in kernel["statuses"]].count("TEST_RESULT") == 3
    assert "::steno::" not in site.steno("logs", kernel["name"]).out


@pytest.mark.ci
def test_a_kernel_that_goes_on_for_ever_is_stopped(site: Site) -> None:
    """By the user: the machine is free at once for the next."""
    name = site.submit(ENDLESS, "endless.cpp")
    site.steno.wait(name, "running")
    site.steno("stop", name)
    assert site.steno.wait(name, "stopped", "failed")["reason"] == "stopped_by_user"
    assert site.submitted()[-1]["status"] == "CHECKED"


@pytest.mark.ci
def test_a_kernel_in_the_queue_names_the_machine_it_waits_for(site: Site) -> None:
    """In `show` as in its statuses: another kernel has the only machine."""
    first = site.submit(ENDLESS, "endless.cpp")
    site.steno.wait(first, "running")
    second = site.submit()
    name = site.machines()[0]["name"]
    wait(lambda: f"{name} has another kernel" in site.steno("show", second).out, what="the reason")
    site.steno("stop", first)
    assert site.steno.wait(second, "succeeded")["start"] == "warm"


def test_a_machine_is_stopped_by_hand(site: Site) -> None:
    """The last of the tests of this host: any other would wait for another machine."""
    site.submitted()
    (machine,) = site.machines()
    site.steno("vms", "stop", machine["vm_id"])
    assert site.steno.wait(machine["name"], "succeeded", "stopped")


@pytest.mark.ci
def test_a_service_that_is_killed_loses_nothing(other: Site) -> None:
    """The kernel goes on without it; the next service reads what it reported meanwhile."""
    other.start()
    other.submitted()
    slow = ADDITION.replace("C[i] =", "for (volatile int k = 0; k < 30000; k = k + 1) C[i] =")
    name = other.submit(slow)
    other.steno.wait(name, "running")
    assert other.up is not None
    other.up.kill()
    other.start()
    assert other.steno.wait(name, "succeeded")["start"] == "warm"
    kernel = other.steno.json("kernel", "show", name)
    assert [step["status"] for step in kernel["statuses"]].count("TEST_RESULT") == 3
    assert len(other.machines()) == 1
    assert other.steno.json("incidents")["anomalies"] == []
    other.steno("verify")


@pytest.mark.ci
def test_a_machine_that_vanishes_in_the_middle_ends_its_kernel(engine: str, other: Site) -> None:
    """With its own reason; the next kernel gets another machine. The containers of the first are removed, though its
    listener could not: an endless kernel would go on.
    """
    daemon = Daemon(engine)
    before = dict(daemon.labelled("steno=listener"))
    other.start()
    assert other.submitted()[-1]["status"] == "CHECKED"
    name = next(
        labels["steno.listener"] for container, labels in daemon.labelled("steno=listener") if container not in before
    )
    (machine,) = other.machines()
    kernel = other.submit(ENDLESS, "endless.cpp")
    other.steno.wait(kernel, "running")
    other.steno("stop", machine["name"], "--abort")
    ended = other.steno.wait(kernel, "failed")
    assert ended["reason"] == "unreachable"
    other.steno.until(lambda: not daemon.labelled(f"steno.listener={name}"), what="its containers were removed")
    other.steno.until(lambda: not [*SHARED.glob(f"steno-{name}-*")], what="its tensors have left the memory")
    daemon.close()
    items = other.submitted()
    assert items[-1]["status"] == "CHECKED"
    assert items[-1]["vm_metrics"]["vm_id"] != machine["vm_id"]


@pytest.mark.ci
def test_an_idle_machine_is_given_back(other: Site) -> None:
    """After `vms.idle_timeout`, by the policy: its listener ends by itself, and so does the task that kept it."""
    other.start(STENO_IDLE_TIMEOUT="3s")
    assert other.submitted()[-1]["status"] == "CHECKED"
    name = other.machines()[0]["name"]
    ended = other.steno.wait(name, "succeeded")
    assert (ended["reason"], ended["exit_status"]) == ("exit_zero", 0)
    wait(lambda: not other.machines(), what="the machine to be gone")


@pytest.mark.parametrize(
    ("variable", "message", "status"),
    [
        ({}, "the engine has been silent for too long", FORGOTTEN),
        ({"DOCKER_HOST": "unix:///nowhere"}, "No Docker engine answers", 1),
    ],
)
def test_a_listener_that_is_sent_needs_nothing_of_steno(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: dict[str, str], message: str, status: int
) -> None:
    """Its bundle, by a Python that sees Docker's SDK and no Steno. It ends by itself, and its status says why."""
    monkeypatch.setattr(kept_machine, "_ENGINE_PATIENCE", 1.0)
    environ = {"STENO_IDLE_TIMEOUT": "1s", "STENO_KERNEL_IMAGE": IMAGE, "AMD_CONTAINER_MEMORY_LIMIT": "1GB"}
    monkeypatch.setattr(kept_machine, "BACKSTOP", 0)
    settings = load_settings(flags={}, environ=environ, cwd=tmp_path, home=tmp_path, config=tmp_path, data=tmp_path)
    task: Any = listener_task(kind("local"), settings, str(uuid.uuid4()), None, "t" * 64)
    assert len(task["env"][LISTENER]) < MAX_VARIABLE
    program = task["commands"][0].replace(" -c ", " -S -c ", 1)
    packages = str(Path(docker.__file__).parents[1])
    env = {**task["env"], "PATH": os.environ["PATH"], "PYTHONPATH": packages, "DOCKER_HOST": engine, **variable}
    done = subprocess.run(["sh", "-c", program], env=env, cwd="/", capture_output=True, text=True, check=False)
    assert (done.returncode, message in done.stdout) == (status, True), done.stdout + done.stderr


def test_without_an_engine_kernels_are_refused(other: Site) -> None:
    """By the API and by the command, which name what to install; nothing is recorded."""
    nowhere = {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
    other.start(**nowhere)
    body = {"solution_code": ADDITION, "problem": "vector-add", "gpu_type": "CPU", "language": "cpp"}
    answer = httpx.post(f"{other.url}/api/amd/submit", json=body, timeout=LIMIT_S, trust_env=False)
    assert answer.status_code == 503
    assert "apt-get install docker.io" in answer.json()["detail"]
    command = other.steno("kernel", "submit", other.file(), "--problem", "vector-add", code=6, **nowhere)
    assert "apt-get install docker.io" in command.err
    assert command.err.count("\n") == 1
    assert other.steno.json("ps", "--all")["runs"] == []


def test_without_a_recorder_the_command_says_what_to_start(other: Site) -> None:
    command = other.steno("kernel", "submit", other.file(), "--problem", "vector-add", code=5)
    assert "start `steno up` first" in command.err
