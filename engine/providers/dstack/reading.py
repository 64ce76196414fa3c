"""The reading of dstack's answers, and of older local ones, which use the same words."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Final

import msgspec

from engine.facts import AttemptFacts, JobFacts, RunFacts, VmFacts
from engine.providers.dstack.endpoints import SHAPES, is_answer, says_not_exists, scope_of
from engine.providers.dstack.requirements import read_terms
from engine.providers.dstack.run_reading import (
    RUNS,
    RunWire,
    facts_of,
    quotes,
    read_configuration,
    read_cost,
    with_attempt_words,
    with_run_words,
)
from engine.providers.dstack.vm_reading import read_vm, read_vm_event
from engine.providers.dstack.words import FINAL_RUN_STATUSES, RETRY_EVENTS, STOPS, retry_event
from engine.providers.reading import Reading, Scope
from engine.states import State
from events.shape.shape import BodyShape

_KNOWN: Final = 128  # runs whose facts are remembered, with what was read: 2 KB each


def alternatives(facts: RunFacts) -> Iterator[tuple[str, RunFacts]]:
    """(`had the job exited 0`, the observation as it would have been), one change each; the run's words follow."""
    before = " before the stop" if facts.reason in STOPS else ""
    for index, job in enumerate(facts.jobs):
        newest = job.newest
        if newest is None:
            continue
        label = f"job {job.replica_num}-{job.job_num}" if len(facts.jobs) > 1 else "the job"
        if _ran(newest):
            if newest.exit_status != 0:
                yield f"had {label} exited 0{before}", _with(facts, index, job, "done", "done_by_runner", 0)
            if not newest.exit_status:
                other = _with(facts, index, job, "failed", "container_exited_with_error", 1)
                yield f"had {label} exited 1{before}", other
            if newest.ended:
                yield f"had {label} still been running", _with(facts, index, job, "running", None, None)
        if newest.ended and retry_event(newest.reason, newest.exit_status) is not None and not newest.retried:
            covering = msgspec.structs.replace(job, retry_on=RETRY_EVENTS)
            other = _with(facts, index, covering, newest.status, newest.reason, newest.exit_status)
            yield f"had the task's retry policy covered how {label} ended", other
    if facts.reason not in STOPS and not facts.requeued and any(_ran(job.newest) for job in facts.jobs):
        jobs = tuple(_worded(job, "terminated", "terminated_by_user", None) for job in facts.jobs)
        yield "had the run been stopped before its end", with_run_words(facts, "terminated", "stopped_by_user", jobs)
    if not facts.jobs:
        for status, reason in (("done", "all_jobs_done"), ("failed", "job_failed"), ("terminated", "stopped_by_user")):
            yield f"had the run's status been {status} ({reason})", with_run_words(facts, status, reason, ())


def _ran(newest: AttemptFacts | None) -> bool:
    """Whether the attempt got as far as a machine: only then can it exit."""
    if newest is None:
        return False
    return newest.exit_status is not None or newest.hostname is not None or newest.state is State.RUNNING


def _worded(job: JobFacts, status: str | None, reason: str | None, exit_status: int | None) -> JobFacts:
    if job.newest is None:
        return job
    newest = with_attempt_words(job.newest, status, reason, exit_status, job.retry_on)
    return msgspec.structs.replace(job, attempts=(*job.attempts[:-1], newest))


def _with(
    facts: RunFacts, index: int, job: JobFacts, status: str | None, reason: str | None, exit_status: int | None
) -> RunFacts:
    """The observation with one job changed, and the run's own words as dstack derives them."""
    jobs = (*facts.jobs[:index], _worded(job, status, reason, exit_status), *facts.jobs[index + 1 :])
    if not any(one.failed for one in jobs):  # dstack ends the other jobs only because one failed
        jobs = tuple(
            _worded(one, "running", None, None)
            if one.newest is not None and one.newest.reason == "terminated_by_server"
            else one
            for one in jobs
        )
    return with_run_words(facts, *_run_words(facts, jobs), jobs)


def _run_words(facts: RunFacts, jobs: tuple[JobFacts, ...]) -> tuple[str | None, str | None]:
    """Status and reason of the run, as dstack derives them from its jobs; kept unless the run is ending."""
    final = facts.status in FINAL_RUN_STATUSES
    if not final and facts.status != "terminating":
        return facts.status, facts.reason
    shown = [job.newest for job in jobs if job.newest is not None]
    over = len(shown) == len(jobs) and all(newest.ended for newest in shown)

    def ending(status: str, reason: str) -> tuple[str, str]:
        return (status if final and over else "terminating"), reason

    failed = [job.newest for job in jobs if job.newest is not None and job.failed]
    if any(not newest.retried for newest in failed):
        kept = facts.reason is not None and facts.reason not in (*STOPS, "all_jobs_done")
        return ending("failed", (facts.reason or "") if kept else "job_failed")
    if failed:
        return ("failed", facts.reason) if facts.reason == "retry_limit_exceeded" else ("pending", None)
    if over and all(one.newest.exit_status == 0 for one in jobs if one.newest is not None and one.decides):
        return ending("done", "all_jobs_done")
    if facts.reason in STOPS:
        return ending("terminated", facts.reason or "")
    return "running", None


class DstackReading(Reading):
    def __init__(self) -> None:
        self._scope = lru_cache(maxsize=4096)(scope_of)
        self._known: dict[str, tuple[RunWire, tuple[str, ...], RunFacts]] = {}
        """Run id → what was last read of it: an item that differs in volatile values only has the same facts."""

    def scope(self, path: str, req: bytes) -> Scope | None:
        return self._scope(path, req)

    def shape(self, path: str, req: bytes) -> BodyShape | None:
        scope = self.scope(path, req)
        return None if scope is None else SHAPES.get(scope.endpoint)

    def answered(self, path: str, req: bytes, status: int | None, body: bytes | None, error: str | None = None) -> bool:
        scope = self.scope(path, req)
        return scope is not None and is_answer(scope, status, body)

    def runs(self, item: bytes, scope: Scope) -> tuple[RunFacts, ...]:
        wire, drift = RUNS.decode(item)
        known = self._known.get(wire.id)
        if known is not None and known[0] == wire and known[1] == drift:
            return (known[2],)
        facts = facts_of(wire, drift)
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known[wire.id] = (wire, drift, facts)
        return (facts,)

    def vm(self, item: bytes, scope: Scope) -> VmFacts:
        return read_vm(item)

    says_not_exists = staticmethod(says_not_exists)
    costs = staticmethod(read_cost)
    configurations = staticmethod(read_configuration)
    quotes = staticmethod(quotes)
    alternatives = staticmethod(alternatives)
    vm_event = staticmethod(read_vm_event)
    terms = staticmethod(read_terms)
