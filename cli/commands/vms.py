"""`steno vms`: list and show machines, stop one, or record that one is gone."""

from __future__ import annotations

import getpass
import signal
from contextlib import closing
from typing import TYPE_CHECKING

import click

from cli.groups import DefaultGroup
from cli.wiring.app import App
from cli.wiring.options import at_option, common, hidden_option, optional_vm_argument, pass_app, vm_argument
from cli.wiring.output import emit, emit_json, hint
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from engine.fold.vm import Vm
    from engine.objects import VmObject
    from events.store.record import Record
    from projections.models.view import View

_DAY = 86_400_000_000
_OUTCOME_TIMEOUT = 60_000_000
"""Microseconds to wait for the stop's outcome: the machine is drained first, and a run on it may have to end."""
_END_TIMEOUT = 30_000_000
"""Microseconds to wait for the end after that."""


@click.group("vms", cls=DefaultGroup, subcommand_metavar="[VM] | COMMAND [ARGS]…")
def command() -> None:
    """List machines with state, price and cost so far, or show one.

    Without VM: those that may be billed, and those that ended within the last day. VM is a machine's id or its
    beginning, the provider's id, or a name. Names are reused: a name means the machine that may be billed, else the
    newest.

    With --json: {"vms": [machine objects, as in replay], "position", "sources": [{"source", "observability",
    "last_answered_at"}]}; with VM the machine object, and beside it "project", "backend", "region", "fleet", "gpu",
    "gpu_count", "spot", "ours", "made_for", "created_at", "idle_since", "unreachable", "anomalies", "position",
    "observability".

    \b
    Examples:
      steno vms
      steno vms --all --json | jq '.vms[] | {name, state, cost_usd}'
      steno vms steno-slot-1-0
      steno vms stop steno-slot-1-0 --when-idle
      steno vms gone steno-slot-1-0 --at 2026-11-20T15:00:00Z
    """


@command.command("list", hidden=True)
@optional_vm_argument
@click.option("--all", "-a", "everything", is_flag=True, help="Also machines that ended more than a day ago.")
@hidden_option
@at_option
@common
@pass_app
def listed(app: App, vm: str | None, everything: bool, hidden: bool, at: str | None) -> None:
    """List machines, or show one."""
    from cli.wiring.time_arguments import seen_from
    from cli.wiring.view import viewing

    with viewing(app, at) as (_, view):
        now = seen_from(app, view, at)
        if vm is None:
            _list(app, view, now, everything=everything, hidden=hidden)
        else:
            _show(app, view, vm, now)


@command.command("stop")
@vm_argument
@click.option("--when-idle", is_flag=True, help="Wait until no run is on it, instead of stopping the run.")
@common
@pass_app
def stop(app: App, vm: str, when_idle: bool) -> None:
    """Stop a machine; stopping one that has ended does nothing.

    Steno records the request first and places no further run on the machine. A run on it is stopped, unless --when-idle
    is given. Then the process that holds the provider's lease sends the stop request, and this command waits up to a
    minute for the end. With --json: {"vm_id", "name", "state", "asked", "told"}.

    Exits 5 if the provider refuses, for example because its fleet is in use.

    \b
    Examples:
      steno vms stop steno-slot-1-0
      steno vms stop 5f0c --when-idle
    """
    from cli.wiring.logging_setup import log_for_data

    log_for_data()
    _stop(app, vm, when_idle=when_idle)


@command.command("gone", short_help="Record that a machine has ended, as you saw yourself.")
@vm_argument
@click.option("--at", "when", metavar="TIME", required=True, help="When it ended, as the cloud's own console says.")
@common
@pass_app
def gone(app: App, vm: str, when: str) -> None:
    """Record that a machine has ended, because you saw it in the cloud's own console.

    For a machine that was told to stop, or is no longer listed, and that no poll has shown gone (`unconfirmed`). Its
    bill ends at that moment. With --json: {"vm_id", "name", "ended_at", "position"}.

    \b
    Examples:
      steno vms gone steno-slot-1-0 --at 2026-11-20T15:00:00Z
      steno vms gone 5f0c --at 20m
    """

    _confirm_gone(app, vm, when)


