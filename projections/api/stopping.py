"""Stops asked for over HTTP, of runs and of machines."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.act.next_step import may_be_made_again
from engine.commands.request import request_stop, request_vm_stop
from engine.errors import Conflict
from engine.fold.archives import refuse_archive
from engine.fold.queries import source_of
from engine.fold.vm_machine import VmState
from engine.settings.policy import policy_from
from projections.store.world_table import decode_run

if TYPE_CHECKING:
    from engine.act.journal import Journal
    from engine.fold.run import Run
    from engine.fold.vm import Vm
    from projections.api.service import Service
    from projections.store.reader_pool import Look


@dataclass(frozen=True, slots=True, kw_only=True)
class RunToStop:
    """A run, and whether there is anything to stop."""

    run: Run
    project: str
    position: int
    """Of the look; of the request, once there is one."""
    asked: bool

    @property
    def answer(self) -> dict[str, object]:
        """As JSON values."""
        return {
            "run_id": self.run.run_id,
            "position": self.position,
            "state": self.run.state.value,
            "asked": self.asked,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VmToStop:
    """A machine, and whether there is anything to end."""

    vm: Vm
    project: str
    position: int
    """Of the look; of the request, once there is one."""
    asked: bool

    @property
    def answer(self) -> dict[str, object]:
        """As JSON values."""
        return {"vm_id": self.vm.vm_id, "position": self.position, "state": self.vm.state.value, "asked": self.asked}


@contextmanager
def latest(service: Service) -> Iterator[Look]:
    """The world at the record's head: what was asked for just before can be stopped.

    Raises:
        Behind: the read models did not come so far in time.
    """
    with service.pool.now() as look:
        head = look.record.head().position
        if look.position >= head:
            yield look
            return
    with service.pool.now(min_position=head) as look:
        yield look


def run_to_stop(service: Service, word: str) -> RunToStop:
    """The run a person means. One that found no capacity has ended, and may be about to be asked for again.

    Raises:
        RunNotFound: none, or more than one.
        Conflict: it is part of an archive.
    """
    with latest(service) as look:
        run = decode_run(look.view.row(word).folded)
        if not run.terminal:
            refuse_archive(run, run.name or run.run_id)
        steps = look.view.world().state.policies.get(source_of(run))
        policy = steps[-1].policy if steps else policy_from(service.settings, run.provider)
        asked = not run.terminal or may_be_made_again(run, policy.queue_patience, look.now)
        project = run.project or service.outside.project()
        return RunToStop(run=run, project=project, position=look.position, asked=asked)


def stop_run(journal: Journal, found: RunToStop, submitter: str, *, abort: bool) -> RunToStop:
    """Append the request. For the writer's thread."""
    run = found.run
    position = request_stop(
        journal,
        run_id=run.run_id,
        provider=run.provider,
        project=found.project,
        provider_id=run.provider_id,
        name=run.name or "",
        abort=abort,
        submitter=submitter,
    )
    return replace(found, position=position)


def vm_to_stop(service: Service, word: str) -> VmToStop:
    """The machine a person means.

    Raises:
        VmNotFound: none, or more than one.
        Conflict: it is not Steno's to end.
    """
    with latest(service) as look:
        vm = look.view.machine(look.view.vm_row(word).vm_id)
        gone = vm.state is VmState.TERMINATED
        if not gone:
            refuse_archive(vm, vm.facts.name or vm.provider_id)
        if not gone and not vm.ours:
            name = vm.facts.name or vm.provider_id
            raise Conflict(
                f"Steno did not make {name} and never ends such a machine: use the provider's own command "
                f"(`dstack fleet delete {vm.facts.fleet or 'FLEET'}`)"
            )
        project = vm.facts.project or service.outside.project()
        return VmToStop(vm=vm, project=project, position=look.position, asked=not gone)


def stop_vm(journal: Journal, found: VmToStop, submitter: str, *, when_idle: bool) -> VmToStop:
    """Append the request. For the writer's thread."""
    position = request_vm_stop(journal, found.vm, project=found.project, when_idle=when_idle, submitter=submitter)
    return replace(found, position=position)
