"""A run does not depend on who started it, and its end is known whatever died."""

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from steno.engine.errors import ProviderError
from steno.engine.providers.base import StopTarget
from steno.engine.providers.local import provider as local_provider
from steno.engine.providers.local import tree
from steno.engine.providers.local.tree import marked

pytestmark = pytest.mark.slow

LOST = ("ended", "supervisor_lost", None)
DONE = ("ended", "exited", 0)

SUBMITTER = """
import os, sys, time
from pathlib import Path
from steno.engine.providers.base import Submission
from steno.engine.providers.local.provider import LocalProvider
from steno.events.clock import RandomIds, SystemClock
state, base, run_id, command = sys.argv[1:]
provider = LocalProvider(Path(state), clock=SystemClock(), ids=RandomIds(), host="here", environment=os.environ)
provider.submit(Submission(run_id=run_id, name="from-elsewhere", project="here",
    configuration={"type": "task", "commands": [command]}, base=base))
print("submitted", flush=True)
time.sleep(600)
"""


def submitter(machine, command: str) -> tuple[str, list[str]]:
    run_id = machine.new_id()
    return run_id, [sys.executable, "-c", SUBMITTER, str(machine.state), str(machine.base), run_id, command]


def test_a_run_outlives_the_kill_of_its_submitter(machine, engine) -> None:
    """`kill -9` of the whole process group of the engine; what happens afterwards is seen later."""
    run_id, argv = submitter(machine, f"{machine.gated}; echo after; exit 5")
    with engine(argv) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"submitted\n"
    assert machine.words(run_id)[0] == "running"
    machine.open()
    assert machine.end(run_id)[-1] == 5
    assert machine.output(run_id) == b"after\n"


def test_a_run_outlives_its_terminal(machine) -> None:
    """Closing the window hangs up everything in its session; the run is in none."""
    run_id, argv = submitter(machine, f"{machine.gated}; tty; exit 6")
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # whoever runs the tests may have it ignored (nohup)
        os.execv(argv[0], argv)
    output = b""
    try:
        while b"submitted" not in output:
            output += os.read(terminal, 100)  # an OSError where the other end was closed
    finally:
        os.close(terminal)
        os.waitpid(child, 0)
    machine.open()
    assert machine.end(run_id)[-1] == 6
    assert machine.output(run_id) == b"not a tty\n"


LOOK_FOR_CHILDREN = """
try:
    print("a child:", os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("no child")
"""


def test_the_submitter_has_no_child_to_wait_for(machine) -> None:
    """No zombie stays in a long-lived engine, and no parent can be asked to kill its children.

    The submitter is a process that starts nothing else: this one may have children of other tests.
    """
    run_id, argv = submitter(machine, "sleep 600")
    argv[2] = argv[2].replace("time.sleep(600)\n", LOOK_FOR_CHILDREN)
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("submitted\nno child\n", "")
    assert machine.words(run_id)[0] == "running"


def test_a_lost_supervisor_ends_the_run_and_what_is_left_of_it(machine) -> None:
    """`kill -9` of the supervisor: the exit status is lost, so the machine has failed the run, for good."""
    run_id = machine.submit("setsid sleep 600 & sleep 600", "echo never")
    machine.kill_supervisor(run_id)
    assert machine.end(run_id) == LOST
    assert marked(run_id) == []
    first = machine.item(run_id)
    machine.provider = machine.another()
    assert machine.item(run_id) == first


def test_a_command_that_kills_its_supervisor_is_found_out(machine) -> None:
    """Its own parent is within its reach."""
    run_id = machine.submit("kill -9 $PPID", "sleep 600")
    assert machine.end(run_id) == LOST


def test_following_the_output_of_a_lost_run_ends(machine) -> None:
    """Nobody will write any more."""
    run_id = machine.submit("echo here", "sleep 600")
    pieces = machine.provider.logs(run_id, "", follow=True)
    assert next(pieces) == b"here\n"
    machine.kill_supervisor(run_id)
    assert b"".join(pieces) == b""


def test_stopping_a_lost_run_ends_what_is_left_of_it(machine) -> None:
    """Without a supervisor the caller itself ends the run, and it counts as stopped."""
    run_id = machine.submit("sleep 600 & sleep 600; echo never")
    machine.kill_supervisor(run_id)
    machine.provider.stop(StopTarget(provider_id=run_id, name="", abort=True))
    assert marked(run_id) == []
    assert machine.words(run_id) == ("ended", "killed", None)


