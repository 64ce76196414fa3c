"""Why a run is where it is, in one sentence: the cause, then what to do about it. One text for command line, API and
pages; it says nothing that the run does not show.
"""

import re
from typing import Final

from engine.decide.queue import waits
from engine.fold.run import Run
from engine.states import Reason, State
from events.clock import SECOND

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}")
_LONGEST: Final = 200  # characters of a message that is quoted
_EXITS: Final = {  # the shell's own codes: 128 + the signal that ended the command
    126: "its command could not be executed; check that the file is a program and may be executed",
    127: "a command was not found; check its name, PATH and the image",
    130: "its command was interrupted (SIGINT)",
    132: "its command executed an instruction that this processor lacks (SIGILL); build it for this machine",
    134: "its command aborted itself (SIGABRT); its last lines of output say why",
    136: "its command stopped on an arithmetic error (SIGFPE); its last lines of output say where",
    137: "its command was killed (SIGKILL), in most cases because memory ran out",
    139: "its command accessed memory that is not its own (SIGSEGV)",
    143: "its command was asked to end (SIGTERM), and nobody had requested a stop",
}
_GOING: Final = {
    State.REQUESTED: "It was requested, and no poll has shown it yet; `steno record` hands it over and polls",
    State.PROVISIONING: "{provider} is making a machine ready for it",
    State.PULLING: "Its machine is fetching the image",
    State.RUNNING: "It is running; `steno logs {name} -f` follows its output",
    State.FINISHING: "It is ending, and {provider} has not reported yet how",
}
_ARRAY: Final = {
    State.REQUESTED: "No task of the array has begun",
    State.QUEUED: "Every task of the array waits",
    State.SUCCEEDED: "Every task of the array succeeded",
    State.STOPPED: "A task of the array was stopped, and none failed",
    State.FAILED: "A task of the array failed",
    **dict.fromkeys(
        (State.PROVISIONING, State.PULLING, State.RUNNING, State.FINISHING, State.LOST), "The array goes on"
    ),
}  # of its most advanced task, or of the first that decided
_STOPPED: Final = {
    Reason.STOPPED_BY_USER: "A user stopped it",
    Reason.ABORTED_BY_USER: "A user aborted it: it was stopped at once, without time to clean up",
    Reason.STOPPED_BY_POLICY: "A policy of Steno stopped it",
}
_UNEXPLAINED: Final = "It ended, and {provider} gave no reason; `steno explain {name}` shows its last answers"
_KERNEL: Final = {
    Reason.WRONG_ANSWER: "The kernel's result differs from the reference (wrong answer)",
    Reason.RUNTIME_ERROR: "The kernel compiled, then failed while it ran (runtime error)",
    Reason.CHEATING_SUSPECTED: "The kernel did what an honest one does not (cheating suspected)",
}
_WHOLE: Final = {
    Reason.COMPILE_ERROR: "{message}; `steno kernel show {name}` has the compiler's output",
    Reason.DUPLICATE: "Its submission reached {provider} twice, or late, after it was given up; this job ran nothing",
}
_MACHINE: Final = {
    Reason.INTERRUPTED: "Its machine was taken away, as spot machines are",
    Reason.UNREACHABLE: "{provider} could not reach its machine any more",
    Reason.NODE_FAILED: "Its machine failed",
    Reason.REJECTED: "{provider} refused it",
    Reason.PROVIDER_ERROR: "{provider} itself failed",
}
_OUTPUT: Final = "read its output: `steno logs {name} --tail 50`"
_MISSING_SYMBOL: Final = re.compile(r"undefined (?:reference to|symbol:?) [`'\"]?([^\s`'\"]+)")
_ERROR_LINE: Final = re.compile(r"\b(?:fatal )?error:\s*(.+)", re.IGNORECASE)


def why(run: Run, message: str | None = None) -> str:
    """The sentence. `message`: what the provider's refusal, Steno's own event or the task's last report says of the
    cause, if one decided.
    """
    match run.state:
        case _ if run.tasks:
            said = f"{_ARRAY[run.state]}; `steno show '{{name}}[N]'` explains a task, `steno ps --unfold` lists them"
        case State.REQUESTED if run.held is not None:
            said = f"It waits in Steno's queue: {waits(run.held)}"
        case State.QUEUED:
            waiting = None if run.facts is None else run.facts.waits
            said = f"It waits at {run.provider}: {waiting or 'it has no machine yet'}"
        case State.STOPPED | State.FAILED if run.facts is not None and run.facts.ending is not None:
            said = str(run.facts.ending)
        case State.SUCCEEDED:
            said = "Every job exited 0" if run.exit_status == 0 else f"{run.provider} reported that all jobs are done"
            if (run.rule or "").endswith("/master-done"):
                said = "Its master exited 0, and its workers were stopped then (`stop_criteria: master-done`)"
        case State.STOPPED:
            said = _STOPPED.get(run.reason or Reason.UNKNOWN_REASON, _UNEXPLAINED)
        case State.FAILED:
            said = _failed(run, quoted=bool(_first_line(message))) + (
                f" (after {run.attempts} attempts)" if run.attempts > 1 else ""
            )
        case State.LOST:
            gone = "says that it does not exist" if run.reason is Reason.DELETED else "no longer lists it"
            said = f"{run.provider} answers and {gone}; the state is not final, a poll that shows it again ends it"
        case _:
            said = _GOING[run.state]
    said = said.replace("{provider}", run.provider).replace("{name}", word(run))
    said = said.replace(
        "{message}", _compile_error(message) if run.reason is Reason.COMPILE_ERROR else _first_line(message)
    )
    return said if said.endswith((".", "!", "?")) else f"{said}."


