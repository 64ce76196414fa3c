"""The runs of this machine, as one poll answers them."""

import logging
from collections.abc import Collection

import msgspec

from engine.providers.dstack.words import MARK
from engine.providers.local.instances import SHORT, WHOLE, AnswerPage, page, provisioning_data, question
from engine.providers.local.state import NO_CAPACITY, Accepted, RunState, StateDamaged, close_lost, read_state
from engine.providers.local.store import RunFolders
from events.clock import SECOND, Clock, foreign_run_id, format_time

_log = logging.getLogger(__name__)


class RunLister:
    """Reads the runs, those that have ended only once."""

    def __init__(self, store: RunFolders, host: str, clock: Clock) -> None:
        self.active: dict[str, RunState] = {}
        """The runs that went on at the last reading."""
        self.ended: list[RunState] = []
        """Those found ended since somebody last cleared this."""
        self._store = store
        self._host = host
        self._clock = clock
        self._past: dict[str, tuple[int, bytes]] = {}
        self._history_told = False

    def read(self, follow: Collection[str], since: int | None) -> AnswerPage:
        """The runs, newest first.

        The first answer, and any that lacks a followed run, is the history from `since` on; the others are every active
        and followed run and the newest hundred ended ones. A run whose supervisor was lost is brought to its end here.

        Raises:
            OSError: the state cannot be read.
        """
        self.active = {}
        damaged = False
        for run_id in self._store.run_ids():
            if run_id not in self._past:
                try:
                    self._look_at(run_id)
                except StateDamaged as error:
                    damaged = True  # one bad file must not hide the other runs
                    _log.warning("%s", error)
        past = sorted(self._past, key=lambda run_id: (self._past[run_id][0], run_id), reverse=True)
        short = self._history_told and all(run_id in self.active or run_id in self._past for run_id in follow)
        self._history_told = True
        shown = [
            run_id
            for rank, run_id in enumerate(past)
            if run_id in follow or (rank < SHORT if short else since is None or self._past[run_id][0] >= since)
        ]
        left_out = len(shown) < len(past)
        items = sorted((*map(self._item, self.active.values()), *map(self._past.__getitem__, shown)), reverse=True)
        return page(
            self._host,
            [item for _, item in items],
            limit=SHORT if short and left_out else WHOLE,
            complete=not left_out and not damaged,
        )

    def question(self) -> bytes:
        """What is asked, as JSON text."""
        return question(self._host, WHOLE)

    def _look_at(self, run_id: str) -> None:
        folder = self._store.folder(run_id)
        state = read_state(folder)
        if state is None or not state.known:
            return
        state = close_lost(folder, state, self._clock.now())
        if state.ended is None:
            self.active[run_id] = state
        else:
            self.ended.append(state)
            self._past[run_id] = self._item(state)

    def _item(self, state: RunState) -> tuple[int, bytes]:
        return state.accepted.at, msgspec.json.encode(run_item(state, self._host, self._clock.now()))


ENDS = {
    "done_by_runner": ("done", "all_jobs_done", "done"),
    "container_exited_with_error": ("failed", "job_failed", "failed"),
    "terminated_by_user": ("terminated", "stopped_by_user", "terminated"),
    "aborted_by_user": ("terminated", "aborted_by_user", "aborted"),
    "max_duration_exceeded": ("failed", "job_failed", "terminated"),
    "executor_error": ("failed", "job_failed", "failed"),
    "supervisor_lost": ("failed", "job_failed", "failed"),
    "instance_unreachable": ("failed", "job_failed", "failed"),
    NO_CAPACITY: ("failed", "job_failed", "failed"),
}
"""Why the job ended → run's status, run's termination reason, job's status: as real dstack servers pair them."""

_DOLLAR_HOUR = 1_000_000 * 3600 * SECOND
"""Micro-dollars an hour times microseconds in a dollar."""


def run_item(state: RunState, host: str, now: int) -> dict[str, object]:
    """One item of the listing: the subset of dstack's fields that mean something here; the host is the project."""
    accepted = state.accepted
    status, reason, job = _words(state)
    if accepted.machine is not None:
        job["job_provisioning_data"] = provisioning_data(accepted.machine, host, up=state.running)
    return {
        "id": accepted.run_id,
        "project_name": host,
        "user": accepted.user,
        "submitted_at": format_time(accepted.at),
        "status": status,
        "status_message": status,
        "termination_reason": reason,
        "run_spec": {
            "run_name": accepted.name,
            "working_dir": accepted.folder,
            "configuration": {**accepted.configuration, "type": "task", "tags": {MARK: accepted.mark}},
            "ignored": accepted.ignored,
        },
        "jobs": [{"job_spec": _job_spec(accepted), "job_submissions": [job]}],
        "latest_job_submission": job,
        "cost": _cost(state, now),
        "deleted": False,
    }


def _words(state: RunState) -> tuple[str, str | None, dict[str, object]]:
    ended = state.ended
    job: dict[str, object] = {
        "id": foreign_run_id("local-job", state.accepted.run_id),
        "submission_num": 0,
        "submitted_at": format_time(state.accepted.at),
        "finished_at": None,
        "status": "submitted",
        "status_message": "submitted",
        "termination_reason": None,
        "termination_reason_message": None,
        "exit_status": None,
        "job_provisioning_data": None,
    }
    if ended is not None:
        status, reason, job_status = ENDS[ended.reason]
        job |= {
            "finished_at": format_time(ended.at),
            "status": job_status,
            "status_message": ended.message,
            "termination_reason": ended.reason,
            "termination_reason_message": ended.detail,
            "exit_status": ended.exit_status,
        }
        return status, reason, job
    if state.stopping is not None:
        job |= {
            "status": "terminating",
            "status_message": "terminating",
            "termination_reason": state.stopping.reason,
        }
        return "terminating", ENDS[state.stopping.reason][1], job
    word = "running" if state.running else "provisioning" if state.started is not None else "submitted"
    job |= {"status": word, "status_message": word}
    return word, None, job


def _cost(state: RunState, now: int) -> float:
    """As dstack reckons it: from the submission on, waiting included, idling left out."""
    price = 0 if state.accepted.machine is None else state.accepted.machine.price
    end = now if state.ended is None else state.ended.at
    return round(price * (end - state.accepted.at) / _DOLLAR_HOUR, 4) if price else 0


def _job_spec(accepted: Accepted) -> dict[str, object]:
    return {
        "replica_num": 0,
        "job_num": 0,
        "job_name": f"{accepted.name}-0-0",
        "jobs_per_replica": 1,
        "commands": accepted.argv,
        "env": accepted.configuration.get("env") or {},
        "max_duration": accepted.max_duration,
        "stop_duration": accepted.grace,
        "working_dir": accepted.folder,
        "retry": None,  # a process is not started twice
    }
