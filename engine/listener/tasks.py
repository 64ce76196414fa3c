"""The tasks of one machine: one runs at a time, few wait, and the result of each is kept until the engine has it."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.errors import Conflict
from engine.kernel.machine.calls import BROKEN
from engine.kernel.machine.cells import Cell, Cells, ProgramEnd
from engine.kernel.machine.frames import Teller
from engine.kernel.machine.judge import Judge
from events.errors import StenoError

QUEUED, RUNNING, ENDED, CANCELLED, TIMED_OUT = "queued", "running", "ended", "cancelled", "timed_out"
_BROKEN_OFF = frozenset({CANCELLED, TIMED_OUT})
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_LONGEST = 3600.0  # seconds of a task that names no limit
_MOST_LINES = 20_000  # of one task; the rest is dropped


class QueueFull(StenoError):
    """As many tasks wait as may."""


class TaskNotFound(StenoError):
    """No such task, or its result was acknowledged."""


class _Cancelled(BaseException):
    """Raised in the judge's thread."""


@dataclass
class MachineTask:
    """One task. `lines`: what the judge said so far, frames and output; `code`: its exit status once it ended. Times
    are microseconds since the epoch by this machine's clock.
    """

    task_id: str
    digest: str
    job: dict[str, Any] | None  # None once it is not needed
    name: str = ""  # for people
    state: str = QUEUED
    lines: list[str] = field(default_factory=list)
    code: int | None = None
    queued_at: int = 0
    started_at: int | None = None
    ended_at: int | None = None

    def shown(self) -> dict[str, Any]:
        """Everything except the job, its digest and its lines."""
        keys = ("task_id", "name", "state", "code", "queued_at", "started_at", "ended_at")
        return {key: getattr(self, key) for key in keys}


