"""`steno vms stop` and `steno vms gone`: the request is recorded, then the end of the machine is awaited."""

from __future__ import annotations

import getpass
import signal
from contextlib import closing
from typing import TYPE_CHECKING

import click

from cli.wiring.output import emit, emit_json
from engine.errors import VmInUse
from engine.states import VmState

if TYPE_CHECKING:
    from cli.wiring.app import App
    from engine.fold.vm import Vm
    from events.store.record import Record

_OUTCOME_TIMEOUT = 60_000_000
"""Microseconds to wait for the stop's outcome: the machine is drained first, and a run on it may have to end."""
_END_TIMEOUT = 30_000_000
"""Microseconds to wait for the end after that."""


def end_machine(app: App, word: str, *, when_idle: bool) -> None:
    """Request the stop of a machine, and wait for its end.

    Raises:
        VmNotFound: there is no such machine.
        Conflict: Steno did not create it, or it is part of an archive.
        VmInUse: the provider refused.
    """
    from cli.stores import writing
    from engine.commands.stop import needs_vm_stop

    with writing(app, create=False) as record:
        before = _machine(record, word)
        name, requested = before.facts.name or before.provider_id, needs_vm_stop(before)
        after = _stopped(app, record, before, when_idle=when_idle) if requested else before
    if app.json:
        told = after.told is not None and after.told.taken_at is not None
        emit_json(
            {"vm_id": after.vm_id, "name": after.facts.name, "state": after.state, "asked": requested, "told": told}
        )
    elif not requested:
        emit(f"{name} had already ended")
    else:
        emit(_progress(name, after, when_idle=when_idle))


def confirm_machine_gone(app: App, word: str, when: str) -> None:
    """Record when a machine ended, as somebody saw.

    Raises:
        VmNotFound: there is no such machine.
        Conflict: a poll has shown its end, or shows it alive.
        click.BadParameter: the time lies before its start or in the future.
    """
    from cli.render.words import moment as shown
    from cli.stores import writing
    from cli.wiring.time_arguments import moment
    from engine.act.journal import Journal
    from engine.commands.stop import confirm_gone, refuse_gone
    from events.clock import format_time

    now = app.clock.now()
    ended_at = moment(when, now)
    with writing(app, create=False) as record:
        machine = _machine(record, word)
        name = machine.facts.name or machine.provider_id
        refuse_gone(machine)
        if not machine.created <= ended_at <= now:
            raise click.BadParameter(
                f"{name} was created at {shown(machine.created)}; --at must lie between that and now, not at {when}"
            )
        position = confirm_gone(Journal(record), machine, ended_at=ended_at, submitter=getpass.getuser())
    if app.json:
        ended = format_time(ended_at)
        emit_json({"vm_id": machine.vm_id, "name": machine.facts.name, "ended_at": ended, "position": position})
    else:
        emit(f"recorded: {name} ended at {shown(ended_at)}; its bill ends there")


def _machine(record: Record, word: str) -> Vm:
    from projections.models.projector import caught_up
    from projections.models.view import View

    with caught_up(record) as store:
        view = View(store)
        return view.machine(view.vm_row(word).vm_id)


def _stopped(app: App, record: Record, vm: Vm, *, when_idle: bool) -> Vm:
    """Request the stop; the machine once it has ended, has to wait for a run, or a time limit is reached.

    Raises:
        VmInUse: the provider refused.
    """
    from cli.providers import named
    from cli.watching import watching
    from cli.wiring.signals import stoppable
    from engine.commands.dispatcher import Dispatcher
    from engine.commands.stop import request_vm_stop
    from events.types import VmStopFailed

    with (
        closing(named(app, vm.provider, record.store, project=vm.facts.project)) as provider,
        watching(app, record, provider, adopt=False) as (watch, recorder),
    ):
        dispatcher = Dispatcher(watch, recorder, app.clock)
        project, submitter = vm.facts.project or provider.project, getpass.getuser()
        position = request_vm_stop(recorder.journal, vm, project=project, when_idle=when_idle, submitter=submitter)
        watch.round()
        found = watch.world.state.vms.get(vm.vm_id, vm)
        if when_idle and found.occupants:
            return found
        outcome = dispatcher.machine_stopped(vm.vm_id, position, _OUTCOME_TIMEOUT)
        if isinstance(outcome, VmStopFailed):
            raise VmInUse(f"{vm.facts.name or vm.provider_id} was not stopped and is still billed: {outcome.error}")
        with stoppable(signal.SIGINT, KeyboardInterrupt) as interrupted:
            end = app.clock.now() + (_END_TIMEOUT if outcome is not None else 0)
            while found.state is not VmState.TERMINATED and app.clock.now() < end:
                interrupted()
                recorder.effects.wait(watch.round().pause)
                found = watch.world.state.vms.get(vm.vm_id, vm)
        return found


def _progress(name: str, vm: Vm, *, when_idle: bool) -> str:
    if vm.state is VmState.TERMINATED:
        return f"{name} is gone"
    if when_idle and vm.occupants:
        return f"{name} is stopped when the run on it has ended (by `steno up`); no other run is placed on it"
    return f"the stop of {name} is requested; it is still {vm.state}. `steno vms {name}` shows it, `steno up` stops it"
