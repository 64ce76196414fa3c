"""Why a run is where it is, in one sentence: the cause, then what to do about it. One text for command line, API and
pages; it says nothing that the run does not show.
"""

import re
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from steno.engine.rules import reasons
from steno.engine.state.facts import Blame, Finding
from steno.engine.state.run import Run, waits
from steno.engine.state.sources import Observability, observability
from steno.engine.state.states import Reason, State, VmState
from steno.engine.state.vm import Vm
from steno.engine.state.world import World, source_of
from steno.events.clock import SECOND, format_second

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
_PLACE: Final = re.compile(r"\{(\w+)(?: ([^{}]+))?\}")
_LONGEST: Final = 200  # characters of a message that is quoted; of Steno's own, twice as many
_KERNEL: Final = frozenset({Reason.COMPILE_ERROR, Reason.WRONG_ANSWER, Reason.RUNTIME_ERROR, Reason.CHEATING_SUSPECTED})
_QUOTED: Final = _KERNEL - {Reason.COMPILE_ERROR}
_WORDED: Final = frozenset(
    {Reason.INTERRUPTED, Reason.UNREACHABLE, Reason.NODE_FAILED, Reason.REJECTED, Reason.PROVIDER_ERROR}
)
_SIGNALS: Final = range(129, 193)  # a shell's exit status of a command that a signal ended
_MISSING_SYMBOL: Final = re.compile(r"undefined (?:reference to|symbol:?) [`'\"]?([^\s`'\"]+)")
_ERROR_LINE: Final = re.compile(r"\b(?:fatal )?error:\s*(.+)", re.IGNORECASE)


class EndCause(msgspec.Struct, frozen=True, kw_only=True):
    """The sentence, and for programs what it follows from."""

    why: str
    blame: Blame | None  # None: nothing went wrong, or it is unknown
    again: bool  # the same task, run again unchanged, may succeed


def why(run: Run, message: str | None = None, *, vm: Vm | None = None, silent_since: int | None = None) -> str:
    return cause(run, message, vm=vm, silent_since=silent_since).why


def cause(run: Run, message: str | None = None, *, vm: Vm | None = None, silent_since: int | None = None) -> EndCause:
    """The sentence. `message`: what the provider's refusal, Steno's own event or the task's last report says of the
    cause, if one decided. `vm`: its machine. `silent_since`: the provider's last answer, if that is too long ago.
    """
    row = finding(run, message, vm=vm, silent_since=silent_since)
    again = "" if not row.again else _again(run, "", "run it again")
    text = f"{row.why}{f' (`{_short(row.word)}`)' if row.word else ''}"
    quoted = _first_line(row.message, 2 * _LONGEST if run.provider_id is None else _LONGEST)
    text = "; ".join(filter(None, (f"{text}: {quoted}" if quoted else text, row.remedy, again)))
    if run.state is State.FAILED and run.attempts > 1 and not run.tasks:
        text = f"{text} (after {run.attempts} attempts)"
    text = text if text.endswith((".", "!", "?")) else f"{text}."
    return EndCause(why=text, blame=row.blame, again=row.again)


def finding(run: Run, message: str | None = None, *, vm: Vm | None = None, silent_since: int | None = None) -> Finding:
    """The row of the table that fits, with every place in its texts filled in; as `why`."""
    row = _row(run, message, vm, silent_since)
    if run.archive is not None and not run.terminal:
        row = replace(row, remedy="")  # nobody can follow or stop it from here
    values: dict[str, Callable[[], str]] = {
        "provider": lambda: run.provider,
        "name": lambda: word(run),
        "state": lambda: run.state.value,
        "reason": lambda: (run.reason or Reason.UNKNOWN_REASON).value,
        "at": lambda: format_second(silent_since or 0),
        "reached": lambda: format_second(_reached_at(vm)),
        "waits": lambda: _waits(run),
        "due": lambda: _due(run),
        "job": lambda: _job(run),
        "idle": lambda: format_second(0 if run.warned is None else run.warned.since),
        "stops": lambda: format_second(0 if run.warned is None else run.warned.stops_at),
        "code": lambda: "with an error" if run.exit_status is None else str(run.exit_status),
        "machine": lambda: _machine(run),
        "compile_error": lambda: _compile_error(message),
        "more_memory": lambda: _more_memory(run),
        "more_time": lambda: _again(run, f"--max-duration {_longer(run)}", ""),
    }

    def filled(text: str) -> str:
        def value(place: re.Match[str]) -> str:
            if place[1] == "rerun":
                return _again(run, place[2] or "", "")
            return values[place[1]]() if place[1] in values else place[0]

        return _PLACE.sub(value, text)

    return replace(row, why=filled(row.why), remedy=filled(row.remedy))


