"""A machine does not depend on who made it, and is never lost from sight: `kill -9` of anybody, at any point."""

import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import pytest
from stenotest import steno_process
from stenotest.waiting import wait

from steno.engine.errors import ProviderError
from steno.engine.providers.local import provider as local_provider

pytestmark = pytest.mark.slow

DONE = ("ended", "exited", 0)
UNREACHABLE = ("ended", "machine_lost", None)

SUBMITTER = """
import os, sys
from pathlib import Path
from steno.engine.providers.base import Submission
from steno.engine.providers.local.provider import LocalProvider
from steno.events.clock import RandomIds, SystemClock
state, base, run_id, command, idle = sys.argv[1:]
provider = LocalProvider(Path(state), clock=SystemClock(), ids=RandomIds(), host="here", environment=os.environ)
provider.submit(Submission(run_id=run_id, name="from-elsewhere", project="here", slot="steno-slot-1",
    configuration={"type": "task", "commands": [command], "idle_duration": idle}, base=base))
"""

KILLED_SUBMITTER = """
import steno.engine.providers.local.{module} as module
import os, signal
real = module.{name}
def dies(*arguments, **options):
    {before}
    result = real(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
module.{name} = dies
"""


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("idle", ["1h", "0s"])
@pytest.mark.parametrize("early", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("store", "lock"),
        ("store", "write_json"),
        ("store", "sync_folder"),
        ("provider", "launch"),
        ("provider", "subprocess.Popen"),
        ("provider", "_submitted"),
    ],
)
def test_a_submitter_killed_anywhere_leads_to_one_run_on_one_machine(
    machine, module: str, name: str, early: bool, idle: str
) -> None:
    """At every boundary: submitted again under the same id, it ran once, and one machine is there, if it is kept."""
    before = "os.kill(os.getpid(), signal.SIGKILL)" if early else ""
    command = "echo x >> ran; sleep 0.2"
    run_id = machine.new_id()
    code = KILLED_SUBMITTER.format(module=module, name=name, before=before) + SUBMITTER
    words = (str(machine.state), str(machine.base), run_id, command, idle)
    assert steno_process.run(words, program=code, env=os.environ).returncode == -signal.SIGKILL
    machine.provider.find("from-elsewhere", 0)
    again = machine.submission(command, run_id=run_id, name="from-elsewhere", idle_duration=idle)
    assert machine.provider.submit(msgspec.structs.replace(again, slot="steno-slot-1")).provider_id == run_id
    assert machine.end(run_id) == DONE
    wait(lambda: machine.is_at("idle" if idle == "1h" else "gone"))
    assert (machine.base / "ran").read_text() == "x\n"
    assert len(machine.processes()) == (idle == "1h")
    assert len(msgspec.json.decode(machine.poll().body or b"")) == 1


def test_a_machine_outlives_the_kill_of_everybody_else(machine, engine) -> None:
    """The engine's whole process group and the run's supervisor are killed: the machine is idle and can be used."""
    run_id = machine.new_id()
    argv = [sys.executable, "-c", SUBMITTER + "import time; print(1, flush=True); time.sleep(600)"]
    argv += [str(machine.state), str(machine.base), run_id, "sleep 600", "1h"]
    with engine(argv) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"1\n"
    assert machine.words(run_id)[0] in {"provisioning", "running"}
    machine.kill_supervisor(run_id)
    assert machine.end(run_id) == ("ended", "supervisor_lost", None)
    wait(lambda: machine.is_at("idle"))
    warm = machine.submit("true", slot="steno-slot-1", creation="reuse")
    assert machine.end(warm) == DONE


def test_a_machine_that_died_is_terminated_as_unreachable(machine) -> None:
    """Nobody can bill a process that is not there; the next run makes another."""
    machine.end(machine.submit("true", idle_duration="1h"))
    vm = machine.the_machine()
    kill(machine.pid_of_machine(vm["id"]))
    # The kernel takes a process off the list before it releases its lock, by which the provider knows it.
    wait(lambda: not machine.processes() and machine.is_at("gone"))
    gone = machine.the_machine()
    assert (gone["status"], gone["reason"]) == ("gone", "unreachable")
    assert gone["ended_at"] > gone["created"]
    assert machine.another().stop_vm(vm["id"]) is None
    machine.provider = machine.another()
    assert machine.the_machine() == gone
    assert machine.end(machine.submit("true", idle_duration="1h")) == DONE
    wait(lambda: machine.is_at("idle", "gone"))


