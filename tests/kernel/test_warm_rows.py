"""The kernels' provider's answers about its machines after a restart, and about a machine that ended by itself."""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from stenotest import smi
from stenotest.dstack_history import START, DstackHistory, single
from stenotest.memory_store import MemoryStore
from stenotest.waiting import wait

from steno.engine.decide.kernel_machines import kept_machines
from steno.engine.errors import ProviderUnreachable
from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.kernel.kept_machine import name_of, token_of
from steno.engine.kernel.warm_provider.provider import KernelsProvider
from steno.engine.listener.gpu_log import GpuLog
from steno.engine.listener.server import ListenerServer
from steno.engine.listener.tasks import MachineTask, Tasks
from steno.engine.providers.base import Way
from steno.engine.providers.registry import READINGS
from steno.engine.state.kernel_mark import FORGOTTEN
from steno.engine.state.run import Run
from steno.engine.state.samples import Sample
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm
from steno.events import types
from steno.events.clock import SECOND, SystemClock

OURS = "11111111-2222-4333-8444-555555555555"
NAME = name_of(OURS, None)


class Beneath:
    """The provider that keeps the machine, as far as the kernels' provider needs it."""

    project, source = "main", "dstack/main"

    def __init__(self, port: int | None) -> None:
        self.port = port

    def reach(self, provider_id: str, port: int) -> Way:
        if self.port is None:
            raise ProviderUnreachable("the machine does not answer")
        return Way("127.0.0.1", self.port)

    def close(self) -> None:
        pass


class Site:
    """A world with one machine for kernels, and the provider of a process that may restart."""

    def __init__(self, name: str = NAME) -> None:
        self.world, self.position, self.store = Fold(READINGS), 0, MemoryStore()
        request = types.RunRequested(
            run_id=OURS, provider="dstack", project="main", name=name, configuration=b"{}", submitter="me"
        )
        item = single(name, "running", "running")
        self.tell(request)
        self.tell(types.SubmitSucceeded(run_id=OURS, provider="dstack", provider_id=item["id"], name=name))
        self.keeper("running", "running", name=name)
        self.provider = self.process(None)

    def tell(self, event: types.Event) -> None:
        self.position += 1
        self.world.apply_event(self.position, START, event)

    def keeper(self, *statuses: str, name: str = NAME, **ended: Any) -> None:
        """A poll of the provider beneath shows the run that keeps the machine."""
        now = SystemClock().now()
        ((_, poll),) = DstackHistory(start=now).listed(single(name, *statuses, **ended)).polls()
        assert poll is not None
        self.fold(poll)

    def fold(self, poll: Any) -> None:
        self.position += 1
        self.world.apply(PollReader(READINGS).read(self.position, poll))

    def process(self, port: int | None) -> KernelsProvider:
        made: Any = KernelsProvider(Beneath(port), self.store, SystemClock())  # type: ignore[arg-type]
        made.machines = lambda: kept_machines(self.world.state, made.source, made.keeper)
        self.provider = made
        return self.provider

    def polled(self) -> Vm:
        for poll in self.provider.poll((), since=None):
            self.fold(poll)
        (vm,) = (vm for vm in self.world.state.vms.all() if vm.provider == "kernels")
        return vm

    def seen(self, condition: Callable[[Vm], bool], what: str) -> Vm:
        """The machine, as soon as a poll makes the condition true."""
        return wait(lambda: vm if condition(vm := self.polled()) else None, what=what)

    @property
    def run(self) -> Run:
        return self.world.state.runs[OURS]

    @property
    def odd(self) -> list[str]:
        return [f"{anomaly.kind}: {anomaly.detail}" for anomaly in self.world.state.anomalies]


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.provider.close()


@pytest.fixture
def port(site: Site, tmp_path: Path) -> Iterator[int]:
    """Where the listener of the machine answers."""
    with closing(GpuLog(tmp_path)) as gpus:
        yield from listening(site, tmp_path, gpus)


