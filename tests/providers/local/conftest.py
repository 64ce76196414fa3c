"""Real processes for the tests of the local provider, and the check that none is left behind."""

import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engine.providers.base import Submission
from engine.providers.local.provider import LocalProvider
from engine.providers.local.tree import kill_marked, marked
from events.clock import RandomIds, SystemClock
from events.poll import Poll


class Machine:
    """This machine as a provider, with what a test needs to look at it."""

    def __init__(self, state: Path, base: Path) -> None:
        self.state = state
        self.base = base
        self.runs: list[str] = []
        self.provider = self.another()

    def another(self, **options: Any) -> LocalProvider:
        """A provider over the same state, as another process has it."""
        return LocalProvider(
            self.state, clock=SystemClock(), ids=RandomIds(), host="here", environment=os.environ, **options
        )

    def offers(self, **options: Any) -> None:
        """From now on new machines are like this."""
        self.provider = self.another(**options)

    def send(self, *commands: str, slot: str | None = None, creation: str = "reuse-or-create", **fields: object) -> str:
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

    def submit(self, *commands: str, name: str | None = None, **fields: object) -> str:
        return self.provider.submit(self.submission(*commands, name=name, **fields)).provider_id

    def poll(self) -> Poll:
        """The listing of runs."""
        poll, *_ = self.provider.poll((), since=None)
        return poll

    def machines(self) -> list[dict[str, object]]:
        """The listing of machines."""
        _, poll = self.provider.poll((), since=None)
        found: list[dict[str, object]] = msgspec.json.decode(poll.body or b"")
        return found

    def the_machine(self) -> dict[str, object]:
        """The only one there ever was."""
        (found,) = self.machines()
        return found

    def pid_of_machine(self, vm_id: object) -> int:
        started = self.state / ".machines" / str(vm_id) / "started.json"
        until(started.exists)
        return int(msgspec.json.decode(started.read_bytes())["pid"])

    def processes(self) -> list[int]:
        """Process ids of the machines that are kept warm."""
        return living_machines(self.state)

    def until(self, condition: Callable[[], object], patience: float = 10) -> None:
        until(condition, patience)

    def is_at(self, *statuses: str) -> bool:
        """Whether the machines, newest first, are at these."""
        return tuple(item["status"] for item in self.machines()) == statuses

    def item(self, run_id: str) -> dict[str, object]:
        found = {item["id"]: item for item in msgspec.json.decode(self.poll().body or b"")}
        return found[run_id]

    def words(self, run_id: str) -> tuple[object, ...]:
        """Run's status and reason, job's status, reason and exit status."""
        item = self.item(run_id)
        (job,) = item["jobs"][0]["job_submissions"]  # type: ignore[index]
        return (
            item["status"],
            item["termination_reason"],
            job["status"],
            job["termination_reason"],
            job["exit_status"],
        )

    def end(self, run_id: str, patience: float = 15) -> tuple[object, ...]:
        """The words at the run's end."""
        until(lambda: self.words(run_id)[0] in {"done", "failed", "terminated"}, patience)
        return self.words(run_id)

    def output(self, run_id: str, *, follow: bool = True) -> bytes:
        return b"".join(self.provider.logs(run_id, "", follow=follow))

    def supervisor(self, run_id: str) -> int:
        started = self.state / run_id / "started.json"
        until(started.exists)
        return int(msgspec.json.decode(started.read_bytes())["supervisor"])

    def kill_supervisor(self, run_id: str) -> None:
        """SIGKILL, and wait until it is gone: its lock falls with it."""
        supervisor = self.supervisor(run_id)
        os.kill(supervisor, signal.SIGKILL)
        until(lambda: not alive(supervisor))

    def wait_for(self, file: str) -> str:
        """What a command wrote into a file of the base folder."""
        path = self.base / file
        until(lambda: path.exists() and path.read_text().endswith("\n"))
        return path.read_text().strip()


def until(condition: Callable[[], object], patience: float = 10) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Whether that process runs (a zombie does not)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def living_machines(state: Path) -> list[int]:
    """Processes that are machines of this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(word.startswith(f"{state}/.machines/".encode()) for word in words):
            found.append(int(entry.name))
    return found


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine with no runs; at the end whatever still runs is ended, and nothing may be left."""
    base = tmp_path / "work"
    base.mkdir()
    machine = Machine(tmp_path / "record.local", base)
    yield machine
    provider = machine.another()
    for run_id in machine.runs:
        if (machine.state / run_id / "started.json").exists():
            provider.stop(run_id, "", True)
            until(lambda run_id=run_id: not _active(provider, run_id))
    machine.provider = provider
    for item in machine.machines() if machine.state.is_dir() else ():
        if item["status"] != "terminated":
            provider.stop_vm(str(item["id"]))
    until(lambda: not machine.state.is_dir() or all(item["status"] == "terminated" for item in machine.machines()))
    until(lambda: not living_machines(machine.state))
    left = {run_id: marked(run_id) for run_id in machine.runs}
    for run_id in left:
        kill_marked(run_id)
    assert not any(left.values()), f"processes left behind: {left}"


def _active(provider: LocalProvider, run_id: str) -> bool:
    poll, _ = provider.poll((run_id,), since=None)
    items = {item["id"]: item["status"] for item in msgspec.json.decode(poll.body or b"[]")}
    return items.get(run_id) not in {"done", "failed", "terminated", None}
