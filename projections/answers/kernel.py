"""The statuses of a kernel as `/api/amd` streams them, computed from the run's events.

The task reports progress, but only the provider decides whether it succeeded. A final status therefore waits for the
verdict, and a run that succeeded never ends in an error, nor the other way round.
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

import msgspec

from steno.engine.decide.queue import may_be_made_again
from steno.engine.state.kernel_mark import KernelMark, read_mark
from steno.engine.state.run import Run
from steno.engine.state.states import Reason, State
from steno.engine.state.world import World, policy_of, source_of
from steno.events import types
from steno.events.store.record import Record

BENCHMARKED: Final = "Benchmark completed successfully"
CHECKED: Final = "All tests passed"
_ENDS: Final = {
    Reason.COMPILE_ERROR: "COMPILE_ERROR",
    Reason.WRONG_ANSWER: "WRONG_ANSWER",
    Reason.RUNTIME_ERROR: "RUNTIME_ERROR",
    Reason.CHEATING_SUSPECTED: "CHEATING_SUSPECTED",
}
_LAST: Final = frozenset({*_ENDS.values(), "BENCHMARKED", "ERROR"})
_WAITS: Final = {
    State.QUEUED: ("IN_QUEUE", "waiting for a machine"),
    State.PROVISIONING: ("PROVISIONING", "the machine is being made ready"),
    State.PULLING: ("PROVISIONING", "the machine fetches the image"),
}
_WORDS: Final = {
    Reason.STOPPED_BY_USER: "stopped by a user",
    Reason.ABORTED_BY_USER: "aborted by a user",
    Reason.STOPPED_BY_POLICY: "stopped by a policy",
    Reason.TIMED_OUT: "it took longer than it may",
    Reason.NO_CAPACITY: "the provider has no machine for it",
    Reason.INTERRUPTED: "its machine was taken away",
    Reason.UNREACHABLE: "its machine cannot be reached",
    Reason.REJECTED: "it was refused",
    Reason.NODE_FAILED: "its machine failed",
    Reason.PROVIDER_ERROR: "the provider failed",
    Reason.EXIT_NONZERO: "its task failed",
}
_SECRET: Final = frozenset({"key", "seq", "status"})
_OF_THE_RUN: Final = frozenset({"RunRequested", "RunRequeued", "TaskReported", "SubmitFailed", "IntentAbandoned"})
_OF_THE_QUEUE: Final = frozenset({"RunHeld", "RunRequeued"})


class KernelEvent(msgspec.Struct, frozen=True, kw_only=True):
    position: int
    at: int  # microseconds, UTC
    event: types.Event


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """A step of the story."""

    position: int  # of the event it follows from
    at: int
    status: str
    message: str
    facts: dict[str, Any] = {}  # further keys of the frame
    final: bool = False


def statuses(run: Run, facts: Iterable[KernelEvent], *, may_go_on: bool = False) -> tuple[Status, ...]:
    """The statuses so far, in order; the list only grows, unless the provider revokes an end. Of `run` only its moves
    count; `facts` are its `RunRequested`, `RunHeld`, `RunRequeued`, `TaskReported`, `SubmitFailed` and
    `IntentAbandoned`; `may_go_on`: it found no capacity, and may be requested again.
    """
    known = tuple(facts)
    mark = None if run.said is None else read_mark(run.said.mark)
    steps = [_moved(run, index) for index, move in enumerate(run.transitions) if move.after in _WAITS]
    steps += [step for fact in known if (step := _said(fact, run, mark)) is not None]
    steps.sort(key=lambda step: step.position)  # of one position an event says more than the move it is
    story: list[Status] = []
    for step in steps:
        before = story[-1] if story else None
        if before is not None and step.position == before.position:
            story[-1] = step
        elif before is None or not _repeats(step, before):
            story.append(step)
    end = None if may_go_on else _end(run, known, mark)
    if end is None:
        return tuple(story)
    return (*(step for step in story if step.position < end.position), end)


def _repeats(step: Status, before: Status) -> bool:
    """True if the provider's queue repeats, less precisely, a status of ours."""
    if step.status != before.status or step.status not in {"IN_QUEUE", "PROVISIONING"}:
        return False
    return step.message == before.message or (step.status == "IN_QUEUE" and not step.facts)


def _moved(run: Run, index: int) -> Status:
    move = run.transitions[index]
    status, message = _WAITS[move.after]
    return Status(position=move.position, at=move.at, status=status, message=message)


def _said(fact: KernelEvent, run: Run, mark: KernelMark | None) -> Status | None:
    """A status that does not wait for the verdict."""
    step = partial(Status, position=fact.position, at=fact.at)
    match fact.event:
        case types.RunRequested():
            return step(status="IN_QUEUE", message="submitted")
        case types.RunHeld() as held:
            return step(status="IN_QUEUE", message=held.detail or held.why, facts={"why": held.why})
        case types.RunRequeued():
            message = "the provider has no machine for it now; Steno retries"
            return step(status="IN_QUEUE", message=message, facts={"why": "capacity"})
        case types.TaskReported(last=False) as report if report.provider_id == run.provider_id:
            frame = _frame(report)
            status = frame.get("status")
            if not isinstance(status, str) or _is_last(status, mark):
                return None
            facts = {name: value for name, value in frame.items() if name not in _SECRET}
            message = str(facts.pop("message", "")) or _message(status, facts)
            return step(status=status, message=message, facts=facts)
        case _:
            return None


