"""Stops of runs and machines over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, TypeVar

from anyio import to_thread

from engine.commands.stop import needs_stop, needs_vm_stop, request_stop, request_vm_stop
from engine.fold.run import Run
from engine.fold.vm import Vm
from projections.store.world_table import decode_run

if TYPE_CHECKING:
    from engine.act.journal import Journal
    from projections.api.service import Service
    from projections.api.writing import Writer


T = TypeVar("T", Run, Vm)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Generic[T]):
    """A run or machine as it was when its stop came."""

    thing: T
    position: int
    """Of the request; of the read models if there is nothing to stop."""
    requested: bool


async def stop_run(service: Service, writer: Writer, word: str, *, abort: bool, submitter: str) -> Stop[Run]:
    """Request the stop of the run that a word names.

    Raises:
        RunNotFound: none, or more than one.
        Conflict: it is part of an archive.
    """

    def find() -> Stop[Run]:
        with service.pool.latest() as look:
            run = decode_run(look.view.row(word).folded)
            requested = needs_stop(run, look.view.world().state, service.settings, look.now)
            return Stop(thing=run, position=look.position, requested=requested)

    def append(journal: Journal, run: Run) -> int:
        project = run.project or service.outside.project()
        return request_stop(journal, run, project=project, abort=abort, submitter=submitter)

    return await _stop(service, writer, find, append)


async def stop_vm(service: Service, writer: Writer, word: str, *, when_idle: bool, submitter: str) -> Stop[Vm]:
    """Request the stop of the machine that a word names.

    Raises:
        VmNotFound: none, or more than one.
        Conflict: Steno did not create it, or it is part of an archive.
    """

    def find() -> Stop[Vm]:
        with service.pool.latest() as look:
            vm = look.view.machine(look.view.vm_row(word).vm_id)
            return Stop(thing=vm, position=look.position, requested=needs_vm_stop(vm))

    def append(journal: Journal, vm: Vm) -> int:
        project = vm.facts.project or service.outside.project()
        return request_vm_stop(journal, vm, project=project, when_idle=when_idle, submitter=submitter)

    return await _stop(service, writer, find, append)


async def _stop(
    service: Service, writer: Writer, find: Callable[[], Stop[T]], append: Callable[[Journal, T], int]
) -> Stop[T]:
    found = await to_thread.run_sync(find)
    if not found.requested:
        return found
    position = await writer.do(lambda journal: append(journal, found.thing))
    service.projector.wake()
    return replace(found, position=position)
