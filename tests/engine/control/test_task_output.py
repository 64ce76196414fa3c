"""Frames in the output of a task become events: each once, in order, whatever is killed, forged or hanging."""

import os
import subprocess
import threading
from pathlib import Path

import msgspec
import pytest
from stenotest import steno_process
from stenotest.gated_run import holding
from stenotest.inline_executor import InlineExecutor

from steno.engine.control.controller import Controller
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.providers.task import Completed
from steno.engine.state.kernel_mark import KernelMark
from steno.engine.state.states import Reason, State
from steno.engine.submit.requests import submit
from steno.events.clock import SECOND

pytestmark = pytest.mark.slow

KILL_AT = Path(__file__).with_name("kill_at.py").read_text()
WHOLE = ("COMPILING", "CHECKING", "TEST_RESULT", "CHECKED", "BENCHMARKING", "BENCHMARK_RESULT", "BENCHMARKED")


def frame(status):
    return "::steno:: " + msgspec.json.encode({"status": status}).decode()


def say(*statuses, between=""):
    return f"{between}; ".join(f"echo '{frame(status)}'" for status in statuses)


def ask(bench, *commands):
    """Request a run whose output is read; its id."""
    run_id = bench.ids.new()
    mark = KernelMark(problem="p", gpu_type="MI300X", dtype="float32", language="hip", endpoint="benchmark")
    submit(
        bench.journal,
        run_id=run_id,
        provider="local",
        project=bench.provider.project,
        task=Completed(
            name=f"run-{run_id[:8]}",
            configuration={"type": "task", "commands": list(commands)},
            base=str(bench.path.parent),
            kernel=msgspec.json.encode(mark),
        ),
        submitter="ada",
    )
    return run_id


def reports(bench, run_id):
    """(number, what was said; None: nothing more is read) of every report, in order."""
    events = [stored.data for stored in bench.record.read(stream=f"run/{run_id}", types={"TaskReported"})]
    return [(event.seq, None if event.last else msgspec.json.decode(event.frame)["status"]) for event in events]


def over(bench, run_id):
    run = bench.world.state.runs.get(run_id)
    return run is not None and run.terminal and (run.said.ended or run.said.over)


def test_every_frame_is_an_event_once_and_in_order(bench):
    """While it runs and after it has ended; polls go on meanwhile."""
    run_id = ask(bench, say(*WHOLE[:3], between="; sleep 0.2"), say(*WHOLE[3:]))
    bench.poll_until(lambda: over(bench, run_id))
    assert reports(bench, run_id) == list(enumerate(WHOLE, 1))
    run = bench.run(run_id)
    assert (run.state, run.reason, run.said.ended, run.said.over) == (State.SUCCEEDED, Reason.EXIT_ZERO, True, False)
    assert bench.record.verify().ok


def test_a_failed_task_fails_for_the_reason_it_gave(bench):
    """And a line behind a bar is not a frame: it would have said the contrary."""
    forged = f"| {frame('BENCHMARKED')}"
    run_id = ask(bench, say("COMPILING", "CHECKING"), f"echo '{forged}'; {say('WRONG_ANSWER')}; exit 1")
    bench.poll_until(lambda: over(bench, run_id))
    assert [status for _, status in reports(bench, run_id)] == ["COMPILING", "CHECKING", "WRONG_ANSWER"]
    assert (bench.run(run_id).state, bench.run(run_id).reason) == (State.FAILED, Reason.WRONG_ANSWER)


def test_a_task_that_says_nothing_is_given_up_soon(bench):
    """Its end is the provider's word, and so is the reason; that nothing more is read is an event too."""
    run_id = ask(bench, "exit 3")
    bench.poll_until(lambda: over(bench, run_id))
    assert reports(bench, run_id) == [(1, None)]
    assert bench.run(run_id).reason is Reason.EXIT_NONZERO


def test_an_ordinary_run_is_not_read(bench):
    """Only what was asked for as such reports."""
    run_id = bench.ask(say(*WHOLE))
    bench.finish(run_id)
    bench.controller.round()
    assert "TaskReported" not in bench.kinds(run_id)