def test_a_lost_run_in_a_folder_that_cannot_be_written_is_still_told(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading must not fail because writing would."""
    run_id = machine.submit("sleep 600")
    machine.kill_supervisor(run_id)

    def refuse(path: Path, value: object) -> None:
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr("steno.engine.providers.local.state.write_json", refuse)
    assert machine.end(run_id) == LOST


def sabotaged(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Run these lines in the supervisor before it starts (`s` is its module)."""
    start = "import sys, os, signal; sys.path.append(sys.argv[1]); import steno.engine.providers.local.supervisor as s"
    monkeypatch.setattr(local_provider, "_PROGRAM", f"{start}\n{code}\ns.main()")


DIE = "os.kill(os.getpid(), signal.SIGKILL)"


@pytest.mark.parametrize(
    "code",
    [
        DIE,
        f"s.json.loads = lambda text: {DIE}",
        f"s.adopt_orphans = lambda: {DIE}",
        f"s.write_json = lambda path, value: {DIE}",
    ],
    ids=["at-once", "before-the-plan", "before-announcing", "at-announcing"],
)
def test_a_supervisor_that_dies_before_the_start_leaves_a_run_that_can_be_submitted_again(
    machine, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    """Nothing was started, nothing is listed, nothing is found; the same submission then starts it, once."""
    submission = machine.submission("echo x >> ran", name="mine")
    with monkeypatch.context() as patch:
        sabotaged(patch, code)
        with pytest.raises(ProviderError, match="did not start"):
            machine.provider.submit(submission)
    assert machine.poll().body == b"[]"
    assert machine.provider.find("mine", 0) == ()
    assert machine.provider.submit(submission).provider_id == submission.run_id
    assert machine.end(submission.run_id) == DONE
    assert machine.wait_for("ran") == "x"


@pytest.mark.parametrize(
    ("code", "ran"),
    [
        (f"s.Supervisor.start = lambda self, env: {DIE}", False),
        (f"s._acknowledge = lambda: {DIE}", True),
        (f"s.Supervisor._settle = lambda *words: {DIE}", True),
    ],
    ids=["before-the-command", "before-the-answer", "before-the-end-is-written"],
)
def test_a_supervisor_that_dies_after_announcing_is_never_replaced(
    machine, monkeypatch: pytest.MonkeyPatch, code: str, ran: bool
) -> None:
    """It is not known whether the command ran, so it is not run again: the run is lost, and found as such."""
    submission = machine.submission("echo x >> ran", name="mine")
    sabotaged(monkeypatch, code)
    machine.provider.submit(submission)
    monkeypatch.undo()
    if ran:
        machine.wait_for("ran")
    assert machine.end(submission.run_id) == LOST
    assert [run.provider_id for run in machine.provider.find("mine", 0)] == [submission.run_id]
    monkeypatch.setattr("steno.engine.providers.local.provider.launch", None)  # nothing more is started
    assert machine.provider.submit(submission).provider_id == submission.run_id
    assert (machine.base / "ran").exists() == ran
    assert not ran or (machine.base / "ran").read_text() == "x\n"


def test_a_supervisor_that_fails_says_what_happened(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A defect of ours is the run's `supervisor_lost`, with its text, and ends the command."""
    sabotaged(monkeypatch, "def broken(self): raise RuntimeError('a defect')\ns.Supervisor.run = broken")
    run_id = machine.submit("sleep 600")
    assert machine.end(run_id) == LOST
    message = machine.item(run_id)["message"]
    assert message == "the supervisor failed: RuntimeError('a defect')"


def test_a_machine_that_stood_still_leaves_nothing_of_a_run(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """No time is long enough by itself for what was killed to go: it must have been looked for often, too."""
    monkeypatch.setattr(tree.kill_marked, "__defaults__", (0.0,))
    run_id = machine.submit("for i in 1 2 3 4; do sleep 600 & done", "sleep 600")
    machine.kill_supervisor(run_id)
    assert machine.end(run_id) == LOST
    assert marked(run_id) == []


def test_an_exit_status_is_written_once_the_disk_has_room_again(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor keeps it until then, and the run shows as running."""
    code = """
tries = []
def full(path, value, write=s.write_json):
    if path.name == "ended.json":
        tries.append(1)
        if len(tries) < 2: raise OSError(28, "No space left on device")
    write(path, value)
s.write_json = full"""
    sabotaged(monkeypatch, code)
    run_id = machine.submit("exit 9")
    assert machine.end(run_id)[-1] == 9


def test_no_announcement_no_command(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full at the start refuses the run in one line."""
    sabotaged(monkeypatch, "def full(path, value): raise OSError(28, 'No space left on device')\ns.write_json = full")
    with pytest.raises(ProviderError, match="No space left on device") as raised:
        machine.submit("touch ran")
    assert "\n" not in str(raised.value)
    assert not (machine.base / "ran").exists()