def _row(run: Run, message: str | None, vm: Vm | None, silent_since: int | None) -> Finding:
    """The row, before its places are filled in."""
    if run.tasks:
        return Finding(why=reasons.ARRAY[run.state], remedy=reasons.ARRAY_REMEDY)
    if run.state in (State.REQUESTED, State.QUEUED) and run.held is not None:
        return reasons.NO_OFFER if run.held.why == "offer" else reasons.HELD
    if run.state is State.QUEUED and run.provider_id is None and run.requested_at is not None:
        return reasons.PLACED
    if run.state in (State.FAILED, State.STOPPED):
        return _ended(run, message)
    if run.state is State.SUCCEEDED and (run.rule or "").endswith("/master-done"):
        return reasons.MASTER_DONE
    if run.state is State.SUCCEEDED and run.reason not in (None, Reason.EXIT_ZERO):
        return reasons.COUNTED
    if run.state is State.SUCCEEDED and run.exit_status is not None:
        return reasons.EXITED_ZERO if run.exit_status == 0 else reasons.EXITED_ALL_THE_SAME
    if run.unseen or (run.state is State.LOST and run.reason is Reason.DELETED):
        return reasons.NOT_SEEN if run.unseen else reasons.REASONS[Reason.DELETED]
    if silent_since is not None and not run.terminal and run.provider_id is not None:
        return reasons.SILENT
    doubt = None if run.state is not State.RUNNING else _doubt(run, vm)
    scheduled = run.is_schedule and run.state is State.QUEUED
    return doubt or (reasons.SCHEDULED if scheduled else reasons.STATES[run.state])


def _doubt(run: Run, vm: Vm | None) -> Finding | None:
    """The finding that its provider, its machine or its GPUs contradict a running run; None: they do not."""
    if run.facts is not None and run.facts.waits is not None:
        return reasons.PAUSED
    if vm is not None and vm.state is VmState.TERMINATED:
        return reasons.GONE
    if vm is not None and vm.facts.unreachable:
        return reasons.CUT_OFF
    warned = None if run.warned is None else reasons.WARNED
    return reasons.IDLE if vm is not None and vm.facts.state is VmState.IDLE else warned


def _ended(run: Run, message: str | None) -> Finding:
    """The finding of a run that failed or was stopped: the provider's own words first, the general reason last."""
    reason = run.reason or Reason.UNKNOWN_REASON
    words = None if run.facts is None or reason in _KERNEL else run.facts.ending
    if words is not None and words.why:
        return words
    row = reasons.REASONS.get(reason, reasons.STATES[run.state])
    if run.state is State.STOPPED and row.blame is not Blame.USER:
        row = reasons.COUNTED if reason in reasons.REASONS else reasons.STATES[State.STOPPED]
    if words is not None:
        return replace(row, word=words.word, message=words.message)
    if run.provider_id is None and reason in reasons.NOT_HANDED_OVER:
        given_up = (run.rule or "").endswith("/submit-abandoned")
        return replace(reasons.GIVEN_UP if given_up else reasons.NOT_HANDED_OVER[reason], message=message)
    if reason in _QUOTED:
        return replace(row, message=message)
    if run.state is State.FAILED and run.exit_status == 0 and reason in (Reason.EXIT_NONZERO, Reason.UNKNOWN_REASON):
        return replace(reasons.FAILED_ALL_THE_SAME, word=_reported_word(run))
    if reason is Reason.EXIT_NONZERO:
        return _exited(row, run.exit_status)
    timeless = reason is Reason.TIMED_OUT and _longer(run) is None
    if timeless:
        row = reasons.TIME_LIMIT
    unexplained = run.state is State.FAILED and reason not in reasons.REASONS
    return replace(row, word=_reported_word(run)) if timeless or unexplained or reason in _WORDED else row


def _exited(row: Finding, code: int | None) -> Finding:
    known = reasons.EXITS.get(code or 0)
    if known is None and code is not None and code in _SIGNALS:
        known = replace(row, why=f"its command was ended by signal {code - 128}")
    return row if known is None else replace(row, why=f"{row.why}: {known.why}", remedy=known.remedy)


