"""Log lines go where the manual says."""

import json
import logging
from collections.abc import Iterator

import pytest

from cli.wiring.logging_setup import log_for_daemon, log_for_data
from engine.fold.state_machines import VM, VmTrigger
from engine.states import VmState


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def test_a_daemon_logs_trouble_to_stderr_and_the_rest_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """A supervisor that keeps the two apart sees trouble at once."""
    log_for_daemon()
    logging.getLogger("engine").info("polled %s", "dstack/main")
    logging.getLogger("engine").error("no answer")
    out, err = capsys.readouterr()
    assert out.endswith("INFO    polled dstack/main\n")
    assert err.endswith("ERROR   no answer\n")
    assert "\x1b" not in out + err


def test_errors_are_red_where_colour_is_wanted_and_stdout_never_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FORCE_COLOR stands for a terminal here."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    log_for_daemon()
    logging.getLogger("engine").warning("slow")
    logging.getLogger("engine").error("no answer")
    out, err = capsys.readouterr()
    assert "\x1b" not in out
    assert "\x1b[31m" in err


def test_a_data_command_keeps_stdout_for_data(capsys: pytest.CaptureFixture[str]) -> None:
    """Only warnings and worse, only on stderr."""
    log_for_data()
    logging.getLogger("engine").info("polled")
    logging.getLogger("engine").warning("slow")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


def test_an_exception_is_logged_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback is nothing a user can act on."""
    log_for_daemon()
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("engine").exception("could not read it")
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "could not read it (ValueError: odd)" in err


def test_a_daemon_can_log_json(capsys: pytest.CaptureFixture[str]) -> None:
    """One object a line, the same on both streams."""
    log_for_daemon(json=True)
    logging.getLogger("engine").info("polled %s", "dstack/main")
    logging.getLogger("engine").error("no answer")
    out, err = capsys.readouterr()
    assert [list(json.loads(text)) for text in (out, err)] == [["at", "level", "message"]] * 2
    assert json.loads(err)["level"] == "error"


def test_a_signal_in_the_middle_of_a_step_is_no_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`transitions` swallows what is raised there; the loops of the commands ask for the signal again."""

    def terminated() -> None:
        raise SystemExit

    step = VM.live()
    log_for_daemon()
    monkeypatch.setattr(VM.machine, "finalize_event", [terminated])
    step(VmState.REQUESTED, VmTrigger.PROVISION)
    assert capsys.readouterr() == ("", "")
