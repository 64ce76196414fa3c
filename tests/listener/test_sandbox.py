"""The port of the judge, kept by containers: output, limits, files, the channel, and nothing left behind."""

import io
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from operator import le
from pathlib import Path
from typing import Any

import pytest
from stenotest.waiting import wait

from steno.engine.kernel.machine.exchange import KEPT, CellGone
from steno.engine.listener.daemon import SandboxUnavailable, escapes
from steno.engine.listener.sandbox import ContainerLimits, Containers

LONG_S = 300
"""More than any machine needs where nothing is waited for in vain."""
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("docker")]


def soon(seconds: float = 120) -> float:
    return time.monotonic() + seconds


def test_a_program_is_compiled_and_its_file_taken(cells: Containers) -> None:
    source = (
        b'#include "inc/a.h"\n#include <iostream>\nint main() { std::cout << A << std::endl; std::cerr << "err"; }\n'
    )
    files = {"main.cpp": source, "inc/a.h": b"#define A 42\n"}
    ended, program = cells.run(["g++", "main.cpp", "-o", "out"], files, limit=30, takes="out", cap=1 << 20)
    assert (ended.code, ended.output) == (0, "")
    assert program is not None
    ended, _ = cells.run(["./out"], {"out": program}, limit=10)
    assert (ended.code, ended.output, ended.out_of_memory) == (0, "42\nerr", False)


def test_a_missing_program_is_a_failure_of_the_run(cells: Containers) -> None:
    ended, _ = cells.run(["no-such-compiler", "--version"], {}, limit=10)
    assert ended.code == 127
    assert "not found" in ended.output


@pytest.mark.parametrize("status", [0, 1, 137, 255])
def test_an_exit_status_is_reported_and_proves_no_lack_of_memory(probe: Any, status: int) -> None:
    ended, _ = probe("exit", str(status))
    assert (ended.code, ended.out_of_memory) == (status, False)


def test_a_signal_is_reported_as_the_shell_does(probe: Any) -> None:
    """A container's runtime does not tell a signal from such an exit status."""
    assert probe("abort")[0].code == 128 + signal.SIGABRT
    assert probe("signal", str(int(signal.SIGSEGV)))[0].code == 128 + signal.SIGSEGV


@pytest.mark.parametrize("words", [("memory", "400"), ("fill", "400"), ("child_memory", "400")])
def test_too_much_memory_is_said_to_be_that(make: Any, probe: Any, words: tuple[str, ...]) -> None:
    ended, _ = probe(*words, sandbox=make(memory=100 << 20, tmp=1 << 30))
    assert ended.out_of_memory


def test_a_large_output_keeps_its_beginning_and_its_end(probe: Any) -> None:
    ended, _ = probe("print", "200")
    assert ended.code == 0
    assert len(ended.output) < 2 * KEPT + 100
    assert ended.output.startswith("xxx")
    assert ended.output.endswith("END\n")
    assert f"{(200 << 20) + 4 - 2 * KEPT} bytes" in ended.output


def test_a_flood_of_output_ends_the_program(probe: Any) -> None:
    ended, _ = probe("print", "1000000", limit=60)
    assert ended.code == -signal.SIGKILL
    assert ended.output.endswith("[killed: more than 256 MiB of output]")


def test_output_may_be_any_bytes(probe: Any) -> None:
    ended, _ = probe("binary")
    assert ended.output == bytes(range(256)).decode("utf-8", "replace")


@pytest.mark.parametrize("word", ["stubborn", "closed"])
def test_a_program_that_does_not_listen_is_killed(probe: Any, word: str) -> None:
    assert probe(word, limit=0.5)[0].code is None


def test_a_program_may_kill_its_container(probe: Any) -> None:
    ended, _ = probe("kill_all", limit=10)
    assert ended.code is None or ended.code > 0
    assert not ended.out_of_memory


def test_a_daemon_does_not_survive_its_program(probe: Any) -> None:
    began = time.monotonic()
    assert probe("daemon", limit=LONG_S)[0].code == 0
    assert time.monotonic() - began < LONG_S, "its open streams are not waited for"
    wait(lambda: b"./probes\0daemon" not in b"".join(_command_lines()), what="the daemon's end")


@pytest.mark.parametrize(
    "words", [("fifo",), ("fifo_swap",), ("link", "/etc/passwd"), ("link", "/dev/zero"), ("folder",), ("exit", "0")]
)
def test_only_a_regular_file_is_taken(probe: Any, words: tuple[str, ...]) -> None:
    began = time.monotonic()
    ended, taken = probe(*words, limit=LONG_S, takes="out", cap=1 << 20)
    assert ended.code == 0
    assert taken is None
    assert time.monotonic() - began < LONG_S


