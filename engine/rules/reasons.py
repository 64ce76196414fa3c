"""Why a run is where it is, by state and reason: cause, blame, remedy, and whether the same task may succeed if it is
run again. What a provider's own words add is in its folder; docs/reasons.md shows all of it.

In a text, `{name}` is a word for the run, `{provider}` the provider, `{more_memory}` and `{more_time}` the command that
submits it again with more of it, `{rerun FLAGS}` the command that does so with these flags; the others stand for what
the run itself shows.
"""

from typing import Final

from steno.engine.state.facts import Blame, Finding
from steno.engine.state.states import Reason, State


def _row(why: str, remedy: str = "", blame: Blame | None = None, *, again: bool = False) -> Finding:
    return Finding(why=why, remedy=remedy, blame=blame, again=again)


OUTPUT: Final = "read its output: `steno logs {name} --tail 50`"
_TESTS: Final = "`steno kernel show {name}` shows every test"

HELD: Final = _row("It waits in Steno's queue: {waits}")
"""For a run that Steno holds back, whatever its state."""
NO_OFFER: Final = _row(
    "It waits in Steno's queue: {waits}",
    "it starts once there is one; ask for less in its task and submit it again, or give it up: `steno stop {name}`",
    Blame.TASK,
)
"""For a run that Steno holds back because its provider has no machine that it could get."""
PLACED: Final = _row("It has its place in Steno's queue, and is handed to {provider} next")
"""For a run that Steno holds no longer and {provider} does not have yet."""

STATES: Final = {
    State.REQUESTED: _row("It was requested, and no poll has shown it yet", "`steno record` hands it over and polls"),
    State.QUEUED: _row("It waits at {provider}: {waits}"),
    State.PROVISIONING: _row("{provider} is making a machine ready for it"),
    State.PULLING: _row("Its machine is fetching the image"),
    State.RUNNING: _row("It is running", "`steno logs {name} -f` follows its output"),
    State.FINISHING: _row("It is ending, and {provider} has not reported yet how"),
    State.SUCCEEDED: _row("{provider} reported that all jobs are done"),
    State.FAILED: _row("{provider} reported a failure and no cause", OUTPUT),
    State.STOPPED: _row("It ended, and {provider} gave no reason", "`steno explain {name}` shows its last answers"),
    State.LOST: _row(
        "{provider} answers and no longer lists it", "the state is not final, a poll that shows it again ends it"
    ),
}
"""By state: of every reason that `REASONS` does not name."""

REASONS: Final = {
    Reason.STOPPED_BY_USER: _row("A user stopped it", blame=Blame.USER),
    Reason.ABORTED_BY_USER: _row(
        "A user aborted it: it was stopped at once, without time to clean up", blame=Blame.USER
    ),
    Reason.STOPPED_BY_POLICY: _row("A policy stopped it", "`steno explain {name}` shows its last answers", Blame.USER),
    Reason.GPU_IDLE: _row(
        "Its GPUs were idle for too long, and a policy stopped it (`vms.busy_idle_timeout`)",
        "`STENO_KEEP_IDLE: 1` in the task's `env` keeps such a run",
        Blame.USER,
    ),
    Reason.EXIT_NONZERO: _row("{job} exited {code}", OUTPUT, Blame.TASK),
    Reason.OUT_OF_MEMORY: _row("It ran out of memory", "give it more{more_memory}", Blame.TASK),
    Reason.TIMED_OUT: _row("It ran longer than it may", "allow it more time{more_time}", Blame.TASK),
    Reason.NO_CAPACITY: _row(
        "{provider} had no {machine}", "name other GPUs{rerun --fallback GPU,GPU}, or try later", Blame.PROVIDER
    ),
    Reason.INTERRUPTED: _row("Its machine was taken away, as spot machines are", blame=Blame.PROVIDER, again=True),
    Reason.UNREACHABLE: _row("{provider} could not reach its machine any more", blame=Blame.PROVIDER, again=True),
    Reason.NODE_FAILED: _row("Its machine failed", blame=Blame.SITE, again=True),
    Reason.REJECTED: _row("{provider} refused it", "correct what it says and submit it again", Blame.TASK),
    Reason.PROVIDER_ERROR: _row(
        "{provider} failed to run it", "`steno explain {name}` shows its last answers", Blame.PROVIDER
    ),
    Reason.COMPILE_ERROR: _row("{compile_error}", "`steno kernel show {name}` has the compiler's output", Blame.TASK),
    Reason.WRONG_ANSWER: _row("The kernel's result differs from the reference (wrong answer)", _TESTS, Blame.TASK),
    Reason.RUNTIME_ERROR: _row("The kernel compiled, then failed while it ran (runtime error)", _TESTS, Blame.TASK),
    Reason.CHEATING_SUSPECTED: _row(
        "The kernel did what an honest one does not (cheating suspected)", _TESTS, Blame.TASK
    ),
    Reason.DUPLICATE: _row(
        "Its submission reached {provider} twice, or late, after it was given up",
        "this job ran nothing",
        Blame.STENO,
    ),
    Reason.DELETED: _row(
        "{provider} answers and says that it does not exist",
        "the state is not final, a poll that shows it again ends it",
    ),
}
"""By reason, of a run that has failed or was stopped; `DELETED` of a lost run."""