def listening(site: Site, folder: Path, gpus: GpuLog) -> Iterator[int]:
    tasks = Tasks(None, folder)  # type: ignore[arg-type]  # it gets no task
    address = ("127.0.0.1", 0)
    server = ListenerServer(address, token_of(site.store, OURS), tasks, None, 3600, samples=gpus.text)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve)
    thread.start()
    yield server.server_address[1]
    server.stopped = True
    thread.join()
    tasks.close()


def test_a_restarted_process_moves_no_machine_before_its_listener_answers(site: Site, port: int) -> None:
    """It may be busy or idle: what was seen last stands, it is not started again, and nobody drains it."""
    assert site.polled().state is VmState.PROVISIONING
    site.provider.close()
    site.process(port)
    site.seen(lambda vm: vm.state is VmState.IDLE, "the listener's first answer")
    site.provider.close()
    site.process(None)
    assert (site.polled().state, site.polled().facts.state, site.odd) == (VmState.IDLE, None, [])
    site.seen(lambda vm: vm.facts.unreachable, "that nobody answers")
    site.provider.close()
    site.process(port)
    vm = site.seen(lambda vm: vm.facts.state is VmState.IDLE, "the listener's answer")
    assert (vm.state, vm.facts.unreachable, site.odd) == (VmState.IDLE, False, [])


def test_a_kernel_has_the_samples_of_its_time_on_the_machine(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    """They are of the GPUs, and not of the listener's processes; an unknown kernel has none."""
    monkeypatch.setenv("PATH", smi.stand_in(tmp_path / "tools", "nvidia-smi", 50))
    now = SystemClock().now()
    start, end = now + 1000 * SECOND, now + 2000 * SECOND  # the stand-in prints the next hour at once
    task = MachineTask("one", "", state="ended", code=0, queued_at=now, started_at=start, ended_at=end)
    (tmp_path / "one.task").write_text(json.dumps(vars(task)))
    site.process(request.getfixturevalue("port"))
    site.seen(lambda vm: vm.state is VmState.IDLE, "the listener's first answer")

    def samples(since: int = 0) -> list[Sample]:
        return (site.provider.samples(f"one.{OURS}", "", since=since) or ("", []))[1]

    wait(lambda: len(samples()) == 100, what="the samples")
    assert {sample.device for sample in samples()} == {"0"}
    assert all(start < sample.at <= end for sample in samples())
    assert sum(sample.use or 0 for sample in samples()) / 100 == 50
    assert len(samples(start + 500 * SECOND)) == 50
    assert site.provider.samples(f"two.{OURS}", "", since=0) is None


def test_a_listener_that_nobody_asked_is_a_stop_by_policy(site: Site) -> None:
    """Neither its run nor its machine failed; the next machine is requested after a pause all the same."""
    site.polled()
    failed = {"reason": "job_failed", "job_reason": "container_exited_with_error", "exit_status": FORGOTTEN}
    site.keeper("failed", "failed", finished=1, **failed)
    (machine,) = kept_machines(site.world.state, site.provider.source, site.provider.keeper)
    vm = site.polled()
    assert (site.run.state, site.run.reason, site.run.exit_status) == ("stopped", "stopped_by_policy", FORGOTTEN)
    assert (vm.state, vm.reason, site.odd) == ("terminated", "stopped_by_policy", [])
    assert machine.failed_at is not None


def test_only_our_listener_means_that_by_its_exit_status() -> None:
    site = Site("train")
    site.keeper(
        "failed", "failed", name="train", finished=1, reason="job_failed",
        job_reason="container_exited_with_error", exit_status=FORGOTTEN,
    )  # fmt: skip
    assert (site.run.state, site.run.reason) == ("failed", "exit_nonzero")


def test_the_listeners_exit_status_is_the_one_that_the_fold_knows() -> None:
    """The listener is sent alone, without the module that names it."""
    assert os.EX_TEMPFAIL == FORGOTTEN
