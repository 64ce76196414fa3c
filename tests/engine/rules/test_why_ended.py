"""`why` names the cause of a state and what to do about it, in one sentence."""

import re
import shlex
from collections.abc import Iterator
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from steno.engine.providers.dstack.endings import MESSAGES, REASONS
from steno.engine.providers.slurm.words import ENDINGS
from steno.engine.rules import reasons
from steno.engine.rules.why_ended import finding, why, word
from steno.engine.state.facts import Finding, RunFacts, VmFacts, Waits
from steno.engine.state.run import Attempt, Held, Range, Reported, ReportedJob, Requirements, Run, Said
from steno.engine.state.states import Reason, State, VmState
from steno.engine.state.vm import SilentSpan, Vm
from steno.events.clock import SECOND, parse_duration


def run(state: State = State.FAILED, reason: Reason | None = None, **facts: object) -> Run:
    made_run = Run(
        run_id="0123456789abcdef",
        provider="dstack",
        first_position=1,
        first_at=0,
        last_position=1,
        last_at=0,
        name="train",
    )
    made_run.state, made_run.reason, made_run.provider_id, made_run.requested_at = state, reason, "p1", 1
    for name, value in facts.items():
        setattr(made_run, name, value)
    return made_run


KILLED = (
    "It exited 137: its command was killed (SIGKILL), in most cases because memory ran out; give it more memory: "
    "`steno rerun train --memory 32GB`."
)
UNDECLARED = (
    "The kernel does not compile (compile error): use of undeclared identifier '{name}'; "
    "`steno kernel show train` has the compiler's output."
)
NO_MACHINE = (
    "dstack had no machine with MI300X or MI250X; name other GPUs: `steno rerun train --fallback GPU,GPU`, or try "
    "later (after 2 attempts)."
)
MEMORY = Requirements(submitter="ada", memory=Range(16, None), gpu=("MI300X", "MI250X"))


def limited(seconds: float | None) -> Requirements:
    return Requirements(submitter="ada", max_duration=None if seconds is None else round(seconds * SECOND))


@pytest.mark.parametrize(
    ("limit", "proposed"),
    [(20, "40s"), (45, "90s"), (90, "3m"), (2700, "90m"), (7200, "4h"), (43_200, "24h"), (None, "49m"), (0.5, "1s")],
)
def test_a_run_that_hit_its_limit_is_to_be_given_twice_as_much(limit: float | None, proposed: str) -> None:
    """Without a limit of its own, the provider's: twice the time that it ran, 24 m 20 s. The flag takes it."""
    terms, ended = limited(limit), 1460 * SECOND
    text = why(run(reason=Reason.TIMED_OUT, terms=terms, started_at=1, finished_at=ended))
    advice = f"allow it more time: `steno rerun train --max-duration {proposed}`."
    assert text == "; ".join(("It ran longer than it may", advice))
    assert parse_duration(proposed) >= 2 * (terms.max_duration or ended - 1)


def test_a_limit_that_is_not_known_is_not_made_up() -> None:
    """A run that no poll saw running, and a run that ends on request: it was not used for too long."""
    sentence = "dstack ended it at a time limit{}; raise the limit and submit it again."
    assert why(run(reason=Reason.TIMED_OUT)) == sentence.format("")
    facts = RunFacts(provider_id="p1", finite=False)
    reported = Reported(reason="inactivity_duration_exceeded")
    unused = run(reason=Reason.TIMED_OUT, facts=facts, reported=reported, started_at=1, finished_at=9 * SECOND)
    assert why(unused) == sentence.format(" (`inactivity_duration_exceeded`)")