@pytest.mark.parametrize("boot", [0, 3_600_000_000], ids=["running", "booting"])
def test_a_machine_that_dies_takes_its_run_with_it(machine, boot: int) -> None:
    """As a rented one does, also while it comes up: both are told so, and no process of the run is left."""
    machine.offers(boot=boot)
    run_id = machine.submit("sleep 600", idle_duration="1h")
    if not boot:
        wait(lambda: machine.words(run_id)[0] == "running")
    kill(machine.pid_of_machine(machine.the_machine()["id"]))
    assert machine.end(run_id) == UNREACHABLE
    wait(lambda: machine.is_at("gone"))
    assert machine.the_machine()["reason"] == "unreachable"


def test_a_machine_told_to_quit_says_so(machine) -> None:
    """SIGTERM is what a host sends that goes down."""
    machine.end(machine.submit("true", idle_duration="1h"))
    os.kill(machine.pid_of_machine(machine.the_machine()["id"]), signal.SIGTERM)
    wait(lambda: machine.is_at("gone"))
    vm = machine.the_machine()
    assert vm["reason"] == "unreachable"
    assert vm["message"] == "the machine's process was told to quit"


def test_a_machine_whose_folder_is_gone_goes_too(machine, tmp_path: Path) -> None:
    """A deleted record takes its machines with it."""
    machine.end(machine.submit("true", idle_duration="off"))
    machine.state.rename(tmp_path / "thrown-away")
    wait(lambda: not machine.processes())


def test_a_machine_without_its_run_is_found_by_the_same_submission(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor that died before it announced leaves an idle machine, which the second try takes."""
    submission = machine.submission("echo x >> ran", idle_duration="1h")
    start = "import sys, os, signal; sys.path.append(sys.argv[1]); import steno.engine.providers.local.supervisor as s"
    die = "s.adopt_orphans = lambda: os.kill(os.getpid(), signal.SIGKILL)"
    with monkeypatch.context() as patch:
        patch.setattr(local_provider, "_PROGRAM", f"{start}\n{die}\ns.main()")
        with pytest.raises(ProviderError, match="did not start"):
            machine.provider.submit(submission)
    wait(lambda: machine.is_at("idle"))
    assert machine.provider.submit(submission).provider_id == submission.run_id
    assert machine.end(submission.run_id) == DONE
    assert len(machine.processes()) == len(machine.machines()) == 1


@pytest.mark.slow
def test_a_run_in_the_last_moment_is_never_hit(machine) -> None:
    """Runs that come just as the machine goes for idling: each succeeds, on the old machine or on a new one."""
    for pause in (0.0, 0.18, 0.22, 0.26, 0.3, 0.34, 0.38, 0.42):
        time.sleep(pause)  # the machine looks every 0.2 s whether it has idled for 0.2 s
        submission = msgspec.structs.replace(machine.submission("true"), idle=200_000)
        assert machine.end(machine.provider.submit(submission).provider_id) == DONE


def test_an_idle_machine_is_small_and_holds_no_secret(machine) -> None:
    """Some 8 MB of its own, started apart: neither its memory map's environment nor its folder has the task's."""
    machine.end(machine.submit("true", idle_duration="1h", env={"KEY": "correct-horse"}))
    (pid,) = machine.processes()
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.count(":") == 1
    )
    assert int(status["VmRSS"].split()[0]) < 20_000
    assert b"correct-horse" not in Path(f"/proc/{pid}/environ").read_bytes()
    assert b"correct-horse" not in Path(f"/proc/{pid}/cmdline").read_bytes()
    folder = machine.state / ".machines"
    assert not [path for path in folder.rglob("*") if path.is_file() and b"correct-horse" in path.read_bytes()]
    assert os.getsid(pid) == pid


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
def test_a_run_outlives_the_renaming_of_its_folder(machine, warm: bool) -> None:
    """It ends as it does, its end is where its folder is now, and its machine stays until then."""
    place = {"slot": "steno-slot-1", "idle_duration": "1h"} if warm else {}
    run_id = machine.submit(machine.gated, **place)
    wait(lambda: machine.words(run_id)[0] == "running")
    before, machine.state = machine.state, machine.state.rename(machine.base / "elsewhere.local")
    machine.provider = machine.another()
    try:
        assert machine.words(run_id)[0] == "running"
        machine.open()
        wait((machine.state / run_id / "ended.json").exists)
        assert machine.words(run_id) == DONE
    finally:
        machine.state = machine.state.rename(before)
