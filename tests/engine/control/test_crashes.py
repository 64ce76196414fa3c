"""`kill -9` at every boundary: nothing acknowledged is lost, and nothing runs twice. With real processes."""

import os
import subprocess
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from stenotest import steno_process

from steno.engine.notify.routes import Route
from steno.engine.state.policy import Policy
from steno.engine.state.states import Reason, State, VmState
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND

KILL_AT = Path(__file__).with_name("kill_at.py").read_text()
KILLED = -9

pytestmark = pytest.mark.slow


def boundaries(count, every=4):
    """Every boundary up to `count`. An odd one lies before something: a kill there leaves behind what one at the
    boundary before it leaves, so all but the first are left to `make test-long`, and of the even boundaries
    all but every fourth, or every `every`-th.
    """
    return [pytest.param(n, marks=() if n == 1 or n % every == 0 else pytest.mark.long) for n in range(1, count + 1)]


@pytest.fixture
def steno(tmp_path):
    """`steno(boundary, *args)`: the genuine command in a folder of its own, killed at that boundary."""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("STENO_", "DSTACK_"))}
    env |= {"HOME": str(tmp_path), "STENO_RECORD": str(tmp_path / "record.db"), "NO_COLOR": "1"}

    def run(boundary, *args, **settings):
        words = (str(boundary), *args)
        return steno_process.run(words, program=KILL_AT, env=env | settings, cwd=tmp_path, stdin=subprocess.DEVNULL)

    return run


@pytest.mark.parametrize("boundary", boundaries(16))
def test_a_submission_killed_anywhere_becomes_exactly_one_run(steno, open_bench, tmp_path, boundary):
    """Whatever point the kill hits: a recorded request ends as one run that ran once, an unrecorded one as none."""
    task = "echo once >> ran.txt; sleep 0.3"
    killed = steno(boundary, "submit", "--wait", "--name", "killed", "--env", "TOKEN=hunter2-secret", "--", task)
    assert killed.returncode == KILLED or "boundaries: " in killed.stderr, killed.stderr

    bench = open_bench(tmp_path / "record.db")
    assert bench.record.verify().ok
    bench.controller.round()
    requested = tuple(bench.world.state.runs.ids())
    assert len(requested) == (0 if boundary <= 3 else 1)
    bench.poll_until(lambda: all(run.terminal for run in bench.world.state.runs.all()))
    assert [run.state for run in bench.world.state.runs.all()] == [State.SUCCEEDED] * len(requested)
    ran = tmp_path / "ran.txt"
    assert (ran.read_text() if ran.exists() else "") == "once\n" * len(requested)
    assert bench.record.verify().ok
    if requested:
        assert [file for file, content in bench.files().items() if b"hunter2-secret" in content] == []


@pytest.mark.parametrize("boundary", boundaries(10))
def test_a_recorder_killed_anywhere_loses_nothing_it_wrote(steno, open_bench, tmp_path, boundary):
    """Committed events are there and verify; the next recorder goes on to the right verdict."""
    bench = open_bench(tmp_path / "record.db")
    run_id = bench.ask("sleep 0.4; exit 5")
    head = bench.record.head()
    killed = steno(boundary, "record", "--interval", "0.05")
    assert killed.returncode == KILLED, killed.stderr
    assert bench.record.verify(expect=head).ok
    run = bench.finish(run_id)
    assert (run.state, run.reason, run.exit_status) == (State.FAILED, Reason.EXIT_NONZERO, 5)
    assert bench.kinds(run_id).count("SubmitSucceeded") == 1
    assert bench.record.verify(expect=head).ok


@pytest.mark.parametrize("boundary", boundaries(8))
def test_a_stop_killed_anywhere_still_stops(steno, open_bench, tmp_path, boundary):
    """A recorded stop is carried out by the next holder of the lease."""
    bench = open_bench(tmp_path / "record.db")
    run_id = bench.ask("sleep 3600")
    bench.poll_until(lambda: run_id in bench.world.state.runs and bench.run(run_id).state is State.RUNNING)
    killed = steno(boundary, "stop", run_id)
    assert killed.returncode == KILLED, killed.stderr
    if "StopRequested" not in bench.kinds(run_id):
        assert boundary == 1
        bench.ask_to_stop(run_id)
    assert bench.finish(run_id).reason is Reason.STOPPED_BY_USER


SETTINGS = {
    "STENO_LOCAL_PRICE": "3600",
    "STENO_LOCAL_GPU": "MI210",
    "STENO_MAX_VMS": "1",
    "STENO_IDLE_TIMEOUT": "1",
    "STENO_BUDGET": "1000",
    "STENO_BUDGET_ALERTS": "0.001",
}
POLICY = Policy(max_vms=1, idle_timeout=SECOND, budget_total=1000 * DOLLAR, thresholds=(1,))
"""The policy of the settings: a dollar a second, and an alert at the first dollar."""


@pytest.mark.parametrize("boundary", boundaries(46, every=8))
def test_a_controller_killed_anywhere_ends_in_one_run_one_machine_one_stop_and_tells_each_thing_once(
    steno, open_bench, tmp_path, hook, boundary
):
    """Placed, without capacity, made again, placed, run, idle, drained, ended, told: whatever point the kill hits, and
    whoever chooses the machine.
    """
    mode = ("provider", "pool")[boundary // 2 % 2]
    bench = open_bench(
        tmp_path / "record.db",
        policy=msgspec.structs.replace(POLICY, mode=mode),
        notify=Route(url=hook.url),
        price=3600 * DOLLAR,
        gpu="MI210",
        gpu_count=1,
    )
    run_id = bench.ask(
        'test "$TOKEN" = "$SAME" && echo once >> ran.txt; sleep 0.2',
        env={"TOKEN": "hunter2-secret", "SAME": "hunter2-secret"},
        resources={"gpu": "MI300X:1"},
        fallback=("MI210",),
        max_duration="5m",
    )
    killed = steno(
        f"{boundary}!", "record", "--interval", "0.05", STENO_WEBHOOK=hook.url, STENO_VMS_MODE=mode, **SETTINGS
    )
    assert killed.returncode == KILLED, killed.stderr
    assert bench.record.verify().ok

    def over():
        run, machines = bench.world.state.runs.get(run_id), bench.machines()
        ended = run is not None and run.terminal and machines and not any(vm.billed for vm in machines)
        return ended and len(bench.facts("NoticeDelivered")) == 2

    bench.poll_until(over)
    assert bench.run(run_id).state is State.SUCCEEDED
    assert (tmp_path / "ran.txt").read_text() == "once\n"
    (vm,) = bench.machines()
    assert (vm.state, vm.runs) == (VmState.TERMINATED, (run_id,))
    assert bench.kinds(run_id).count("SubmitSucceeded") == 2
    once = ("RunRequeued", "VmDrainStarted", "VmStopIntended", "VmStopSucceeded", "BudgetCrossed", "AlertsAdopted")
    for kind in once:
        assert len(bench.facts(kind)) == 1, kind
    assert sorted(intent.kind for intent in bench.facts("NoticeIntended")) == ["budget", "run_end"]
    deliveries = Counter(headers["X-Steno-Notice"] for headers, _ in hook.taken)
    assert len(deliveries) == 2
    assert max(deliveries.values()) <= 2  # both may have been under way at the kill
    assert bench.record.verify().ok
    assert [file for file, content in bench.files().items() if b"hunter2-secret" in content] == []