@pytest.mark.parametrize(
    ("ended", "message", "sentence"),
    [
        (
            run(reason=Reason.EXIT_NONZERO, exit_status=3),
            None,
            "It exited 3; read its output: `steno logs train --tail 50`.",
        ),
        (
            run(reason=Reason.EXIT_NONZERO, exit_status=127),
            None,
            "It exited 127: a command was not found; check its name, PATH and the image.",
        ),
        (run(reason=Reason.EXIT_NONZERO, exit_status=137, terms=MEMORY), None, KILLED),
        (
            run(
                reason=Reason.EXIT_NONZERO,
                exit_status=2,
                reported=Reported(jobs=(ReportedJob("done", None, 0), ReportedJob("failed", None, 2))),
            ),
            None,
            "Its job 1 exited 2; read its output: `steno logs train --tail 50`.",
        ),
        (  # not of the job that was stopped because another failed
            run(
                reason=Reason.EXIT_NONZERO,
                exit_status=1,
                reported=Reported(jobs=(ReportedJob("terminated", None, 143), ReportedJob("failed", None, 1))),
            ),
            None,
            "Its job 1 exited 1; read its output: `steno logs train --tail 50`.",
        ),
        (
            run(State.SUCCEEDED, Reason.EXIT_ZERO, exit_status=0, rule="current@1/master-done"),
            None,
            "Its master exited 0, and its workers were stopped then (`stop_criteria: master-done`).",
        ),
        (
            run(reason=Reason.COMPILE_ERROR),
            "ld: a.o: in function main:\nmain.cpp:(.text+0x5): undefined reference to `foo'\n",
            "The linker did not find `foo` (compile error); `steno kernel show train` has the compiler's output.",
        ),
        (
            run(reason=Reason.COMPILE_ERROR),
            "ld.lld: error: undefined symbol: foo(int)\n>>> referenced by a.o",
            "The linker did not find `foo(int)` (compile error); `steno kernel show train` has the compiler's output.",
        ),
        (
            run(reason=Reason.COMPILE_ERROR),
            "solution.hip:3:5: error: use of undeclared identifier '{name}'\n",
            UNDECLARED,
        ),
        (
            run(reason=Reason.NO_CAPACITY, terms=MEMORY, later_attempts=(Attempt(number=2, position=3),)),
            None,
            NO_MACHINE,
        ),
        (
            run(reason=Reason.REJECTED, provider_id=None),
            "the image is missing.\nmore",
            "It was never handed to dstack: the image is missing; correct that and submit it again.",
        ),
        (
            run(reason=Reason.INTERRUPTED, requested_at=None),
            None,
            "Its machine was taken away, as spot machines are; run it again.",
        ),
        (
            run(State.QUEUED, facts=RunFacts(provider_id="p1", waits=Waits(why="3 nodes are down", remedy="wait"))),
            None,
            "It waits at dstack: 3 nodes are down; wait.",
        ),
        (
            run(
                State.REQUESTED,
                held=Held(position=1, at=0, why="cap", detail="2 of 2 machines are in use", not_before=None),
            ),
            None,
            "It waits in Steno's queue: 2 of 2 machines are in use.",
        ),
    ],
)
def test_the_cause_comes_with_its_remedy(ended: Run, message: str | None, sentence: str) -> None:
    assert why(ended, message) == sentence


CREATED = 1_784_775_600 * SECOND


def machine(state: VmState, **facts: object) -> Vm:
    return Vm(
        vm_id="v",
        provider_id="i",
        provider="dstack",
        source="dstack/main",
        state=state,
        facts=VmFacts(provider_id="i", state=state, **facts),
        created=CREATED,
        unreachable=(SilentSpan(since=CREATED, until=None),),
        first_position=1,
        first_at=0,
        last_position=1,
        last_at=0,
    )


@pytest.mark.parametrize(
    ("vm", "silent_since", "sentence"),
    [
        (machine(VmState.BUSY), None, "It is running;"),
        (machine(VmState.BUSY, unreachable=True), None, "has not reached its machine since 2026-07-23T03:00:00Z;"),
        (machine(VmState.IDLE), None, "dstack calls it running and its machine idle,"),
        (machine(VmState.TERMINATED), None, "dstack calls it running, but its machine is gone;"),
        (machine(VmState.BUSY), CREATED, "It was running when dstack last answered, at 2026-07-23T03:00:00Z;"),
    ],
)
def test_a_running_run_is_doubted_where_its_machine_or_the_silence_says_so(
    vm: Vm, silent_since: int | None, sentence: str
) -> None:
    assert sentence in why(run(State.RUNNING), vm=vm, silent_since=silent_since)