NOT_HANDED_OVER: Final = {
    Reason.REJECTED: _row("It was never handed to {provider}", "correct that and submit it again", Blame.TASK),
    Reason.UNREACHABLE: _row("It was never handed to {provider}", blame=Blame.PROVIDER, again=True),
    Reason.NO_CAPACITY: _row("It never ran", "ask for less in its task and submit it again", Blame.TASK),
}
"""By reason, of a run that its provider never had."""

GIVEN_UP: Final = _row("It was never handed to {provider}", blame=Blame.STENO)
"""For a run that Steno itself did not hand over: its message says why, and what to do."""

WARNED: Final = _row(
    "It is running, but its GPUs have been idle since {idle}: a policy stops it at {stops} unless they work before",
    "look what it waits for: `steno logs {name} --tail 50`",
    Blame.TASK,
)

PAUSED: Final = _row("{provider} calls it running, but it does not work: {waits}")
"""For a running run of which its provider says so."""

MASTER_DONE: Final = _row("Its master exited 0, and its workers were stopped then (`stop_criteria: master-done`)")
EXITED_ZERO: Final = _row("Every job exited 0")
EXITED_ALL_THE_SAME: Final = _row(
    "{provider} reported that all jobs are done, though one exited {code}",
    "`steno explain {name}` shows its last answers",
)
"""For a run that succeeded and shows an exit status."""

COUNTED: Final = _row("It ended as `{reason}`, and the rules in force count that as {state}")
"""For a run that a site's own rules call succeeded or stopped."""

FAILED_ALL_THE_SAME: Final = _row(
    "{provider} calls it failed, though every job exited 0", "`steno explain {name}` shows its last answers"
)
"""For a run that failed without a cause and shows exit status 0."""

TIME_LIMIT: Final = _row("{provider} ended it at a time limit", "raise the limit and submit it again", Blame.TASK)
"""For a run whose limit is not known."""

EXITS: Final = {
    -1: _row(
        "its command was ended by a signal, in most cases because memory ran out", "give it more memory{more_memory}"
    ),
    126: _row("its command could not be executed", "check that the file is a program and may be executed"),
    127: _row("a command was not found", "check its name, PATH and the image"),
    130: _row("its command was interrupted (SIGINT)", OUTPUT),
    132: _row("its command executed an instruction that this processor lacks (SIGILL)", "build it for this machine"),
    134: _row(
        "its command aborted itself (SIGABRT)", "its last lines of output say why: `steno logs {name} --tail 50`"
    ),
    135: _row("its command accessed memory that is not there (SIGBUS)", "give it more shared memory (`shm_size`)"),
    136: _row("its command stopped on an arithmetic error (SIGFPE)", OUTPUT),
    137: _row(
        "its command was killed (SIGKILL), in most cases because memory ran out", "give it more memory{more_memory}"
    ),
    139: _row("its command accessed memory that is not its own (SIGSEGV)", OUTPUT),
    143: _row("its command was asked to end (SIGTERM), and nobody had requested a stop", OUTPUT),
}
"""By exit status, of `EXIT_NONZERO`: a shell's own codes, 128 + the signal that ended the command; -1 is any signal."""

SILENT: Final = _row(
    "It was {state} when {provider} last answered, at {at}",
    "`steno record` polls it, `steno doctor` says whether {provider} can be reached",
)
"""For a run that has not ended, once its provider has not answered for a while."""

GONE: Final = _row(
    "{provider} calls it running, but its machine is gone",
    "its output so far: `steno logs {name} --tail 50`; to give it up: `steno stop {name}`",
    Blame.PROVIDER,
)
"""For a running run whose machine was seen gone."""

CUT_OFF: Final = _row(
    "{provider} calls it running, but has not reached its machine since {reached}",
    "its output so far: `steno logs {name} --tail 50`; to give it up: `steno stop {name}`",
    Blame.PROVIDER,
)
"""For a running run whose machine is unreachable."""

IDLE: Final = _row(
    "{provider} calls it running and its machine idle, and one of the two is wrong",
    "look whether it still works: `steno logs {name} -f`",
    Blame.PROVIDER,
)
"""For a running run whose machine its provider calls idle."""

SCHEDULED: Final = _row(
    "{provider} starts it by its schedule, next at {due}; each firing is a run of its own",
    "to end the schedule: `steno stop {name}`",
)
"""For a schedule that goes on."""

NOT_SEEN: Final = _row(
    "Not seen: {provider} no longer shows this firing, and no answer showed its end", "how it ended is not known"
)
"""For a firing that is over."""

ARRAY: Final = {
    State.REQUESTED: "No task of the array has begun",
    State.QUEUED: "Every task of the array waits",
    State.SUCCEEDED: "Every task of the array succeeded",
    State.STOPPED: "A task of the array was stopped, and none failed",
    State.FAILED: "A task of the array failed",
    **dict.fromkeys(
        (State.PROVISIONING, State.PULLING, State.RUNNING, State.FINISHING, State.LOST), "The array goes on"
    ),
}  # of its most advanced task, or of the first that decided
ARRAY_REMEDY: Final = "`steno show '{name}[N]'` explains a task, `steno ps --unfold` lists them"
