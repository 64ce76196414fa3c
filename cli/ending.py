"""Ending a machine: the request is recorded, whoever holds the lease carries it out, and the end is awaited."""

from __future__ import annotations

import getpass
import signal
from contextlib import closing
from typing import TYPE_CHECKING

import click

from cli.wiring.output import emit, emit_json
from engine.errors import Conflict, VmInUse
from engine.fold.archives import refuse_archive
from engine.fold.vm_machine import VmState

if TYPE_CHECKING:
    from cli.wiring.app import App
    from engine.fold.vm import Vm
    from events.store.record import Record

_PATIENCE = 60_000_000
"""How long to wait until the provider was told, microseconds: it is drained first, and a run on it may have to end."""
_MAY_BE_GONE = frozenset({VmState.REQUESTED, VmState.TERMINATING, VmState.UNCONFIRMED})
_LOOK = 30_000_000
"""How long to look for the end then."""


def end_machine(app: App, word: str, *, when_idle: bool) -> None:
    """Request that a machine go, and see how far it comes.

    Raises:
        VmNotFound: there is no such machine.
        Conflict: it is not Steno's to end.
        VmInUse: the provider refused.
    """
    from cli.stores import writing
    from projections.models.projector import caught_up
    from projections.models.view import View

    with writing(app, create=False) as record:
        with caught_up(record) as store:
            view = View(store)
            before = view.machine(view.vm_row(word).vm_id)
        name = before.facts.name or before.provider_id
        if before.state is VmState.TERMINATED:
            _say(app, before, asked=False, text=f"{name} had already ended")
            return
        refuse_archive(before, name)
        if not before.ours:
            raise Conflict(
                f"Steno did not make {name} and never ends such a machine: use the provider's own command "
                f"(`dstack fleet delete {before.facts.fleet or 'FLEET'}`)"
            )
        after = _ended(app, record, before, when_idle=when_idle)
    _say(app, after, asked=True, text=_told(name, after, when_idle=when_idle))


def confirm_machine_gone(app: App, word: str, when: str) -> None:
    """Write down when a machine ended, by somebody's own eyes.

    Raises:
        VmNotFound: there is no such machine.
        Conflict: it has been seen to end, or is seen alive.
        click.BadParameter: the moment lies before its start or in the future.
    """
    from cli.render.words import moment as shown
    from cli.stores import writing
    from cli.wiring.time_arguments import moment
    from engine.act.journal import Journal
    from engine.commands.request import confirm_gone
    from events.clock import format_time
    from projections.models.projector import caught_up
    from projections.models.view import View

    now = app.clock.now()
    ended_at = moment(when, now)
    with writing(app, create=False) as record:
        with caught_up(record) as store:
            view = View(store)
            machine = view.machine(view.vm_row(word).vm_id)
        name = machine.facts.name or machine.provider_id
        if machine.state is VmState.TERMINATED:
            raise Conflict(f"a poll has already shown the end of {name}: `steno vms {machine.vm_id[:8]}` shows when")
        unseen = machine.missing is not None or machine.facts.unreachable
        if machine.state not in _MAY_BE_GONE and not unseen:
            raise Conflict(f"{name} is {machine.state} by the newest answer; `steno vms stop {name}` ends it")
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


def _ended(app: App, record: Record, vm: Vm, *, when_idle: bool) -> Vm:
    """Request it; the machine once it is gone, once it is clear that it has to wait, or when the patience is over.

    Raises:
        VmInUse: the provider refused.
    """
    from cli.providers import named
    from cli.watching import watching
    from cli.wiring.signals import stoppable
    from engine.commands.desk import Desk
    from engine.commands.request import request_vm_stop
    from events.types import VmStopFailed

    with (
        closing(named(app, vm.provider, record.path, project=vm.facts.project)) as provider,
        watching(app, record, provider, adopt=False) as (watch, recorder),
    ):
        desk = Desk(watch, recorder, app.clock)
        project, submitter = vm.facts.project or provider.project, getpass.getuser()
        position = request_vm_stop(recorder.journal, vm, project=project, when_idle=when_idle, submitter=submitter)
        watch.round()
        found = watch.world.state.vms.get(vm.vm_id, vm)
        if when_idle and found.occupants:
            return found
        outcome = desk.machine_stopped(vm.vm_id, position, _PATIENCE)
        if isinstance(outcome, VmStopFailed):
            raise VmInUse(f"{vm.facts.name or vm.provider_id} was not stopped and is still billed: {outcome.error}")
        with stoppable(signal.SIGINT, KeyboardInterrupt) as interrupted:
            end = app.clock.now() + (_LOOK if outcome is not None else 0)
            while found.state is not VmState.TERMINATED and app.clock.now() < end:
                interrupted()
                recorder.effects.wait(watch.round().pause)
                found = watch.world.state.vms.get(vm.vm_id, vm)
        return found


def _told(name: str, vm: Vm, *, when_idle: bool) -> str:
    if vm.state is VmState.TERMINATED:
        return f"{name} is gone"
    if when_idle and vm.occupants:
        return f"{name} is stopped when the run on it has ended (by `steno up`); no other run is placed on it"
    return f"the stop of {name} is requested; it is still {vm.state}. `steno vms {name}` shows it, `steno up` stops it"


def _say(app: App, vm: Vm, *, asked: bool, text: str) -> None:
    if app.json:
        told = vm.told is not None and vm.told.taken_at is not None
        emit_json({"vm_id": vm.vm_id, "name": vm.facts.name, "state": vm.state, "asked": asked, "told": told})
    else:
        emit(text)
