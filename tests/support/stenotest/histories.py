"""Coherent histories of one run, as a dstack server could have shown them: a Hypothesis strategy.

Jobs advance each in their own time; the run lags behind them; a failure the retry policy covers goes back to
`pending` and starts a new attempt on every job; one it does not cover ends the run and the server terminates the
other jobs. A user may stop or abort it.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from steno.engine.providers.dstack.words import RETRY_EVENT_OF
from stenotest.dstack_history import Item, job, run_item, submission
from stenotest.machines import MachineHistory

_WAY = ("submitted", "provisioning", "pulling", "running")
_ENDS: dict[str, tuple[str, str, int | None]] = {
    "exit 0": ("done", "done_by_runner", 0),
    "exit 1": ("failed", "container_exited_with_error", 1),
    "exit 137": ("failed", "container_exited_with_error", 137),
    "no capacity": ("failed", "failed_to_start_due_to_no_capacity", None),
    "interrupted": ("failed", "interrupted_by_no_capacity", None),
    "unreachable": ("failed", "instance_unreachable", None),
    "too long": ("terminated", "max_duration_exceeded", None),
}


@dataclass(slots=True)
class History:
    """The items that the server showed, one a moment, in order."""

    items: list[Item]
    state: str
    """The verdict it must lead to, known from how it was made."""
    exit_status: int | None
    settled_from: int
    """The first item that is decisive."""


@dataclass(slots=True)
class _Job:
    number: int
    status: str = "submitted"
    reason: str | None = None
    exit_status: int | None = None
    past: list[Item] = field(default_factory=list)
    attempt: int = 0

    def shown(self, retry: list[str] | None) -> Item:
        finished = 100.0 + self.attempt if self.status in ("done", "failed", "terminated", "aborted") else None
        now = submission(
            self.status,
            num=self.attempt,
            exit_status=self.exit_status,
            reason=self.reason,
            finished=finished,
            hostname="10.0.0.1",
            price=1.99,
        )
        return job(*self.past, now, number=self.number, retry=retry)

    def again(self) -> None:
        self.past.append(
            submission(self.status, num=self.attempt, exit_status=self.exit_status, reason=self.reason, finished=100.0)
        )
        self.attempt += 1
        self.status, self.reason, self.exit_status = "submitted", None, None


class _Server:
    """Shows the run after every move."""

    def __init__(self, name: str, jobs: int, retry: list[str] | None) -> None:
        self.name = name
        self.jobs = [_Job(number) for number in range(jobs)]
        self.retry = retry
        self.status = "submitted"
        self.reason: str | None = None
        self.items: list[Item] = []
        self.show()

    def show(self) -> None:
        jobs = [job.shown(self.retry) for job in self.jobs]
        self.items.append(run_item(self.name, self.status, *jobs, reason=self.reason, cost=len(self.items) / 1000))

    def turn(self, status: str, reason: str | None = None) -> None:
        self.status, self.reason = status, reason
        self.show()

    def end_jobs(self, reason: str, status: str = "terminated") -> None:
        """The server ends what still runs: told to at once, gone one by one."""
        left = [job for job in self.jobs if job.exit_status is None and job.status not in _FINAL]
        for task in left:
            task.status, task.reason = "terminating", task.reason or reason
        self.show()
        for task in left:
            task.status = _final_of(task, status)
            self.show()
        for task in self.jobs:
            if task.status == "terminating":
                task.status = _final_of(task, status)
                self.show()


_FINAL = ("done", "failed", "terminated", "aborted")


def _final_of(job: _Job, default: str) -> str:
    return next((status for status, reason, _ in _ENDS.values() if reason == job.reason), default)


@st.composite
def histories(draw: Any, name: str = "a-run") -> History:
    """A run from its submission to its end."""
    events = st.lists(st.sampled_from(["error", "no-capacity", "interruption"]), unique=True, min_size=1)
    retry = draw(st.none() | events)
    server = _Server(name, draw(st.integers(1, 3)), retry)
    attempts = draw(st.integers(0, 2))
    for _ in range(attempts + 1):
        stop = draw(st.sampled_from([None, None, None, "stopped_by_user", "aborted_by_user"]))
        if _play(draw, server, stop):
            break
        for task in server.jobs:
            task.again()
        server.turn("submitted")
    else:
        if server.status != "terminating":
            # Out of attempts: the server gives up on the newest submissions as they stand.
            stop = "stopped_by_user"
            server.turn("terminating", stop)
            server.end_jobs("terminated_by_user")
            server.turn("terminated", stop)
    return _judged(server)


def _play(draw: Any, server: _Server, stop: str | None) -> bool:
    """Plays an attempt; true if the run is over."""
    stop_after = draw(st.integers(0, 3 * len(server.jobs))) if stop else -1
    moves = [job for job in server.jobs for _ in _WAY[1:]]
    order = draw(st.permutations(moves)) if len(server.jobs) > 1 else moves
    lag = draw(st.integers(0, 4))
    for index, task in enumerate(order):
        if index == stop_after:
            return _stopped(server, stop or "")
        task.status = _WAY[_WAY.index(task.status) + 1]
        server.show()
        if index >= lag and server.status in ("submitted", "provisioning"):
            ready = all(other.status == "running" for other in server.jobs)
            server.turn("running" if ready else "provisioning")
    if stop:
        return _stopped(server, stop)
    for task in draw(st.permutations(server.jobs)):
        ending, reason, exit_status = _ENDS[draw(st.sampled_from(sorted(_ENDS)))]
        task.status, task.reason, task.exit_status = "terminating", reason, exit_status
        server.show()
        if exit_status == 0:
            if draw(st.booleans()):
                task.status = ending
                server.show()
            continue
        covered = RETRY_EVENT_OF[reason] in (server.retry or [])
        if draw(st.booleans()) and len(server.jobs) == 1:
            task.status = ending
            server.show()
        if covered:
            server.turn("pending")
            server.end_jobs("terminated_by_server")
            return False
        server.turn("terminating", "job_failed")
        server.end_jobs("terminated_by_server")
        server.turn("failed", "job_failed")
        return True
    server.turn("terminating", "all_jobs_done")
    server.end_jobs("done_by_runner", "done")
    server.turn("done", "all_jobs_done")
    return True


def _stopped(server: _Server, reason: str) -> bool:
    server.turn("terminating", reason)
    if reason == "aborted_by_user":
        server.end_jobs("aborted_by_user", "aborted")
    else:
        server.end_jobs("terminated_by_user")
    server.turn("terminated", reason)
    return True


def _judged(server: _Server) -> History:
    last = server.items[-1]
    state = {"done": "succeeded", "failed": "failed", "terminated": "stopped"}[last["status"]]
    newest = [job["job_submissions"][-1] for job in last["jobs"]]
    exits = [attempt["exit_status"] for attempt in newest]
    # The status of the job that failed: a job that exited 0 did not.
    exit_status = next((code for code in exits if code), None if state == "failed" else exits[0])
    if all(code == 0 for code in exits):
        state = "succeeded"
    return History(server.items, state, exit_status, _first_decisive(server.items))


def _first_decisive(items: list[Item]) -> int:
    """By the words alone: every job's newest submission over, and nobody going to try again."""
    for index, item in enumerate(items):
        if item["status"] in ("done", "failed", "terminated"):
            return index
        over = [
            attempt["exit_status"] is not None or attempt["status"] in _FINAL
            for attempt in (job["job_submissions"][-1] for job in item["jobs"])
        ]
        if all(over) and item["status"] != "pending":
            if item["status"] == "terminating":
                return index
            if all(_final_word(job) for job in item["jobs"]):
                return index
    return len(items) - 1


def _final_word(job: Item) -> bool:
    attempt = job["job_submissions"][-1]
    covered = (job["job_spec"]["retry"] or {}).get("on_events", [])
    if attempt["exit_status"] is None and attempt["termination_reason"] in (
        "terminated_by_server",
        "terminated_by_user",
    ):
        return False
    return RETRY_EVENT_OF[attempt["termination_reason"]] not in covered


def rows_of(tale: History | MachineHistory, place: int, doubled: int | None = None) -> list[Item]:
    """The rows of a run or machine at a moment; where doubled, also the row of another moment."""
    if doubled is None:
        return [tale.items[place]]
    other = max(0, min(place + doubled, len(tale.items) - 1))
    return [tale.items[place], tale.items[other]][:: 1 if doubled % 2 else -1]
