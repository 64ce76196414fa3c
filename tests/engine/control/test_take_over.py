"""The holder of a source dies, or sleeps, while it stops a machine; the recorder that stands by, on the same record in
PostgreSQL, stops it exactly once.
"""

import os
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest
from stenotest import steno_process
from stenotest.waiting import wait

from steno.engine.live.journal import Journal
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.providers.task import Completed
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm
from steno.engine.submit.requests import submit
from steno.events.clock import RandomIds, SystemClock
from steno.events.store.record import Record

STOP_AT = Path(__file__).with_name("stop_at.py").read_text()
TAKE_OVER_S = 10
SETTINGS = {"STENO_LOCAL_PRICE": "36", "STENO_IDLE_TIMEOUT": "1", "STENO_MAX_VMS": "1", "NO_COLOR": "1"}


@pytest.mark.slow
@pytest.mark.parametrize("how", [pytest.param("before", marks=pytest.mark.long), "after", "asleep"])
def test_a_machine_is_stopped_once_by_whoever_is_left(how, tmp_path, postgres_url):
    """Killed before or after the call, or asleep through its lease: one intent, one outcome, one end of the machine. A
    sleeper makes no call when it wakes.
    """
    env = {key: value for key, value in os.environ.items() if not key.startswith(("STENO_", "DSTACK_"))}
    env |= {"HOME": str(tmp_path), "STENO_RECORD": postgres_url, **SETTINGS}
    calls = tmp_path / "calls"

    with ExitStack() as started:
        record = started.enter_context(
            Record.open(postgres_url, write=True, create=True, shapes=READINGS.shape, clock=SystemClock())
        )
        live = LiveWorld(READINGS, record)

        def holders() -> list[tuple[str, int]]:
            return [(lease.name, lease.process) for lease in record.store.leases() if lease.held]

        def machine() -> Vm | None:
            live.catch_up()
            return next(iter(live.state.vms.all()), None)

        words = ("record", "--interval", "0.2")
        stopping = (how, str(calls), *words)
        holder = started.enter_context(steno_process.Popen(stopping, program=STOP_AT, env=env, cwd=tmp_path))
        started.callback(holder.kill)
        held = wait(
            lambda: next((lease for lease in record.store.leases() if lease.process == holder.pid), None), "no holder"
        )
        other = started.enter_context(steno_process.Popen(words, env=env, cwd=tmp_path))
        started.callback(other.kill)
        run_id, (provider, _, project) = RandomIds().new(), held.name.partition("/")
        task = Completed(name="one", configuration={"type": "task", "commands": ["true"]}, base=str(tmp_path))
        journal = Journal(record)
        submit(journal, run_id=run_id, provider=provider, project=project, task=task, submitter="ada")
        wait(lambda: any(record.read(types={"VmStopIntended"})), "it is not stopped")
        assert max(lease.seconds_left for lease in record.store.leases()) < TAKE_OVER_S - 1  # by the database's clock
        wait(lambda: (held.name, other.pid) in holders(), "nobody takes over")
        wait(lambda: (vm := machine()) is not None and vm.state is VmState.TERMINATED, "the machine lives")
        wait(lambda: any(record.read(types={"VmStopSucceeded", "VmStopFailed"})), "no outcome")
        if how == "asleep":
            polls = live.position
            holder.send_signal(signal.SIGCONT)
            wait(lambda: record.head().position > polls + 5, "nobody records")
            assert not calls.exists()
            assert holder.poll() is None
            assert (held.name, other.pid) in holders()
        else:
            assert holder.wait() == -signal.SIGKILL
        other.terminate()
        assert other.wait() == 0
        assert len(list(record.read(types={"VmStopIntended"}))) == 1
        assert len(list(record.read(types={"VmStopSucceeded", "VmStopFailed"}))) == 1
        assert len(live.state.vms) == 1
        assert record.verify().ok
