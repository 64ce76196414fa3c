"""Programs are frozen and thawed by their control group: in containers, and with processes in a group of cgroup v2."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from stenotest.waiting import wait

from steno.engine.kernel.machine.clock import Group
from steno.engine.kernel.machine.exchange import CellGone
from steno.engine.listener.container import _Engine
from steno.engine.listener.daemon import Daemon, SandboxUnavailable

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("docker")]

UNIFIED = next(
    (path for path in map(Path, ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")) if (path / "cgroup.procs").exists()), None
)


def soon(seconds: float = 120) -> float:
    return time.monotonic() + seconds


def test_a_frozen_program_does_nothing_until_it_is_thawed(opened: Any) -> None:
    """Nor is it in the way of its end."""
    cell = opened("echo")
    cell.freeze()
    cell.exchange.send(b"x" * 24)
    with pytest.raises(CellGone):
        cell.exchange.receive(24, soon(0.5))
    cell.thaw()
    assert cell.exchange.receive(24, soon()) == b"x" * 24
    cell.freeze()
    assert cell.end().code == 0


def test_a_batch_ends_at_its_limit_frozen(opened: Any) -> None:
    """The program, which spins, does not say that it is done."""
    cell = opened("spin")
    cell.freeze()
    timed = cell.batch(0.3)
    assert (timed.done, timed.ms >= 300) == (False, True)
    assert timed.cpu_ms > 0
    before = cell.cpu_ms()
    time.sleep(0.2)  # in which a program that spins would use its processor
    assert cell.cpu_ms() == before


def test_the_engine_freezes_where_the_control_group_cannot_be_written(opened: Any) -> None:
    """It takes longer, so the times are coarse."""
    cell = opened("spin")
    cell.freezer = _Engine(cell._daemon, cell.name)
    cell.freeze()
    timed = cell.batch(0.3)
    assert (timed.done, timed.ms >= 300) == (False, True)
    cell.end()


def test_an_engine_that_gives_up_is_asked_again(opened: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As runc does on a crowded machine; an engine that always refuses is to blame, and not the program."""
    cell, pause, asks = opened("spin"), Daemon.pause, list[bool]()
    cell.freezer = _Engine(cell._daemon, cell.name)

    def gives_up(daemon: Daemon, container: str, *, paused: bool) -> None:
        asks.append(paused)
        if len(asks) <= refusals:
            raise SandboxUnavailable("unable to freeze")
        pause(daemon, container, paused=paused)

    monkeypatch.setattr(Daemon, "pause", gives_up)
    refusals = 2
    cell.freeze()
    before = cell.cpu_ms()
    time.sleep(0.2)
    assert (asks, cell.cpu_ms()) == ([True, True, True], before)
    cell.thaw()
    refusals = 10**9
    with pytest.raises(SandboxUnavailable, match="unable to freeze"):
        cell.freeze()
    monkeypatch.undo()
    cell.end()


@pytest.mark.skipif(
    UNIFIED is None or not os.access(UNIFIED, os.W_OK), reason="cgroup v2 is not mounted here, or this is not root"
)
def test_cgroup_v2_freezes_processes_too(tmp_path: Path) -> None:
    """As the kernel reports; the program counts until then, and no further."""
    assert UNIFIED is not None
    folder = UNIFIED / f"steno-test-{os.getpid()}"
    folder.mkdir()
    script = "import sys\nfor n in range(10**9):\n  sys.stdout.write('x'); sys.stdout.flush()"
    out = tmp_path / "out"
    with out.open("w") as file, subprocess.Popen([sys.executable, "-c", script], stdout=file) as program:
        try:
            (folder / "cgroup.procs").write_text(str(program.pid))
            group = Group(folder)
            assert group.freeze()
            before = out.stat().st_size
            time.sleep(0.2)
            assert out.stat().st_size == before
            os.mkfifo(tmp_path / "done")

            def counted() -> bool:
                times = group.batch(tmp_path / "done", 0.3)
                assert (times["came"], group.frozen) == (None, True)
                return out.stat().st_size > before

            wait(counted, "a batch in which the program got a processor")
        finally:
            program.kill()
            group.thaw()
            program.wait()
            folder.rmdir()