class Tasks:
    """Thread-safe. `cells` runs the programs; `folder` keeps results over a restart; `room` tasks may wait."""

    def __init__(self, cells: Cells, folder: Path, *, room: int = 16) -> None:
        self._cells = cells
        self._folder = folder
        self._room = room
        self._waiting: deque[MachineTask] = deque()
        self._tasks = {task.task_id: task for task in _kept(folder)}
        self._running: MachineTask | None = None
        self._change = threading.Condition()
        self._closed = False
        self._version = 1  # counts the moves of all tasks
        self._thread = threading.Thread(target=self._work, name="steno-judge", daemon=True)
        self._thread.start()

    @property
    def idle(self) -> bool:
        return self._running is None and not self._waiting

    def execute(self, task_id: str, job: dict[str, Any], name: str = "") -> MachineTask:
        """Take a task; one that was taken before is only looked up. Raises `Conflict` (the id is another task's),
        `QueueFull`, ValueError (no id, or no job).
        """
        if not _ID.fullmatch(task_id):
            raise ValueError("task_id: 1 to 100 letters, digits, dots, dashes and underscores")
        missing = {"key", "seed", "solution", "language", "tests", "limits"} - job.keys()
        if missing:
            raise ValueError(f"job: {', '.join(sorted(missing))} missing")
        digest = hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()
        with self._change:
            known = self._tasks.get(task_id)
            if known is not None:
                if known.digest != digest:
                    raise Conflict(f"the task {task_id} is another one: choose a new id")
                return known
            if len(self._waiting) >= self._room:
                raise QueueFull(f"{len(self._waiting)} tasks wait already: ask again later")
            task = self._tasks[task_id] = MachineTask(task_id, digest, job, name, queued_at=_now())
            self._waiting.append(task)
            self._moved()
            return task

    def listing(self, known: int, wait: float) -> tuple[int, list[dict[str, Any]]]:
        """The version of the list, and every task without its lines; at once if the version is not `known`, else after
        the next move, at the latest after `wait` seconds.
        """
        with self._change:
            self._change.wait_for(lambda: self._version != known, wait)
            return self._version, [task.shown() for task in self._tasks.values()]

    def news(self, task_id: str, after: int, wait: float) -> tuple[MachineTask, list[str]]:
        """A task and its lines after the first `after`, as soon as there are any or it has ended; at the latest after
        `wait` seconds. Raises `TaskNotFound`.
        """
        with self._change:
            self._change.wait_for(lambda: self._is_news(task_id, after), wait)
            task = self._task(task_id)
            return task, task.lines[after:]

    def cancel(self, task_id: str) -> MachineTask:
        """End a task, whatever it does; one that has ended stays as it is. Raises `TaskNotFound`."""
        with self._change:
            task = self._task(task_id)
            if task in self._waiting:
                self._waiting.remove(task)
                self._end(task, CANCELLED, None)
            elif task is self._running:
                task.state = CANCELLED
                self._moved()
                self._cells.interrupt()
            return task

    def acknowledge(self, task_id: str) -> None:
        """Forget a task that has ended: its engine has the result. Raises `TaskNotFound`, `Conflict` (it goes on)."""
        with self._change:
            task = self._task(task_id)
            if task in self._waiting or task is self._running:
                raise Conflict(f"the task {task_id} has not ended: cancel it first")
            del self._tasks[task_id]
            self._path(task_id).unlink(missing_ok=True)
            self._moved()

    def close(self) -> None:
        """End what runs, and wait for that."""
        with self._change:
            self._closed = True
            if self._running is not None:
                self._cells.interrupt()
            self._change.notify_all()
        self._thread.join()

    def _is_news(self, task_id: str, after: int) -> bool:
        task = self._tasks.get(task_id)
        return task is None or task.ended_at is not None or len(task.lines) > after

    def _task(self, task_id: str) -> MachineTask:
        if task_id not in self._tasks:
            raise TaskNotFound(f"there is no task {task_id} here")
        return self._tasks[task_id]

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._closed or bool(self._waiting))
                if self._closed:
                    return
                task = self._running = self._waiting.popleft()
                task.state, task.started_at = RUNNING, _now()
                self._moved()
            timer = threading.Timer(float((task.job or {}).get("max_duration", _LONGEST)), self._expire, (task,))
            timer.daemon = True
            timer.start()
            code = self._judged(task)
            timer.cancel()
            with self._change:
                self._running = None
                if not self._closed:
                    broken_off = task.state in _BROKEN_OFF
                    self._end(task, task.state if broken_off else ENDED, None if broken_off else code)

    def _expire(self, task: MachineTask) -> None:
        with self._change:
            if task is self._running and task.state == RUNNING:
                task.state = TIMED_OUT
                self._cells.interrupt()

    def _judged(self, task: MachineTask) -> int | None:
        def tell(line: str) -> None:
            with self._change:
                if len(task.lines) < _MOST_LINES:
                    task.lines.append(line)
                self._change.notify_all()

        job = task.job or {}
        teller = Teller(str(job["key"]), tell)
        try:
            return Judge(job, _Stoppable(self._cells, lambda: self._closed or task.state in _BROKEN_OFF), teller).run()
        except _Cancelled:
            return None
        except StenoError as error:  # the container engine is gone
            teller.say("ERROR", message=str(error))
        except Exception as error:  # noqa: BLE001 - a job that is no job must not end the listener
            teller.say("ERROR", message=f"the job cannot be read ({type(error).__name__}: {error})")
        return BROKEN

    def _end(self, task: MachineTask, state: str, code: int | None) -> None:
        task.state, task.code, task.job, task.ended_at = state, code, None, _now()
        kept = {**task.shown(), "digest": task.digest, "lines": task.lines}
        path = self._path(task.task_id)
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps(kept), "utf-8")
        beside.replace(path)
        self._moved()

    def _moved(self) -> None:
        self._version += 1
        self._change.notify_all()

    def _path(self, task_id: str) -> Path:
        return self._folder / f"{task_id}.task"


class _Stoppable(Cells):
    """Cells that open no more once they are to stop, so that the judge ends at its next step."""

    def __init__(self, cells: Cells, stops: Callable[[], bool]) -> None:
        super().__init__()
        self._cells, self._stops = cells, stops
        self.compilers, self.objects = cells.compilers, cells.objects

    def run(
        self, argv: Sequence[str], files: Mapping[str, bytes], *, limit: float, takes: str = "", cap: int = 0
    ) -> tuple[ProgramEnd, bytes | None]:
        self._check()
        found = self._cells.run(argv, files, limit=limit, takes=takes, cap=cap)
        self._check()
        return found

    def open(self, program: bytes, words: Sequence[str], *, limit: float) -> Cell:
        self._check()
        return self._cells.open(program, words, limit=limit)

    def interrupt(self) -> None:
        self._cells.interrupt()

    def _check(self) -> None:
        if self._stops():
            raise _Cancelled


def _now() -> int:
    return time.time_ns() // 1000


def _kept(folder: Path) -> Iterator[MachineTask]:
    """What an earlier listener left."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in folder.glob("*.task"):
        with suppress(OSError, ValueError, TypeError):
            yield MachineTask(job=None, **json.loads(path.read_text("utf-8")))