def test_a_file_is_taken_up_to_its_cap(probe: Any) -> None:
    assert probe("large", "100000", takes="out", cap=99_999)[1] is None
    assert probe("large", "100000", takes="out", cap=100_000)[1] == bytes(100_000)
    assert probe("endless", takes="out", cap=1 << 20)[1] is None


def test_the_channel_is_descriptors_three_and_four(opened: Any) -> None:
    cell = opened("channel")
    for word in (b"a" * 24, bytes(range(24))):
        cell.exchange.send(word)
        assert cell.exchange.receive(24, soon()) == word
    ended = cell.end()
    assert ended.code == 0, "it read the end of the channel"
    assert ended.output == "0 0\nerr\n"
    assert cell.end() is ended


def test_a_channel_carries_megabytes_both_ways(opened: Any) -> None:
    """More than every buffer between holds: who writes must also read."""
    cell = opened("echo")
    data = bytes(range(256)) * 24 * 1024
    sender = threading.Thread(target=cell.exchange.send, args=(data[: 24 * 2000],))
    sender.start()
    assert cell.exchange.receive(24 * 2000, soon()) == data[: 24 * 2000]
    sender.join()


def test_output_does_not_block_the_channel(opened: Any) -> None:
    cell = opened("noisy")
    cell.exchange.send(b"x" * 24)
    assert cell.exchange.receive(24, soon()) == b"x" * 24
    assert f"{(4 << 20) - 2 * KEPT} bytes" in cell.end().output


def test_an_answer_that_does_not_come_is_not_waited_for(opened: Any) -> None:
    cell = opened("stuck")
    assert cell.exchange.receive(1, soon()) == b"x"
    began = time.monotonic()
    with pytest.raises(CellGone):
        cell.exchange.receive(1, soon(0.3))
    assert time.monotonic() - began > 0.2


def test_a_program_that_ended_is_noticed(opened: Any) -> None:
    cell = opened("exit", "5")
    with pytest.raises(CellGone):
        cell.exchange.receive(1, soon())
    assert cell.end().code == 5


def test_what_nobody_asked_for_stays_in_the_pipe(opened: Any) -> None:
    cell = opened("flood")
    time.sleep(1)
    assert len(cell.exchange.receive(1 << 20, soon())) == 1 << 20
    assert cell.end().code is None


def test_programs_are_interrupted_from_another_thread(cells: Containers, probe: Any, opened: Any) -> None:

    def later() -> None:
        wait(lambda: b"./probes\0stubborn" in b"".join(_command_lines()), "its program")
        cells.interrupt()

    with ThreadPoolExecutor(1) as thread:
        interrupted = thread.submit(later)
        assert probe("stubborn", limit=LONG_S)[0].code == 128 + signal.SIGKILL
        interrupted.result()
    cell = opened("stuck")
    cells.interrupt()
    with pytest.raises(CellGone):
        cell.exchange.receive(2, soon())
    cell.end()


def test_what_a_compiler_leaves_behind_ends_before_the_next_program_is_timed(
    cells: Containers, probe: Any, opened: Any
) -> None:
    """Nobody waits for the end of a container whose file was taken, until then."""
    assert probe("endless", takes="out", cap=8 << 20)[1] is not None
    cell = opened("echo")
    cell.freeze()
    cell.batch(0.1)
    assert b"./probes\0endless" not in b"".join(_command_lines())


def test_while_a_program_runs_one_container_is_ready_and_afterwards_all(make: Any, probes: bytes) -> None:
    """Each start takes a core from the program."""
    sandbox = make(size=3, name="few")
    cell = sandbox.open(probes, ["echo"])
    wait(lambda: _ready(sandbox) == 1, "the next container")
    time.sleep(1)  # no second one comes
    assert _ready(sandbox) == 1
    cell.end()
    wait(lambda: _ready(sandbox) == 3, what="a full pool")


def test_no_container_starts_while_a_program_is_timed(make: Any, probes: bytes) -> None:
    """From a batch until the next program: a start would take a core from it."""
    sandbox = make(size=3, name="timed")
    cell = sandbox.open(probes, ["echo"])
    cell.freeze()
    cell.batch(0.1)
    started = _left(sandbox)[0]
    time.sleep(0.7)
    assert _left(sandbox)[0] == started < 4
    cell.end()
    wait(lambda: _ready(sandbox) == 3, what="a full pool")


@pytest.mark.parametrize("programs", [8, pytest.param(50, marks=pytest.mark.long)])
def test_nothing_is_left_of_several_programs(make: Any, probe: Any, cells: Containers, programs: int) -> None:
    """Containers of earlier tests may still be on their way out, so fewer than before are right too."""
    sandbox = make(size=2, name="several")
    wait(lambda: _ready(cells) == 1, "the container that others keep")
    before = _left(sandbox)
    for number in range(programs):
        assert probe("exit", str(number), sandbox=sandbox)[0].code == number
    sandbox.close()
    wait(lambda: all(map(le, _left(sandbox), before)), "the engine has taken all of it away")