@pytest.mark.parametrize("state", [State.REQUESTED, State.QUEUED])
def test_a_run_in_stenos_own_queue_does_not_wait_at_its_provider(state: State) -> None:
    """Held back, or with a place and not handed over yet."""
    held = Held(position=1, at=0, why="cap", detail="2 of 2 machines are in use", not_before=None)
    assert why(run(state, held=held)) == "It waits in Steno's queue: 2 of 2 machines are in use."
    assert "at dstack" not in why(run(state, provider_id=None))


def test_a_command_in_a_message_is_whole_or_left_out() -> None:
    """Wherever the message is cut."""
    for length in range(380, 420):
        sentence = why(run(reason=Reason.REJECTED, provider_id=None), f"{'x' * length}: `steno stop 0f2a`")
        assert sentence.count("`") == 0 or "`steno stop 0f2a`" in sentence


def rows() -> Iterator[Finding]:
    """Every row of the general table and of the providers' own."""
    tables = (reasons.STATES, reasons.REASONS, reasons.NOT_HANDED_OVER, reasons.EXITS, REASONS, MESSAGES, ENDINGS)
    yield from (row for table in tables for row in table.values() if row is not None)
    yield from (row for row in vars(reasons).values() if isinstance(row, Finding))


def test_run_it_again_is_said_only_where_the_same_task_may_succeed() -> None:
    """Where it may help, it is the whole remedy; elsewhere no text sends the same task out again."""
    table = list(rows())
    assert any(row.again for row in table)
    for row in table:
        assert not row.again or not row.remedy
        assert "steno rerun" not in row.remedy
        assert "run it again" not in row.remedy


def test_no_ended_run_of_any_words_is_told_to_do_the_same_again() -> None:
    """A bare `steno rerun` only where the row says so; elsewhere it has a flag that changes something."""
    for state, reason, row in product((State.FAILED, State.STOPPED), Reason, (None, *rows())):
        ending = None if row is None else replace(row, word="w", message="m")
        ended = run(state, reason, facts=RunFacts(provider_id="p1", ending=ending), started_at=1, finished_at=9)
        sentence = why(ended)
        assert ("steno rerun train`" in sentence) == finding(ended).again
        assert sentence.count("`") % 2 == 0


@given(
    name=st.text(max_size=80) | st.none(),
    message=st.text(max_size=500) | st.none(),
    state=st.sampled_from(State),
    reason=st.sampled_from(Reason) | st.none(),
    code=st.integers(-2, 300) | st.none(),
    handed=st.booleans(),
)
def test_any_combination_has_a_sentence_whose_commands_a_shell_takes(
    name: str | None, message: str | None, state: State, reason: Reason | None, code: int | None, *, handed: bool
) -> None:
    """Any name is written unchanged, or the id stands for it. What a provider says cannot move the cursor."""
    ended = run(state, reason, name=name, exit_status=code, provider_id="p1" if handed else None)
    sentence = why(ended, message)
    assert sentence.endswith((".", "!", "?"))
    assert sentence.isprintable()
    assert shlex.split(word(ended)) == [word(ended)]
    for command in re.findall(r"`(steno [^`]*)`", sentence if message is None else why(ended)):
        assert not re.search(r"[;|&<>$\n{}]", command)


def test_every_state_and_reason_has_one_sentence_without_a_gap() -> None:
    """Whatever a provider reports: no placeholder, no `None`, one full stop, a name that a shell takes."""
    for state, reason, message in product(State, (None, *Reason), (None, "line one\nline two")):
        ended = run(state, reason, name="two words; rm -rf", said=Said(mark=b""))
        sentence = why(ended, message)
        assert sentence.endswith(".")
        assert sentence[0].isupper() or sentence.startswith("dstack")
        assert not any(gap in sentence for gap in ("{", "}", "None", "..", "rm -rf", "\n"))


def test_a_long_message_is_cut() -> None:
    assert len(why(run(reason=Reason.WRONG_ANSWER), "x" * 10_000)) < 400
