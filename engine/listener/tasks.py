"""The tasks of one machine: one runs at a time, few wait, and the result of each is kept until the engine has it."""

from __future__ import annotations

import hashlib
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steno.engine.errors import Conflict
from steno.engine.kernel.machine.batches import BROKEN
from steno.engine.kernel.machine.cells import Cells, Stopped
from steno.engine.kernel.machine.framing import Teller
from steno.engine.kernel.machine.judge import Judge
from steno.events.errors import StenoError

QUEUED, RUNNING, ENDED, CANCELLED, TIMED_OUT = "queued", "running", "ended", "cancelled", "timed_out"
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_LONGEST = 3600.0  # seconds of a task that names no limit
_MOST_LINES = 20_000  # of one task; the rest is dropped


class QueueFull(StenoError):
    """The queue is full."""


class TaskNotFound(StenoError):
    """No such task, or its result was acknowledged."""


@dataclass
class MachineTask:
    """`lines`: the judge's frames and output so far; `code`: its exit status once it ended. Times are microseconds
    since the epoch by this machine's clock.
    """

    task_id: str
    digest: str
    job: dict[str, Any] | None = None  # None once it is not needed
    name: str = ""  # for people
    state: str = QUEUED
    lines: list[str] = field(default_factory=list)
    code: int | None = None
    queued_at: int = 0
    started_at: int | None = None
    ended_at: int | None = None

    def facts(self, *without: str) -> dict[str, Any]:
        """Everything except the job, and the other keys that are named."""
        return {key: value for key, value in vars(self).items() if key not in ("job", *without)}