def test_leftovers_of_a_dead_listener_are_removed(engine: str, make: Any) -> None:
    script = (
        "import os, sys, time\nfrom steno.engine.listener.sandbox import Containers, ContainerLimits\n"
        "limits = ContainerLimits(image='steno-lab/kernel:1', memory=1 << 28)\n"
        f"sandbox = Containers(limits, url={engine!r}, name='dead')\n"
        "sandbox.run(['true'], {}, limit=9)\nos._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 9
    living, other = make(name="dead", size=1), make(name="alive", size=1)
    living.run(["true"], {}, limit=9)
    other.run(["true"], {}, limit=9)
    assert other.remove_leftovers() == 0
    assert living.remove_leftovers() >= 1
    assert living.remove_leftovers() == 0
    assert living.run(["true"], {}, limit=9)[0].code == 0


def test_an_engine_that_cannot_kill_what_just_ended_is_asked_again(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Docker answers 500 ("Could not kill running container … is not running") if the container ends meanwhile."""
    from docker.api.client import APIClient
    from docker.errors import APIError
    from requests import Response

    sandbox = make(size=1, name="ending")
    sandbox.run(["true"], {}, limit=9)
    really, refused = APIClient.remove_container, []

    def remove_container(client: APIClient, container: str, **options: Any) -> None:
        if container not in refused:
            refused.append(container)
            answer = Response()
            answer.status_code, answer.raw = 500, io.BytesIO()
            raise APIError("Server Error", response=answer, explanation="is not running")
        really(client, container, **options)

    monkeypatch.setattr(APIClient, "remove_container", remove_container)
    sandbox.close()
    assert refused
    assert make(name="ending").daemon.labelled("steno.listener=ending") == []


def test_containers_that_stopped_in_the_pool_are_replaced(make: Any) -> None:
    """All of them, as after a restart of the engine."""
    sandbox = make(size=5, name="stopped")
    sandbox.run(["true"], {}, limit=9)
    wait(lambda: _ready(sandbox) == 5, what="a full pool")
    for waiting in sandbox.warm().ready:
        waiting.kill()
    assert sandbox.run(["true"], {}, limit=9)[0].code == 0


def test_a_missing_image_or_engine_is_one_sentence(make: Any, engine: str) -> None:
    with pytest.raises(SandboxUnavailable, match=r"steno-lab/none:1.*docker pull"):
        make(image="steno-lab/none:1").run(["true"], {}, limit=9)
    nowhere = Containers(ContainerLimits(image="any"), url="tcp://127.0.0.1:1")
    with pytest.raises(SandboxUnavailable, match=r"No Docker engine answers.*systemctl start docker"):
        nowhere.run(["true"], {}, limit=9)
    nowhere.close()


def test_health_names_what_is_missing(make: Any) -> None:
    well = make().health()
    assert well.problems == ()
    assert well.engine
    assert well.free_bytes
    ill = make(image="steno-lab/none:1", devices=("/dev/kfd-of-nobody", "/dev/null")).health()
    assert len(ill.problems) == 2
    assert "steno-lab/none:1" in ill.problems[0]
    assert "/dev/kfd-of-nobody" in ill.problems[1]
    unreachable = Containers(ContainerLimits(image="any"), url="tcp://127.0.0.1:1").health()  # a closed port
    assert unreachable.engine is None
    assert "No Docker engine answers" in unreachable.problems[0]


@pytest.mark.parametrize(
    ("version", "known"),
    [("1.1.5+ds1", True), ("1.2.7", True), ("1.2.8", False), ("1.3.2", True), ("1.3.3", False), ("1.4.0-rc.1", False)],
)
def test_a_runtime_with_known_escapes_is_named(version: str, known: bool) -> None:
    assert escapes(version) is known


def test_a_missing_sdk_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(SandboxUnavailable, match=r"make .*setup EXTRAS=listener"):
        Containers(ContainerLimits(image="any")).remove_leftovers()


def _ready(sandbox: Containers) -> int:
    """How many containers were started ahead of need."""
    return len(sandbox.warm().ready)


def _left(sandbox: Containers) -> tuple[int, int, int]:
    """This sandbox's containers, the programs that sleep in containers, and the engine's mounts of containers."""
    name = sandbox._labels["steno.listener"]
    containers = len(sandbox.daemon.labelled(f"steno.listener={name}"))
    programs = sum(line.startswith(b"./probes") for line in _command_lines())
    with sandbox.daemon.client() as client:
        root = client.info()["DockerRootDir"]
    mounts = sum(line.split()[1].startswith(f"{root}/") for line in Path("/proc/mounts").read_text().splitlines())
    return containers, programs, mounts


def _command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes()
        except OSError:
            continue
