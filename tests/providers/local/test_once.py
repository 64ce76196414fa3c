"""One submission is one run, and one name is one active run, however many ask at once."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.errors import NameInUse, ProviderError, TaskInvalid
from engine.providers.base import StopTarget
from engine.providers.local import launch, store
from events.clock import SECOND

DONE = ("ended", "exited", 0)


def test_a_run_id_is_started_once(machine) -> None:
    """A second submission gives the first run back: while it runs, after it ended, and from another process."""
    submission = machine.submission("echo x >> ran", "sleep 0.3")
    first = machine.provider.submit(submission)
    assert machine.provider.submit(submission) == first
    assert machine.end(submission.run_id) == DONE
    assert machine.another().submit(submission) == first
    assert machine.wait_for("ran") == "x"


def test_many_submitters_of_one_run_id_start_it_once(machine) -> None:
    """Whoever comes first starts it, all are told the same."""
    submission = machine.submission("echo x >> ran", "sleep 0.3")
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(lambda _: machine.another().submit(submission), range(8)))
    assert len(set(told)) == 1
    assert machine.end(submission.run_id) == DONE
    assert machine.wait_for("ran") == "x"


def test_a_name_is_free_again_when_its_run_has_ended(machine) -> None:
    """The new run has a new id; `find` gives those at or after a time, newest first, each with its mark."""
    old = machine.submit("true", name="mine")
    machine.end(old)
    middle = machine.provider.submit(machine.submission("sleep 600", name="mine"))
    assert middle.provider_id != old
    assert middle.submitted_at is not None
    found = machine.provider.find("mine", 0)
    assert [(one.provider_id, one.mark, one.ended) for one in found] == [
        (middle.provider_id, middle.provider_id, False),
        (old, old, True),
    ]
    assert machine.provider.find("mine", middle.submitted_at) == found[:1]
    assert machine.provider.find("mine", middle.submitted_at + 1) == ()
    assert machine.provider.find("other", 0) == ()


def test_one_of_many_who_want_a_name_gets_it(machine) -> None:
    """Looking for the name and taking it are one step."""

    def ask(_: int) -> bool:
        try:
            machine.another().submit(machine.submission("sleep 600", name="mine"))
        except NameInUse:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(8))) == 1


def test_who_looks_waits_longer_than_a_start_may_take() -> None:
    """On a slow machine, too, a run that is just being started is found as what becomes of it."""
    assert store._TIMEOUT > launch._TIMEOUT * SECOND


@pytest.mark.parametrize("run_id", ["", "..", "a/b", ".gate", "x" * 65, "a\nb"])
def test_a_run_id_that_is_no_name_of_a_folder_is_refused(machine, run_id: str) -> None:
    """Nothing is written outside the run's own folder."""
    submission = machine.submission("true", run_id="x").__class__(
        run_id=run_id, name="mine", project="here", configuration={"commands": ["true"]}
    )
    with pytest.raises(TaskInvalid, match="cannot be a run id"):
        machine.provider.submit(submission)


def test_a_state_folder_that_cannot_be_written_is_one_line(machine) -> None:
    """What is wrong and what to do."""
    machine.state.write_text("a file where the folder should be")
    with pytest.raises(ProviderError, match=r"cannot write .*: .*; make room or choose another --record") as raised:
        machine.submit("true")
    assert "\n" not in str(raised.value)
    with pytest.raises(ProviderError, match=r"cannot read .*: Not a directory"):
        machine.provider.find("mine", 0)
    with pytest.raises(ProviderError, match=r"cannot read .*: Not a directory"):
        machine.provider.stop(StopTarget(provider_id="run", name="mine"))


def test_importing_the_supervisor_needs_the_standard_library_only() -> None:
    """It must start fast, and on any Python that can start at all."""
    root = Path(__file__).parents[3]
    code = (
        f"import sys; sys.path.append({str(root)!r}); import engine.providers.local.supervisor;"
        "print([name for name, module in sys.modules.items()"
        " if 'site-packages' in (getattr(module, '__file__', None) or '')])"
    )
    said = subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True).stdout
    assert said == "[]\n"
