"""A record, the real local provider and what acts between them."""

import platform
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from stenotest.inline_executor import InlineExecutor
from stenotest.waiting import wait
from stenotest.webhook_server import WebhookServer

from steno.engine.control.controller import Controller
from steno.engine.control.dispatcher import Dispatcher
from steno.engine.control.effects import Executor
from steno.engine.errors import VmInUse, VmNotFound
from steno.engine.live.live_world import LiveWorld
from steno.engine.notify.collector import Collector
from steno.engine.notify.routes import Route
from steno.engine.providers.base import StopTarget
from steno.engine.providers.local.placement import LocalOffer
from steno.engine.providers.local.provider import LocalProvider
from steno.engine.providers.registry import READINGS
from steno.engine.providers.task import Completed
from steno.engine.state.policy import Policy
from steno.engine.state.run import Run
from steno.engine.submit.requests import request_stop, submit
from steno.events.clock import RandomIds, SystemClock
from steno.events.store.record import Record

FREE = Policy(free=True)


class Shifted(SystemClock):
    """The machine's clock, moved on by hand."""

    def __init__(self):
        self.ahead = 0
        self.still = None

    def now(self):
        return (super().now() if self.still is None else self.still) + self.ahead

    def stand_still(self):
        """From now on it moves by hand only."""
        self.still = super().now()


@dataclass
class Bench:
    """Everything one test needs of one record."""

    record: Record
    provider: LocalProvider
    path: Path
    policy: Policy
    clock: Shifted
    notify: Route | None = None
    collector: Collector | None = None
    executor: Executor | None = None

    def __post_init__(self):
        self.ids = RandomIds()
        self.controller = Controller(
            live=LiveWorld(READINGS, self.record),
            provider=self.provider,
            clock=self.clock,
            policy=self.policy,
            notify=() if self.notify is None else (self.notify,),
            collector=self.collector,
            executor=self.executor or InlineExecutor(self.clock),
        )
        self.controller.stays = True  # as `steno up`: it ends idle machines before the provider's own timer does
        self.journal, self.actor = self.controller.journal, self.controller.actor

    @property
    def world(self):
        return self.controller.world

    @property
    def dispatcher(self):
        """The lease is held from the first use on."""
        return Dispatcher(self.controller)

    def ask(self, *commands, name=None, fallback=(), **configuration):
        """Request a run of these shell lines; its id."""
        run_id = self.ids.new()
        submit(
            self.journal,
            run_id=run_id,
            provider="local",
            project=self.provider.project,
            task=Completed(
                name=name or f"run-{run_id[:8]}",
                configuration={"type": "task", "commands": list(commands), **configuration},
                base=str(self.path.parent),
                fallback=fallback,
            ),
            submitter="ada",
        )
        return run_id

    def ask_to_stop(self, run_id, *, abort=False):
        provider_id, name = self.journal.outbox().provider_ids.get(run_id), f"run-{run_id[:8]}"
        where = {"first_position": 1, "first_at": 0, "last_position": 1, "last_at": 0}
        run = Run(run_id=run_id, provider="local", provider_id=provider_id, name=name, **where)
        request_stop(self.journal, run, project=self.provider.project, abort=abort, submitter="ada")

    def run(self, run_id):
        return self.world.state.runs[run_id]

    def poll_until(self, done):
        def polled():
            self.controller.round()
            return done()

        wait(lambda: done() or polled(), pause=0.05)

    def finish(self, run_id):
        """Poll until the run has a verdict; the run."""
        self.poll_until(lambda: run_id in self.world.state.runs and self.run(run_id).terminal)
        return self.run(run_id)

    def kinds(self, run_id):
        return [stored.type for stored in self.record.read(stream=f"run/{run_id}")]

    def facts(self, *types):
        """Every event of these types."""
        return [stored.data for stored in self.record.read(types=types)]

    def files(self):
        """Every byte of every file beside the record; supervisors may be clearing theirs away meanwhile."""
        contents = {}
        for path in self.path.parent.rglob("*"):
            with suppress(FileNotFoundError, IsADirectoryError):
                contents[path] = path.read_bytes()
        return contents

    def machines(self):
        """Every machine, gone or not, in order of first sight."""
        return list(self.world.state.vms.all())

    def clear(self):
        """End what still runs on this machine."""
        self.controller.round(act=False)
        for run in self.world.state.runs.all():
            if not run.terminal and run.provider_id is not None:
                self.provider.stop(StopTarget(provider_id=run.provider_id, name=run.name, abort=True))
        for vm in self.machines():
            wait(lambda vm=vm: not vm.billed or self._stopped(vm))

    def _stopped(self, vm):
        try:
            self.provider.stop_vm(vm.provider_id)
        except VmInUse:  # its run is just being stopped
            return False
        except VmNotFound:
            pass
        return True


def bench_at(path, policy, notify, executor, offer, host=None, collector=None):
    clock = Shifted()
    record = Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=clock)
    state = path.with_name(path.name + ".local")
    provider = LocalProvider(
        state,
        clock=clock,
        ids=RandomIds(),
        host=host or platform.node() or "localhost",
        environment={"PATH": "/usr/bin:/bin"},
        offer=LocalOffer(**offer),
    )
    return Bench(
        record=record,
        provider=provider,
        path=path,
        policy=policy,
        clock=clock,
        notify=notify,
        collector=collector,
        executor=executor,
    )


@pytest.fixture
def open_bench():
    """`open_bench(path)`: a bench over the record at that path, made if it is not there.

    `policy`: what is decided by, free unless given; `notify`: where alerts go; `collector`: where traces go;
    `executor`: where calls are made; the rest is what machines are like.
    """
    with ExitStack() as opened:

        def at(path, *, policy=FREE, notify=None, executor=None, host=None, collector=None, **offer):
            made = bench_at(path, policy, notify, executor, offer, host, collector)
            opened.enter_context(made.record)
            opened.callback(made.controller.release)
            opened.callback(made.clear)
            return made

        yield at


@pytest.fixture
def bench(open_bench, tmp_path):
    """A bench over a new record."""
    return open_bench(tmp_path / "record.db")


@pytest.fixture
def gate(tmp_path):
    """The file that runs wait for until the test makes it: `holding(gate)` is their line; there when the test ends."""
    path = tmp_path / "gate"
    yield path
    path.touch()


@pytest.fixture
def hook():
    """A webhook that listens."""
    with WebhookServer() as made:
        yield made