def _list(app: App, view: View, now: int, *, everything: bool, hidden: bool) -> None:
    vms = view.vms(billed_or_since=None if everything else now - _DAY, hidden=hidden)
    from cli.wiring.view import say_unseen, source_object

    sources = view.sources(now)
    if app.json:
        emit_json({"vms": vms, "position": view.position, "sources": [source_object(one) for one in sources]})
        return
    from cli.render.vms import burning, listing
    from cli.render.words import count

    if vms:
        emit(listing(vms, view.machine, view.until, columns()))
    total = view.count_vms()
    if total == 0:
        hint("no machines yet; `steno submit` makes the first one, `steno up` watches a provider's")
    elif len(vms) < total:
        hint(f"{count(total - len(vms), 'older machine')} not shown; --all lists every machine")
    live = [vm for vm in vms if vm.archive is None]
    said = burning(live, view.machine)
    if said is not None:
        hint(said)
    watched = {vm.source for vm in live if view.machine(vm.vm_id).billed}
    say_unseen([one for one in sources if one.name in watched], now)


def _show(app: App, view: View, word: str, now: int) -> None:
    found: VmObject = view.vm(word)
    machine, anomalies = view.machine(found.vm_id), view.anomalies_of_vm(found.vm_id)
    source = view.source_named(found.source, now)
    if app.json:
        import msgspec

        from projections.models.vm_facts import beside

        seen = None if source is None else source.observability
        last = {"anomalies": anomalies, "position": view.position, "observability": seen}
        emit_json(msgspec.to_builtins(found) | beside(machine) | last)
        return
    from cli.render.runs import anomaly_table
    from cli.render.vms import in_full

    names = {run_id: view.run(run_id).name or run_id for run_id in found.runs}
    emit(in_full(found, machine, names, view.until(machine)))
    if anomalies:
        emit("\n" + anomaly_table(anomalies))
    if machine.billed and source is not None:
        from cli.wiring.view import say_unseen

        say_unseen([source], now)


def _stop(app: App, word: str, *, when_idle: bool) -> None:
    """Request the stop of a machine, and wait for its end.

    Raises:
        VmNotFound: there is no such machine.
        Conflict: Steno did not create it, or it is part of an archive.
        VmInUse: the provider refused.
    """
    from cli.wiring.stores import writing
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


def _confirm_gone(app: App, word: str, when: str) -> None:
    """Record when a machine ended, as somebody saw.

    Raises:
        VmNotFound: there is no such machine.
        Conflict: a poll has shown its end, or shows it alive.
        click.BadParameter: the time lies before its start or in the future.
    """
    from cli.render.words import moment as shown
    from cli.wiring.stores import writing
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
    from cli.wiring.providers import named
    from cli.wiring.recorder import watching
    from cli.wiring.signals import stoppable
    from engine.commands.dispatcher import Dispatcher
    from engine.commands.stop import request_vm_stop
    from engine.errors import VmInUse
    from engine.states import VmState
    from events.types import VmStopFailed

    with (
        closing(named(app, vm.provider, record.store, project=vm.facts.project)) as provider,
        watching(app, record, provider, adopt=False) as recorder,
    ):
        dispatcher = Dispatcher(recorder)
        project, submitter = vm.facts.project or provider.project, getpass.getuser()
        position = request_vm_stop(recorder.journal, vm, project=project, when_idle=when_idle, submitter=submitter)
        recorder.watch()
        found = recorder.world.state.vms.get(vm.vm_id, vm)
        if when_idle and found.occupants:
            return found
        outcome = dispatcher.machine_stopped(vm.vm_id, position, _OUTCOME_TIMEOUT)
        if isinstance(outcome, VmStopFailed):
            raise VmInUse(f"{vm.facts.name or vm.provider_id} was not stopped and is still billed: {outcome.error}")
        with stoppable(signal.SIGINT, KeyboardInterrupt) as interrupted:
            end = app.clock.now() + (_END_TIMEOUT if outcome is not None else 0)
            while found.state is not VmState.TERMINATED and app.clock.now() < end:
                interrupted()
                recorder.effects.wait(recorder.watch().pause)
                found = recorder.world.state.vms.get(vm.vm_id, vm)
        return found


def _progress(name: str, vm: Vm, *, when_idle: bool) -> str:
    from engine.states import VmState

    if vm.state is VmState.TERMINATED:
        return f"{name} is gone"
    if when_idle and vm.occupants:
        return f"{name} is stopped when the run on it has ended (by `steno up`); no other run is placed on it"
    return f"the stop of {name} is requested; it is still {vm.state}. `steno vms {name}` shows it, `steno up` stops it"