def word(run: Run) -> str:
    """A word for the run that a shell takes as it is."""
    return run.name if run.name is not None and _NAME.fullmatch(run.name) else run.run_id[:13]


def _failed(run: Run, *, quoted: bool) -> str:
    """`{message}` is where the message goes."""
    told = ": {message}" if quoted else ""
    match run.reason:
        case Reason.EXIT_NONZERO:
            return _exited(run)
        case Reason.COMPILE_ERROR | Reason.DUPLICATE:
            return _WHOLE[run.reason]
        case Reason.OUT_OF_MEMORY:
            return f"It ran out of memory; {_more_memory(run, 'give it more')}"
        case Reason.TIMED_OUT:
            longer = _longer(run) if run.facts is None or run.facts.finite else None
            if longer is None:  # what ends on request ends at another limit: it was not used for too long
                return f"{{provider}} ended it at a time limit{_by_its_words(run)}; raise the limit and submit it again"
            return f"It ran longer than it may; {_again(run, f'--max-duration {longer}', 'allow it more time')}"
        case Reason.NO_CAPACITY:
            models = "" if run.terms is None else " or ".join(run.terms.gpu)
            machine = f"machine with {models}" if models else "machine of the kind it asks for"
            return f"{{provider}} had no {machine}; name other GPUs with `--fallback`, or try later"
        case Reason.REJECTED | Reason.UNREACHABLE if run.provider_id is None:
            then = "correct that and submit it again" if run.reason is Reason.REJECTED else "submit it again"
            return f"It was never handed to {{provider}}{told}; {then}"
        case Reason.WRONG_ANSWER | Reason.RUNTIME_ERROR | Reason.CHEATING_SUSPECTED:
            return f"{_KERNEL[run.reason]}{told}; `steno kernel show {{name}}` shows every test"
    if run.reason in _MACHINE:
        return f"{_MACHINE[run.reason]}{_by_its_words(run)}; {_again(run, '', 'run it again')}"
    return f"{{provider}} reported a failure{_by_its_words(run)} and no cause; {_OUTPUT}"


def _exited(run: Run) -> str:
    code = run.exit_status
    job = "It"
    failing = [number for number, job in enumerate(run.reported.jobs) if code and job.exit_status == code]
    if len(run.reported.jobs) > 1 and failing:
        job = f"Its job {failing[0]}"
    known = None if code is None else _EXITS.get(code)
    if code == 137:
        return f"{job} exited 137: {known}; {_more_memory(run, 'give it more memory')}"
    if known is not None:
        return f"{job} exited {code}: {known}" + ("" if ";" in known else f"; {_OUTPUT}")
    return f"{job} exited {'with an error' if code is None else code}; {_OUTPUT}"


def _more_memory(run: Run, advice: str) -> str:
    least = None if run.terms is None else run.terms.memory.least
    size = "64GB" if least is None else f"{max(1, round(least * 2))}GB"
    return _again(run, f"--memory {size}", advice)


def _longer(run: Run) -> str | None:
    """Twice the limit, or the time that it ran under a limit of the provider's; None: neither is known."""
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
    if run.requested_at is None or run.said is not None or run.archive is not None:
        return f"{advice} and submit it again" if flags else advice
    return f"{advice}: `{' '.join(filter(None, ('steno rerun', word(run), flags)))}`"


def _compile_error(message: str | None) -> str:
    text = message or ""
    symbol = _MISSING_SYMBOL.search(text)
    if symbol is not None:
        return f"The linker did not find `{symbol[1].rstrip('.,;:')}` (compile error)"
    line = _ERROR_LINE.search(text)
    return f"The kernel does not compile (compile error){'' if line is None else f': {_short(line[1])}'}"


def _by_its_words(run: Run) -> str:
    said = run.reported.reason or next((job.reason for job in run.reported.jobs if job.reason), None)
    said = said or run.reported.status
    return f" (`{_short(said)}`)" if said else ""


def _first_line(message: str | None) -> str:
    lines = (line.strip() for line in (message or "").splitlines())
    return _short(next((line for line in lines if line), "")).rstrip(".")


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