def test_a_log_that_hangs_delays_no_poll_and_no_verdict(bench, monkeypatch, gate):
    """It is read in a thread of its own: the run's end is seen while it hangs, and read of afterwards."""
    reading, release = threading.Event(), threading.Event()

    def hangs(provider_id, name, *, follow):
        reading.set()
        release.wait()
        yield b""

    monkeypatch.setattr(bench.provider, "logs", hangs)
    run_id = ask(bench, holding(gate))
    try:
        bench.poll_until(reading.is_set)
        gate.touch()
        assert bench.finish(run_id).state is State.SUCCEEDED
        assert not over(bench, run_id)
    finally:
        release.set()
    monkeypatch.undo()
    bench.poll_until(lambda: over(bench, run_id))


def test_a_log_that_fails_is_read_again(bench, monkeypatch):
    """From its beginning, and what is in the record already is not written again."""
    genuine, tries = bench.provider.logs, []

    def fails_twice(provider_id, name, *, follow):
        tries.append(follow)
        yield from genuine(provider_id, name, follow=False)
        if len(tries) < 3:
            raise OSError("the line went dead")

    monkeypatch.setattr(bench.provider, "logs", fails_twice)
    run_id = ask(bench, say(*WHOLE[:2]), "sleep 1", say(*WHOLE[2:]))
    bench.poll_until(lambda: over(bench, run_id))
    assert reports(bench, run_id) == list(enumerate(WHOLE, 1))


def test_another_recorder_goes_on_where_the_first_was(bench):
    """It has none of the memory of the first; nothing is doubled and nothing is missing."""
    run_id = ask(bench, say(*WHOLE[:4], between="; sleep 0.1"), "sleep 0.5", say(*WHOLE[4:]))
    bench.poll_until(lambda: bench.world.state.runs.get(run_id) and bench.run(run_id).said.frames >= 2)
    bench.controller.close()
    bench.controller = Controller(
        live=LiveWorld(READINGS, bench.record),
        provider=bench.provider,
        clock=bench.clock,
        policy=bench.policy,
        executor=InlineExecutor(bench.clock),
    )
    bench.poll_until(lambda: over(bench, run_id))
    assert reports(bench, run_id) == list(enumerate(WHOLE, 1))


def test_what_ended_while_nobody_looked_is_read_afterwards(bench, open_bench):
    """The story is whole however late its reader comes."""
    run_id = ask(bench, say(*WHOLE))
    bench.poll_until(lambda: bench.journal.outbox().provider_ids.get(run_id))
    bench.clock.sleep(SECOND)
    bench.controller.close()
    later = open_bench(bench.path)
    later.poll_until(lambda: over(later, run_id))
    assert reports(later, run_id) == list(enumerate(WHOLE, 1))


def test_output_without_end_is_read_within_bounds(bench):
    """A task that prints frames for ever fills no record."""
    run_id = ask(bench, f"yes '{frame('TEST_RESULT')}' | head -n 5000")
    bench.poll_until(lambda: over(bench, run_id))
    written = reports(bench, run_id)
    assert len(written) == 2001
    assert written[-1] == (2001, None)


@pytest.mark.slow
@pytest.mark.parametrize("boundary", range(2, 34, 4))
def test_a_recorder_killed_anywhere_doubles_no_report(open_bench, tmp_path, boundary):
    """`kill -9` before or after any append: the next recorder reads again, and each frame is one event."""
    bench = open_bench(tmp_path / "record.db")
    run_id = ask(bench, say(*WHOLE[:4], between="; sleep 0.1"), say(*WHOLE[4:]))
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "STENO_RECORD": str(bench.path)}
    words = (str(boundary), "record")
    killed = steno_process.run(words, program=KILL_AT, env=env, cwd=tmp_path, stdin=subprocess.DEVNULL)
    assert killed.returncode == -9, killed.stderr
    bench.poll_until(lambda: over(bench, run_id))
    assert reports(bench, run_id) == list(enumerate(WHOLE, 1))
    assert bench.record.verify().ok
