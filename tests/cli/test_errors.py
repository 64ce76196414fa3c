"""Every error is one line and the exit code the manual promises."""

import errno

import click
import pytest

from cli.wiring import errors
from cli.wiring.errors import code_of, exit_code_of
from engine import errors as engine
from events import errors as events

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
    assert exit_code_of(events.NotARecord("x.db is\nno record")) == 7
    assert capsys.readouterr() == ("", "steno: x.db is no record\n")


def test_a_mistake_of_ours_is_one_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback never reaches a user who did not ask for it."""
    assert exit_code_of(RuntimeError("surprise")) == errors.BUG
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert "RuntimeError: surprise" in told
    assert "STENO_DEBUG" in told


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
