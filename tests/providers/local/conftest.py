"""Real processes for the tests of the local provider, and the check that none is left behind."""

import os
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stenotest.waiting import wait

from steno.engine.providers.base import StopTarget, Submission
from steno.engine.providers.local import provider as local_provider
from steno.engine.providers.local.placement import LocalOffer
from steno.engine.providers.local.provider import DEFAULT_OUTPUT_LIMIT, LocalProvider
from steno.engine.providers.local.tree import kill_marked, marked
from steno.events.clock import RandomIds, SystemClock
from steno.events.poll import Poll

HELD_MACHINE = """
import sys; sys.path.append(sys.argv[1])
from pathlib import Path
import steno.engine.providers.local.machine as machine
come_up = machine.Machine._come_up
machine.Machine._come_up = lambda self: Path({power!r}).exists() and come_up(self)
machine.main()
"""
HELD_SUPERVISOR = """
import sys; sys.path.append(sys.argv[1])
from pathlib import Path
import steno.engine.providers.local.supervisor as supervisor
waits = supervisor.Supervisor.waits.fget
supervisor.Supervisor.waits = property(lambda self: waits(self) if self._machine else not Path({power!r}).exists())
supervisor._MACHINE = {program!r}
supervisor.main()
"""


class Machine:
    """This machine as a provider, with what a test needs to look at it."""

    def __init__(self, state: Path, base: Path) -> None:
        self.state = state
        self.base = base
        self.runs: list[str] = []
        self.provider = self.another()

    def another(self, *, output_limit: int = DEFAULT_OUTPUT_LIMIT, **offer: Any) -> LocalProvider:
        """A provider over the same state, as another process has it."""
        return LocalProvider(
            self.state,
            clock=SystemClock(),
            ids=RandomIds(),
            host="here",
            environment=os.environ,
            output_limit=output_limit,
            offer=LocalOffer(**offer),
        )

    def offers(self, **options: Any) -> None:
        """From now on new machines are like this."""
        self.provider = self.another(**options)

    def boots_when_told(self, patch: pytest.MonkeyPatch, **options: Any) -> None:
        """From now on a new machine comes up after `power_on`, and not after a time that a test could miss."""
        power = str(self.base / "power")
        program = HELD_MACHINE.format(power=power)
        patch.setattr(local_provider, "_PROGRAM", HELD_SUPERVISOR.format(power=power, program=program))
        self.offers(boot=1, **options)

    def power_on(self) -> None:
        (self.base / "power").touch()

    gated = "until [ -e go ]; do sleep 0.02; done"
    """A command that goes on until `open`."""

    def open(self) -> None:
        (self.base / "go").touch()

    def submit(
        self, *commands: str, slot: str | None = None, creation: str = "reuse-or-create", **fields: object
    ) -> str:
        """Submit with a place: a slot, a creation policy."""
        submission = msgspec.structs.replace(self.submission(*commands, **fields), slot=slot, creation=creation)
        return self.provider.submit(submission).provider_id

    def new_id(self) -> str:
        self.runs.append(str(uuid.uuid4()))
        return self.runs[-1]

    def submission(
        self, *commands: str, run_id: str | None = None, name: str | None = None, **fields: object
    ) -> Submission:
        run_id = run_id or self.new_id()
        return Submission(
            run_id=run_id,
            name=name or f"run-{run_id[:8]}",
            project="here",
            configuration={"type": "task", "commands": list(commands), **fields},
            base=str(self.base),
        )

    def poll(self) -> Poll:
        """The listing of runs."""
        poll, *_ = self.provider.poll((), since=None)
        return poll

    def machines(self) -> list[dict[str, object]]:
        """The listing of machines."""
        _, poll = self.provider.poll((), since=None)
        machines: list[dict[str, object]] = msgspec.json.decode(poll.body or b"")
        return machines

    def the_machine(self) -> dict[str, object]:
        """The only one there ever was."""
        (machine,) = self.machines()
        return machine

    def pid_of_machine(self, vm_id: object) -> int:
        started = self.state / ".machines" / str(vm_id) / "started.json"
        wait(started.exists)
        return int(msgspec.json.decode(started.read_bytes())["pid"])

    def processes(self) -> list[int]:
        """Process ids of the machines that are kept warm."""
        return living_machines(self.state)

    def is_at(self, *statuses: str) -> bool:
        """True if the machines, newest first, have these statuses."""
        return tuple(item["status"] for item in self.machines()) == statuses

    def item(self, run_id: str) -> dict[str, object]:
        items = {item["id"]: item for item in msgspec.json.decode(self.poll().body or b"")}
        return items[run_id]

    def words(self, run_id: str) -> tuple[object, ...]:
        """The run's status, reason and exit status."""
        item = self.item(run_id)
        return item["status"], item["reason"], item["exit_status"]

    def end(self, run_id: str) -> tuple[object, ...]:
        """The words at the run's end."""
        wait(lambda: self.words(run_id)[0] == "ended")
        return self.words(run_id)

    def output(self, run_id: str, *, follow: bool = True) -> bytes:
        return b"".join(self.provider.logs(run_id, "", follow=follow))

    def supervisor(self, run_id: str) -> int:
        started = self.state / run_id / "started.json"
        wait(started.exists)
        return int(msgspec.json.decode(started.read_bytes())["supervisor"])

    def kill_supervisor(self, run_id: str) -> None:
        """SIGKILL, and wait until it is gone: its lock falls with it."""
        supervisor = self.supervisor(run_id)
        os.kill(supervisor, signal.SIGKILL)
        wait(lambda: not alive(supervisor))

    def wait_for(self, file: str) -> str:
        """The text that a command wrote into a file of the base folder."""
        path = self.base / file
        wait(lambda: path.exists() and path.read_text().endswith("\n"))
        return path.read_text().strip()

    def end_everything(self) -> None:
        """Every run is aborted, every machine told to go; returns when they have gone."""
        provider = self.another()
        for run_id in self.runs:
            if (self.state / run_id / "started.json").exists():
                provider.stop(StopTarget(provider_id=run_id, name="", abort=True))
                wait(lambda run_id=run_id: not _active(provider, run_id))
        self.provider = provider
        for item in self.machines() if self.state.is_dir() else ():
            if item["status"] != "gone":
                provider.stop_vm(str(item["id"]))
        wait(lambda: not self.state.is_dir() or all(item["status"] == "gone" for item in self.machines()))
        wait(lambda: not living_machines(self.state))
        wait(lambda: not any(map(marked, self.runs)))