def cause_now(run: Run, state: World, now: int, message: str | None = None) -> EndCause:
    """`cause`, with what the world knows of its machine and of its provider's last answer. `now`: microseconds, UTC."""
    source = state.sources.get(source_of(run))
    live = source is not None and run.archive is None
    silent = live and observability(source, now) is not Observability.FRESH
    since = source.last_answered if source is not None and silent else None
    return cause(run, message, vm=state.vms.get(run.vm_id or ""), silent_since=since)


def word(run: Run) -> str:
    """A name of the run that needs no quotes in a shell."""
    named = run.schedule is None  # the name of a firing means its schedule
    return run.name if named and run.name is not None and _NAME.fullmatch(run.name) else run.run_id[:13]


def _waits(run: Run) -> str:
    if run.held is not None:
        return waits(run.held)
    return str((None if run.facts is None else run.facts.waits) or "it has no machine yet")


def _due(run: Run) -> str:
    due = None if run.facts is None or run.facts.schedule is None else run.facts.schedule.next_at
    return "a time that it does not say" if due is None else format_second(due)


def _reached_at(vm: Vm | None) -> int:
    silence = None if vm is None else vm.silence
    return 0 if silence is None else silence.reached_at or silence.since


def _machine(run: Run) -> str:
    models = "" if run.terms is None else " or ".join(run.terms.gpu)
    return f"machine with {models}" if models else "machine of the kind it asks for"


def _job(run: Run) -> str:
    failing = [
        number for number, job in enumerate(run.reported.jobs) if run.exit_status and job.exit_status == run.exit_status
    ]
    return f"Its job {failing[0]}" if len(run.reported.jobs) > 1 and failing else "It"


def _more_memory(run: Run) -> str:
    least = None if run.terms is None else run.terms.memory.least
    size = "64GB" if least is None else f"{max(1, round(least * 2))}GB"
    return _again(run, f"--memory {size}", "")


def _longer(run: Run) -> str | None:
    """Twice the limit, or the time that it ran under a limit of the provider's; None: neither is known, or it ends on
    request and was not used for too long.
    """
    if run.facts is not None and not run.facts.finite:
        return None
    limit = None if run.terms is None else run.terms.max_duration
    if limit is None and run.started_at is not None and run.finished_at is not None:
        limit = run.finished_at - run.started_at
    if not limit:
        return None
    seconds = -(-2 * limit // SECOND)
    minutes = -(-seconds // 60)
    if seconds < 2 * 60:
        return f"{seconds}s"
    return f"{minutes // 60}h" if minutes % 60 == 0 and minutes > 60 else f"{minutes}m"


def _again(run: Run, flags: str, advice: str) -> str:
    """Advice with its command; only a run that Steno submitted can be submitted again."""
    if run.requested_at is None or run.is_schedule or run.said is not None or run.archive is not None:
        return f"{advice} and submit it again" if flags else advice
    return f"{advice}: `{' '.join(filter(None, ('steno rerun', word(run), flags)))}`"


def _compile_error(message: str | None) -> str:
    text = message or ""
    symbol = _MISSING_SYMBOL.search(text)
    if symbol is not None:
        return f"The linker did not find `{symbol[1].rstrip('.,;:')}` (compile error)"
    line = _ERROR_LINE.search(text)
    return f"The kernel does not compile (compile error){'' if line is None else f': {_short(line[1])}'}"


def _reported_word(run: Run) -> str | None:
    """The provider's own word: that of a job first, for the run's is the more general."""
    job = next((job.reason for job in run.reported.jobs if job.reason), None)
    return job or run.reported.reason or run.reported.status


def _first_line(message: str | None, longest: int = _LONGEST) -> str:
    lines = (line.strip() for line in (message or "").splitlines())
    return _short(next((line for line in lines if line), ""), longest).rstrip(".")


def _short(text: str, longest: int = _LONGEST) -> str:
    """At most `longest` characters, all printable, without half a command."""
    text = "".join(char if char.isprintable() else "\ufffd" for char in text.strip())
    if len(text) <= longest:
        return text
    cut = text[: longest - 1]
    return f"{cut[: cut.rindex('`')].rstrip() if cut.count('`') % 2 else cut}…"
