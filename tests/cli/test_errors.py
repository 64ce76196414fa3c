"""Every error is one line and the exit code the manual promises; that of a run depends on why it ended."""

import errno
from itertools import product

import click
import pytest
from msgspec.structs import replace

from steno.cli.wiring import errors
from steno.cli.wiring.errors import CODES, NOT_SUCCEEDED, UNREACHABLE, code_of, exit_code_of
from steno.cli.wiring.session import code_of_failure
from steno.engine import errors as engine
from steno.engine.control.submitter import REFUSALS
from steno.engine.providers.dstack.endings import MESSAGES, REASONS
from steno.engine.providers.slurm.words import ENDINGS
from steno.engine.rules import reasons
from steno.engine.rules.why_ended import cause
from steno.engine.state.facts import Finding, RunFacts
from steno.engine.state.run import Run
from steno.engine.state.states import Reason, State
from steno.events import errors as events

PROMISED = {
    events.RecordNotFound: 4,
    events.NotARecord: 7,
    events.RecordDamaged: 7,
    events.RecordTooNew: 8,
    events.RecordNotWritable: 8,
    events.RecordLocked: 5,
    events.UnreadableInput: 2,
    engine.ProviderUnreachable: 3,
    engine.ProviderRefused: 3,
    engine.ProjectNotFound: 4,
    engine.RunNotFound: 4,
    engine.TaskInvalid: 2,
    engine.NameInUse: 5,
    engine.RefusedByPolicy: 6,
}


@pytest.mark.parametrize(("kind", "code"), PROMISED.items())
def test_each_error_has_the_code_of_the_manual(kind: type[Exception], code: int) -> None:
    """Scripts depend on these."""
    assert code_of(kind("it is so; do this")) == code


def test_a_subclass_has_the_code_of_its_parent() -> None:
    """A package may refine an error without asking here."""

    class Refined(events.RecordDamaged):
        """A finer case."""

    assert code_of(Refined()) == 7


def test_an_error_is_one_line_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    """However many lines its text has."""
    assert exit_code_of(events.NotARecord("x.db is\nnot a record")) == 7
    assert capsys.readouterr() == ("", "steno: x.db is not a record\n")


def test_a_mistake_of_ours_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback never reaches a user who did not ask for it."""
    assert exit_code_of(RuntimeError("surprise")) == errors.BUG
    line = capsys.readouterr().err
    assert line.count("\n") == 1
    assert "RuntimeError: surprise" in line
    assert "STENO_DEBUG" in line


def test_steno_debug_shows_where_a_mistake_of_ours_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """For whoever reports it."""
    monkeypatch.setenv("STENO_DEBUG", "1")
    with pytest.raises(RuntimeError) as caught:
        raise RuntimeError("surprise")
    assert exit_code_of(caught.value) == errors.BUG
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.UsageError("no such option"), 2),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "x.jsonl"), 4),
        (PermissionError(errno.EACCES, "Permission denied", "x.jsonl"), 8),
        (OSError(errno.ENOSPC, "No space left on device", "x.jsonl"), 8),
        (OSError(errno.EROFS, "Read-only file system", "x.jsonl"), 8),
        (IsADirectoryError(errno.EISDIR, "Is a directory", "x.jsonl"), 2),
    ],
)
def test_errors_of_the_machine_have_codes_too(error: BaseException, code: int) -> None:
    """A full disk is not a mistake of ours."""
    assert exit_code_of(error) == code


def ended(state: State, reason: Reason | None, provider_id: str | None, row: Finding | None = None) -> Run:
    run = Run(run_id="r", provider="dstack", first_position=1, first_at=0, last_position=1, last_at=0)
    run.state, run.reason, run.provider_id = state, reason, provider_id
    run.facts = None if row is None else RunFacts(provider_id="p", ending=row)
    return run


def code(run: Run) -> int:
    return code_of_failure(run, cause(run))


def test_of_every_row_the_exit_code_is_the_documented_one() -> None:
    """1 for whatever a provider had, whoever is to blame for its end; 3 where the provider failed to take it."""
    rows = (None, *(row for table in (REASONS, MESSAGES, ENDINGS) for row in table.values()))
    ends = (State.FAILED, State.STOPPED, State.LOST)
    for state, reason, row in product(ends, (None, *Reason), rows):
        assert code(ended(state, reason, "p", row and replace(row, word="w"))) == NOT_SUCCEEDED
    for reason in reasons.NOT_HANDED_OVER:
        wanted = UNREACHABLE if reason is Reason.UNREACHABLE else NOT_SUCCEEDED
        assert code(ended(State.FAILED, reason, None)) == wanted
    assert CODES[REFUSALS["unreachable"]] == UNREACHABLE