def alive(pid: int) -> bool:
    """True if that process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def living_machines(state: Path) -> list[int]:
    """Processes that are machines of this folder."""
    pids = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(f"{state}/.machines/".encode()) for word in words):
            pids.append(int(entry.name))
    return pids


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine with no runs; at the end whatever still runs is ended, and nothing may be left, whoever failed."""
    base = tmp_path / "work"
    base.mkdir()
    machine = Machine(tmp_path / "record.local", base)
    yield machine
    try:
        machine.end_everything()
    finally:
        for pid in living_machines(machine.state):
            os.kill(pid, signal.SIGKILL)
        for run_id in machine.runs:
            kill_marked(run_id)


@contextmanager
def _engine(argv: list[str]) -> Iterator[subprocess.Popen[bytes]]:
    """A process that submits, as the leader of a group; killed at the end with all of that group."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, process_group=0) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def engine() -> Callable[[list[str]], AbstractContextManager[subprocess.Popen[bytes]]]:
    """`with engine(argv) as process`: another engine, which does not outlive the block."""
    return _engine


def _active(provider: LocalProvider, run_id: str) -> bool:
    poll, _ = provider.poll((run_id,), since=None)
    items = {item["id"]: item["status"] for item in msgspec.json.decode(poll.body or b"[]")}
    return items.get(run_id) not in {"ended", None}