def story_of(run: Run, facts: Iterable[KernelEvent], state: World, now: int) -> tuple[Status, ...]:
    """The statuses of a kernel so far; `state` has the policy of its source."""
    patience = policy_of(state, source_of(run)).queue_patience
    return statuses(run, facts, may_go_on=run.terminal and may_be_made_again(run, patience, now))


def facts_of(record: Record, run: Run, *, after: int = 0, until: int | None = None) -> tuple[KernelEvent, ...]:
    """The events that tell a run's story, at the positions after `after` and up to `until`."""
    events: list[KernelEvent] = []
    for stream, kinds in ((f"run/{run.run_id}", _OF_THE_RUN), (f"queue/{source_of(run)}", _OF_THE_QUEUE)):
        first = max(after, run.first_position - 1 if stream.startswith("queue/") else 0)
        events += (
            KernelEvent(position=stored.position, at=stored.observed_at, event=stored.data)
            for stored in record.read(after=first, until=until, stream=stream, types=kinds)
            if getattr(stored.data, "run_id", None) == run.run_id
        )
    return tuple(sorted(events, key=lambda fact: fact.position))


def frames_said(run: Run, facts: Iterable[KernelEvent]) -> tuple[dict[str, Any], ...]:
    """The frames of the current attempt's task, without the key."""
    reports = [fact.event for fact in facts if isinstance(fact.event, types.TaskReported)]
    frames = (_frame(report) for report in reports if report.provider_id == run.provider_id and not report.last)
    return tuple({name: value for name, value in frame.items() if name != "key"} for frame in frames)


def _is_last(status: str, mark: KernelMark | None) -> bool:
    return status in _LAST or (status == "CHECKED" and mark is not None and mark.endpoint == "checker")


def _end(run: Run, facts: tuple[KernelEvent, ...], mark: KernelMark | None) -> Status | None:
    """The last status; None while there is no verdict, or output is unread."""
    if not run.terminal or mark is None or not run.transitions:
        return None
    closing = _closing(run, facts, mark)
    if not closing and run.provider_id is not None:
        return None
    status, message = _ending(run, mark)
    words: dict[str, Any] = next((frame for _, frame in reversed(closing) if frame), {})
    fits = words.get("status") == status
    more = {name: value for name, value in words.items() if name not in _SECRET} if fits else {}
    text = str(more.pop("message", "")) if fits and run.state is not State.SUCCEEDED else ""
    refusal = _refusal(facts) if run.provider_id is None and run.state is State.FAILED else None
    move = run.transitions[-1]
    position, at = max([(move.position, move.at), *((fact.position, fact.at) for fact, _ in closing[-1:])])
    return Status(
        position=position,
        at=at,
        status=status,
        message=text or refusal or message,
        facts={**more, "reason": None if run.reason is None else run.reason.value, "exit_status": run.exit_status},
        final=True,
    )


def _closing(run: Run, facts: Iterable[KernelEvent], mark: KernelMark) -> list[tuple[KernelEvent, dict[str, Any]]]:
    """The task's final reports; none if reading its output was given up before one."""
    closing = []
    for fact in facts:
        report = fact.event
        if isinstance(report, types.TaskReported) and report.provider_id == run.provider_id:
            frame = {} if report.last else _frame(report)
            if report.last or _is_last(str(frame.get("status")), mark):
                closing.append((fact, frame))
    return closing


def _ending(run: Run, mark: KernelMark) -> tuple[str, str]:
    if run.state is State.SUCCEEDED:
        return ("CHECKED", CHECKED) if mark.endpoint == "checker" else ("BENCHMARKED", BENCHMARKED)
    reason = run.reason or Reason.UNKNOWN_REASON
    if run.state is State.FAILED and reason in _ENDS:
        return _ENDS[reason], reason.value.replace("_", " ")
    return "ERROR", _WORDS.get(reason, "it ended; the provider gave no reason")


def _refusal(facts: Iterable[KernelEvent]) -> str | None:
    why = None
    for fact in facts:
        if isinstance(fact.event, types.SubmitFailed):
            why = fact.event.error
        elif isinstance(fact.event, types.IntentAbandoned) and fact.event.intent == "submit":
            why = fact.event.why
    return why


def _frame(report: types.TaskReported) -> dict[str, Any]:
    try:
        return msgspec.json.decode(report.frame, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return {}


def _message(status: str, facts: dict[str, Any]) -> str:
    match status:
        case "COMPILING":
            return f"compiling with {facts.get('compiler', 'a compiler')}"
        case "CHECKING":
            return f"checking {_count(facts.get('tests'), 'test')}"
        case "TEST_RESULT":
            return f"test {facts.get('test')} of {facts.get('tests')}: {'right' if facts.get('passed') else 'wrong'}"
        case "CHECKED":
            return CHECKED
        case "BENCHMARKING":
            return f"timing {_count(facts.get('benchmarks'), 'benchmark')}"
        case "BENCHMARK_RESULT":
            return f"benchmark {facts.get('benchmark')} of {facts.get('benchmarks')}: {facts.get('median_ms')} ms"
        case _:
            return status.lower()


def _count(number: object, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
