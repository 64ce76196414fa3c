"""Ending a run: on request, by force, and when its time is over; always with everything it started."""

import os
import signal
import time
from pathlib import Path

import pytest
from stenotest.waiting import wait

from steno.engine.providers.base import StopTarget
from steno.engine.providers.local.tree import marked

pytestmark = pytest.mark.slow

DEAF = "trap 'echo asked' TERM; echo ready; while :; do sleep 0.05; done"
"""It hears the request and goes on."""
STOPPED = ("ended", "stopped", None)
ABORTED = ("ended", "killed", None)
TIMED_OUT = ("ended", "timed_out", None)

DAEMON = """python3 -c "
import os, signal, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
[signal.signal(number, signal.SIG_IGN) for number in (signal.SIGTERM, signal.SIGHUP)]
open('daemon.part', 'w').write(f'{os.getpid()}\\n')
os.rename('daemon.part', 'daemon')
time.sleep(600)" """


def gone(pid: int, run_id: str) -> bool:
    """True if it has ended; its number may be another's by now."""
    return pid not in marked(run_id)


def stop_heard(machine, run_id: str) -> None:
    """A stop that a deaf command has heard."""
    output = machine.provider.logs(run_id, "", follow=True)
    assert next(output) == b"ready\n"
    machine.provider.stop(StopTarget(provider_id=run_id, name=""))
    heard = b""
    while b"asked\n" not in heard:  # beside it the shell may report the `sleep` that was ended, too
        heard += next(output)


def test_a_stop_ends_the_whole_tree_and_leaves_no_exit_status(machine) -> None:
    """As dstack has it: `terminated`, by the user, exit status null, although the shell died of the signal."""
    commands = ("sleep 600 & echo $! > child", "setsid sleep 600 & echo $! > other", "wait")
    run_id = machine.submit(*commands, stop_duration="off")  # the request alone must do
    pids = [int(machine.wait_for("child")), int(machine.wait_for("other"))]
    assert not any(gone(pid, run_id) for pid in pids)
    machine.provider.stop(StopTarget(provider_id=run_id, name=""))
    assert machine.words(run_id)[:2] == ("stopping", "stopped") or machine.words(run_id) == STOPPED
    assert machine.end(run_id) == STOPPED
    assert all(gone(pid, run_id) for pid in pids)


def test_a_stopped_command_may_tidy_up(machine) -> None:
    """SIGTERM first: what the command does about it counts, what it exits with does not."""
    command = "trap 'echo tidied; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    run_id = machine.submit(command, stop_duration="off")
    next(machine.provider.logs(run_id, "", follow=True))
    machine.provider.stop(StopTarget(provider_id=run_id, name=""))
    assert machine.end(run_id) == STOPPED
    assert machine.output(run_id).endswith(b"tidied\n")


def test_a_daemon_that_left_its_session_and_ignores_signals_is_killed_too(machine) -> None:
    """Double fork, new session, SIGTERM ignored: it is still the run's. `stop_duration` is the grace."""
    run_id = machine.submit(DAEMON, "sleep 600", stop_duration="1s")
    daemon = int(machine.wait_for("daemon"))
    began = time.monotonic()
    machine.provider.stop(StopTarget(provider_id=run_id, name=""))
    assert machine.end(run_id) == STOPPED
    assert time.monotonic() - began >= 1
    assert gone(daemon, run_id)


def test_a_daemon_does_not_outlive_a_command_that_ends_by_itself(machine) -> None:
    """Nor a daemon that hides while the command ends."""
    run_id = machine.submit(DAEMON, "until [ -e daemon ]; do sleep 0.02; done")
    assert machine.end(run_id)[:2] == ("ended", "exited")
    assert gone(int(machine.wait_for("daemon")), run_id)


def test_an_abort_does_not_ask(machine) -> None:
    """SIGKILL at once."""
    run_id = machine.submit("trap 'echo never' TERM; echo ready; while :; do sleep 0.05; done")
    next(machine.provider.logs(run_id, "", follow=True))
    machine.provider.stop(StopTarget(provider_id=run_id, name="", abort=True))
    assert machine.end(run_id) == ABORTED
    assert machine.output(run_id) == b"ready\n"


def test_an_abort_overtakes_a_stop_and_a_stop_not_an_abort(machine) -> None:
    """A grace of a day can still be cut short."""
    run_id = machine.submit(DEAF, stop_duration="1d")
    stop_heard(machine, run_id)
    assert machine.words(run_id) == ("stopping", "stopped", None)
    machine.provider.stop(StopTarget(provider_id=run_id, name="", abort=True))
    machine.provider.stop(StopTarget(provider_id=run_id, name=""))
    assert machine.end(run_id) == ABORTED


def test_without_a_grace_only_an_abort_kills(machine) -> None:
    """`stop_duration: off`."""
    run_id = machine.submit(DEAF, stop_duration="off")
    stop_heard(machine, run_id)
    assert machine.words(run_id)[0] == "stopping"
    machine.provider.stop(StopTarget(provider_id=run_id, name="", abort=True))
    assert machine.end(run_id) == ABORTED


def test_a_suspended_command_can_be_stopped(machine) -> None:
    """A process in state T hears SIGTERM only once it goes on."""
    run_id = machine.submit("echo $$ > pid", "kill -STOP $$", "sleep 600", stop_duration="off")
    shell = Path("/proc", machine.wait_for("pid"), "stat")
    wait(lambda: shell.read_text().rpartition(")")[2].split()[0] == "T")
    machine.provider.stop(StopTarget(provider_id=run_id, name=""))
    assert machine.end(run_id) == STOPPED


def test_a_run_is_ended_when_its_time_is_over(machine) -> None:
    """`max_duration` counts from the start of the command."""
    began = time.monotonic()
    run_id = machine.submit("sleep 600 & sleep 600", max_duration="1s")
    assert machine.end(run_id) == TIMED_OUT
    assert time.monotonic() - began >= 1


def test_a_flood_of_output_does_not_delay_a_stop(machine) -> None:
    """The supervisor looks for the request however busy the pipe is."""
    machine.provider = machine.another(output_limit=1_000)
    run_id = machine.submit("cat /dev/zero", stop_duration="off")
    output = machine.state / run_id / "output"
    wait(lambda: output.exists() and b"the rest is dropped" in output.read_bytes())
    machine.provider.stop(StopTarget(provider_id=run_id, name=""))
    assert machine.end(run_id) == STOPPED


def test_a_fork_bomb_of_short_lived_processes_is_ended(machine) -> None:
    """New processes appear while old processes are killed."""
    run_id = machine.submit("echo ready", "for i in 1 2 3; do (while :; do (sleep 0.01 &) ; done) & done; wait")
    next(machine.provider.logs(run_id, "", follow=True))
    machine.provider.stop(StopTarget(provider_id=run_id, name="", abort=True))
    assert machine.end(run_id) == ABORTED


def test_a_supervisor_that_is_told_to_quit_ends_the_run_and_says_so(machine) -> None:
    """A machine that shuts down sends SIGTERM: the run is the machine's failure."""
    run_id = machine.submit("sleep 600")
    os.kill(machine.supervisor(run_id), signal.SIGTERM)
    assert machine.end(run_id) == ("ended", "supervisor_lost", None)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_supervisor_does_not_mind_a_terminal_signal(machine, number: signal.Signals) -> None:
    """Ctrl-C and a closing terminal are not for it."""
    run_id = machine.submit(machine.gated)
    os.kill(machine.supervisor(run_id), number)
    machine.open()
    assert machine.end(run_id) == ("ended", "exited", 0)
