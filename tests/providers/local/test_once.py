"""A submission is a single run, and a name a single active run, however many submit at once."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from steno.engine.errors import NameInUse, ProviderError, TaskInvalid
from steno.engine.providers.base import StopTarget
from steno.engine.providers.local import provider as local_provider
from steno.engine.providers.local import store
from steno.events.clock import SECOND

DONE = ("ended", "exited", 0)


def test_many_submitters_of_one_run_id_start_it_once(machine) -> None:
    """Whoever comes first starts it, all get the same run; also after its end."""
    submission = machine.submission("echo x >> ran", "sleep 0.3")
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: machine.another().submit(submission), range(8)))
    assert len(set(answers)) == 1
    assert machine.end(submission.run_id) == DONE
    assert machine.another().submit(submission) == answers[0]
    assert machine.wait_for("ran") == "x"


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
    assert store._TIMEOUT > local_provider._TIMEOUT * SECOND


@pytest.mark.parametrize("run_id", ["", "..", "a/b", ".gate", "x" * 65, "a\nb"])
def test_a_run_id_that_is_no_name_of_a_folder_is_refused(machine, run_id: str) -> None:
    """Nothing is written outside the run's own folder."""
    submission = machine.submission("true", run_id="x").__class__(
        run_id=run_id, name="mine", project="here", configuration={"commands": ["true"]}
    )
    with pytest.raises(TaskInvalid, match="cannot be a run id"):
        machine.provider.submit(submission)


def test_a_state_folder_that_cannot_be_written_is_one_line(machine) -> None:
    """It says what is wrong and what to do."""
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
    root = Path(__file__).parents[3] / "src"
    code = (
        f"import sys; sys.path.append({str(root)!r}); import steno.engine.providers.local.supervisor;"
        "print([name for name, module in sys.modules.items()"
        " if 'site-packages' in (getattr(module, '__file__', None) or '')])"
    )
    modules = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], check=True, capture_output=True, text=True
    ).stdout
    assert modules == "[]\n"