class Tasks:
    """Thread-safe. `cells` runs the programs; `folder` keeps results over a restart; `room` tasks may wait."""

    def __init__(self, cells: Cells, folder: Path, *, room: int = 16) -> None:
        self._cells = cells
        self._folder = folder
        self._room = room
        self._tasks = dict[str, MachineTask]()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in folder.glob("*.task"):  # of an earlier listener
            with suppress(OSError, ValueError, TypeError):
                task = MachineTask(**json.loads(path.read_text("utf-8")))
                self._tasks[task.task_id] = task
        self._change = threading.Condition()
        self._closed = False
        self._version = 1  # counts the moves of all tasks
        self._judge = ThreadPoolExecutor(1, "steno-judge")

    @property
    def idle(self) -> bool:
        with self._change:
            return all(task.ended_at is not None for task in self._tasks.values())

    def execute(self, task_id: str, job: object, name: str = "") -> MachineTask:
        """Take a task; a known task is only looked up. Raises `Conflict` (the id is another task's), `QueueFull`,
        ValueError (no id, or no job).
        """
        if not _ID.fullmatch(task_id):
            raise ValueError("task_id: 1 to 100 letters, digits, dots, dashes and underscores")
        if not isinstance(job, dict):
            raise ValueError("job: a JSON object is expected")  # noqa: TRY004 - it is the sender's mistake
        if missing := {"solution", "language", "tests", "limits"} - job.keys():
            raise ValueError(f"job: {', '.join(sorted(missing))} missing")
        limit = job.get("max_duration", _LONGEST)
        if not isinstance(limit, int | float) or isinstance(limit, bool) or not 0 < limit <= threading.TIMEOUT_MAX:
            raise ValueError(f"job.max_duration: a number of seconds above 0 is expected, not {limit!r}")
        digest = hashlib.sha256(json.dumps(job, sort_keys=True).encode()).hexdigest()
        with self._change:
            known = self._tasks.get(task_id)
            if known is not None:
                if known.digest != digest:
                    raise Conflict(f"the task {task_id} has another job: choose a new id")
                return known
            waiting = sum(task.state == QUEUED for task in self._tasks.values())
            if waiting >= self._room:
                raise QueueFull(f"{waiting} tasks wait already: ask again later")
            task = self._tasks[task_id] = MachineTask(task_id, digest, job, name, queued_at=_now())
            self._moved()
            self._judge.submit(self._work, task)
            return task

    def listing(self, known: int, wait: float) -> tuple[int, list[dict[str, Any]]]:
        """The version of the list, and every task without its lines; at once if the version is not `known`, else after
        the next move, at the latest after `wait` seconds.
        """
        with self._change:
            self._change.wait_for(lambda: self._version != known, wait)
            return self._version, [task.facts("digest", "lines") for task in self._tasks.values()]

    def news(self, task_id: str, after: int, wait: float) -> tuple[MachineTask, list[str]]:
        """A task and its lines after the first `after`, as soon as there are any or it has ended; at the latest after
        `wait` seconds. Raises `TaskNotFound`.
        """

        def is_news() -> bool:
            task = self._tasks.get(task_id)
            return task is None or task.ended_at is not None or len(task.lines) > after

        with self._change:
            self._change.wait_for(is_news, wait)
            task = self._task(task_id)
            return task, task.lines[after:]

    def cancel(self, task_id: str) -> MachineTask:
        """End a task in any state; an ended task stays the same. Raises `TaskNotFound`."""
        with self._change:
            task = self._task(task_id)
            if task.state == QUEUED:
                self._end(task, CANCELLED, None)
            self._break_off(task, CANCELLED)
            return task

    def acknowledge(self, task_id: str) -> None:
        """Forget a task that has ended: its engine has the result. Raises `TaskNotFound`, `Conflict`."""
        with self._change:
            if self._task(task_id).ended_at is None:
                raise Conflict(f"the task {task_id} has not ended: cancel it first")
            del self._tasks[task_id]
            self._path(task_id).unlink(missing_ok=True)
            self._moved()

    def close(self) -> None:
        """End the running task, and wait for that."""
        with self._change:
            self._closed = True
            if not self.idle:
                self._interrupt()
        self._judge.shutdown(cancel_futures=True)

    def _interrupt(self) -> None:
        """In a thread of its own: nothing here waits for the container engine."""
        threading.Thread(target=self._cells.interrupt, daemon=True).start()

    def _task(self, task_id: str) -> MachineTask:
        if task_id not in self._tasks:
            raise TaskNotFound(f"there is no task {task_id} here")
        return self._tasks[task_id]

    def _work(self, task: MachineTask) -> None:
        with self._change:
            if self._closed or task.state != QUEUED:
                return
            task.state, task.started_at = RUNNING, _now()
            self._moved()
        limit = float((task.job or {}).get("max_duration", _LONGEST))
        timer = threading.Timer(limit, self._break_off, (task, TIMED_OUT))
        timer.daemon = True
        timer.start()
        code = self._judged(task)
        timer.cancel()
        with self._change:
            if not self._closed:
                ended = task.state == RUNNING
                self._end(task, ENDED if ended else task.state, code if ended else None)

    def _break_off(self, task: MachineTask, state: str) -> None:
        with self._change:
            if task.state == RUNNING:
                task.state = state
                self._moved()
                self._interrupt()

    def _judged(self, task: MachineTask) -> int | None:
        def tell(line: str) -> None:
            with self._change:
                if len(task.lines) < _MOST_LINES:
                    task.lines.append(line)
                self._change.notify_all()

        teller = Teller(tell)
        self._cells.stops = lambda: self._closed or task.state != RUNNING
        try:
            return Judge(task.job or {}, self._cells, teller).run()
        except Stopped:
            return None
        except StenoError as error:  # the container engine is gone
            teller.say("ERROR", message=str(error))
        except Exception as error:  # noqa: BLE001 - a malformed job must not end the listener
            teller.say("ERROR", message=f"the job cannot be read ({type(error).__name__}: {error})")
        return BROKEN

    def _end(self, task: MachineTask, state: str, code: int | None) -> None:
        task.state, task.code, task.job, task.ended_at = state, code, None, _now()
        path = self._path(task.task_id)
        beside = path.with_suffix(".part")
        beside.write_text(json.dumps(task.facts()), "utf-8")
        beside.replace(path)
        self._moved()

    def _moved(self) -> None:
        self._version += 1
        self._change.notify_all()

    def _path(self, task_id: str) -> Path:
        return self._folder / f"{task_id}.task"


def _now() -> int:
    return time.time_ns() // 1000
