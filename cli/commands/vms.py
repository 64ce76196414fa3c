"""`steno vms`: list and show machines, stop one, or record that one is gone."""

from __future__ import annotations

import getpass
import signal
from contextlib import closing
from typing import TYPE_CHECKING

import click
import msgspec

from steno.cli.render.words import count
from steno.cli.render.words import moment as shown
from steno.cli.wiring.app import App, DefaultGroup
from steno.cli.wiring.options import (
    both_times_option,
    hidden_option,
    optional_vm_argument,
    vm_argument,
    vms_argument,
    why_option,
)
from steno.cli.wiring.output import emit, emit_json, hint, show
from steno.cli.wiring.terminal import columns
from steno.cli.wiring.time_arguments import coming, length, moment
from steno.cli.wiring.view import DAY, caught_up_view, say_unseen, source_objects, viewing
from steno.engine.errors import VmInUse
from steno.engine.runtime.signals import stoppable
from steno.engine.state.states import VmState
from steno.events.clock import format_second, format_time

if TYPE_CHECKING:
    from steno.engine.state.vm import Vm
    from steno.events.store.record import Record
    from steno.projections.read_models.view import View


@click.group("vms", cls=DefaultGroup, subcommand_metavar="[VM] | COMMAND [ARGS]…")
def vms_command() -> None:
    """Machines are listed with state, price and cost so far. Without VM: those that may be billed, and those that ended
    within the last day. VM is a machine's id or its beginning, the provider's id, or a name. Names are reused: a name
    means the machine that may be billed, else the newest.

    With --json: {"vms": [machine objects, as in replay], "position", "sources": [{"source", "observability",
    "last_answered_at"}]}; with VM the machine object, and beside it "project", "backend", "region", "fleet", "gpu",
    "gpu_count", "spot", "ours", "made_for", "created_at", "idle_since", "unreachable", "health", "anomalies",
    "position", "observability".

    \b
    Examples:
      steno vms
      steno vms --all --json | jq '.vms[] | {name, state, cost_usd}'
      steno vms steno-slot-1-0
      steno vms stop steno-slot-1-0 --when-idle
      steno vms keep steno-slot-1-0 --for 2h --why "debugging"
      steno vms gone steno-slot-1-0 --at 2026-11-20T15:00:00Z
    """


@vms_command.command("list", hidden=True)
@optional_vm_argument
@click.option("--all", "-a", "everything", is_flag=True, help="Also machines that ended more than a day ago.")
@hidden_option
@both_times_option
def listed(app: App, vm: str | None, everything: bool, hidden: bool, at: str | None) -> None:
    """List machines, or show one."""
    with viewing(app, at) as (_, view, now):
        if vm is None:
            _list(app, view, now, everything=everything, hidden=hidden)
        else:
            _show(app, view, vm, now)


@vms_command.command("stop")
@vms_argument
@click.option("--when-idle", is_flag=True, help="Wait until no run is on it, instead of stopping the run.")
def stop(app: App, vms: tuple[str, ...], when_idle: bool) -> None:
    """Stop machines; does nothing for a machine that has ended. If a name is not known, nothing is stopped.

    Steno records the request first and places no further run on the machine. A run on it is stopped, unless --when-idle
    is given. Then the process that holds the provider's lease sends the stop request, and this command waits up to a
    minute for the end. With --json: {"vm_id", "name", "state", "asked", "told"}.

    Exits 5 if the provider refuses, for example because its fleet is in use.

    \b
    Examples:
      steno vms stop steno-slot-1-0
      steno vms stop 5f0c --when-idle
    """
    from steno.engine.submit.requests import needs_vm_stop

    app.several = len(vms) > 1
    with app.writing(create=False) as record:
        machines = [_machine(record, vm) for vm in dict.fromkeys(vms)]
        for machine, requested in [(machine, needs_vm_stop(machine)) for machine in machines]:
            _stop(app, record, machine, when_idle=when_idle, requested=requested)


def _stop(app: App, record: Record, machine: Vm, *, when_idle: bool, requested: bool) -> None:
    name = machine.facts.name or machine.provider_id
    if requested:
        machine = _stopped(app, record, machine, when_idle=when_idle)
    if not requested:
        outcome = f"{name} had already ended"
    elif machine.state is VmState.TERMINATED:
        outcome = f"{name} is gone"
    elif when_idle and machine.occupants:
        outcome = f"{name} is stopped when the run on it has ended (by `steno up`); no other run is placed on it"
    else:
        then = f"`steno vms {name}` shows it, `steno up` stops it"
        outcome = f"the stop of {name} is requested; it is still {machine.state}. {then}"
    sent = machine.told is not None and machine.told.taken_at is not None
    value = {
        "vm_id": machine.vm_id,
        "name": machine.facts.name,
        "state": machine.state,
        "asked": requested,
        "told": sent,
    }
    show(app, value, outcome)


@vms_command.command("keep")
@vms_argument
@click.option("--for", "duration", metavar="DURATION", help="How long: 30m, 2h.")
@click.option("--until", "end", metavar="TIME", help="Until that time: of 18:00 the next.")
@why_option()
def keep(app: App, vms: tuple[str, ...], duration: str | None, end: str | None, why: str) -> None:
    """Keep machines, for example for debugging: they do not end for being idle, and only your own runs are placed on
    them. You pay for their idle time (`steno costs --by user`). At the end of the time an idle machine ends at once; no
    process has to run meanwhile, as the next that records ends it. Keeping it again sets another end; `steno resume
    LEVER` releases it.

    A provider with an idle timer of its own may end the machine earlier: the answer then says when. Where
    the provider chooses machines (`vms.mode = provider`), it may also place others' runs there. With --json the lever,
    as `steno pause`.

    \b
    Examples:
      steno vms keep steno-slot-1-0 --for 2h --why "debugging the crash"
      steno vms keep steno-slot-1-0 --until 18:00 --why "debugging the crash"
    """
    from steno.cli.commands.levers import pulled, refuse_any

    if (duration is None) == (end is None):
        raise click.UsageError("name one end of the time: --for 2h, or --until 18:00")
    until = coming(end, app.clock.now()) if end else app.clock.now() + length(duration or "")
    app.several = len(vms) > 1
    with app.writing(create=False) as record:
        machines = [_machine(record, vm) for vm in dict.fromkeys(vms)]
        refuse_any(app, record, "keep", why, [{"vm_id": machine.vm_id, "until": until} for machine in machines])
        for machine in machines:
            pulled(app, record, "keep", why, vm_id=machine.vm_id, until=until)
            with caught_up_view(record) as view:
                own = view.provider_end(view.state.vms[machine.vm_id], app.clock.now())
            if own is not None:
                ends = f"{machine.provider} itself ends it about {format_second(own)} unless a run is on it then"
                hint(f"{ends}, and Steno cannot move that timer: a run on it, as `sleep 2h`, holds it for certain")


@vms_command.command("gone", short_help="Record that a machine has ended, as you saw yourself.")
@vm_argument
@click.option("--at", "when", metavar="TIME", required=True, help="When it ended, as the cloud's own console says.")
def gone(app: App, vm: str, when: str) -> None:
    """Record that a machine has ended, because you saw it in the cloud's own console.

    For a machine that was told to stop, or is no longer listed, and that no poll has shown gone (`unconfirmed`). Its
    bill ends at that moment. With --json: {"vm_id", "name", "ended_at", "position"}.

    \b
    Examples:
      steno vms gone steno-slot-1-0 --at 2026-11-20T15:00:00Z
      steno vms gone 5f0c --at 20m
    """
    from steno.engine.live.journal import Journal
    from steno.engine.submit.requests import confirm_gone, refuse_gone

    now = app.clock.now()
    ended_at = moment(when, now)
    with app.writing(create=False) as record:
        machine = _machine(record, vm)
        name = machine.facts.name or machine.provider_id
        refuse_gone(machine)
        if not machine.created <= ended_at <= now:
            raise click.BadParameter(
                f"{name} was created at {shown(machine.created)}; --at must lie between that and now, not at {when}"
            )
        position = confirm_gone(Journal(record), machine, ended_at=ended_at, submitter=getpass.getuser())
    ended = format_time(ended_at)
    value = {"vm_id": machine.vm_id, "name": machine.facts.name, "ended_at": ended, "position": position}
    show(app, value, f"recorded: {name} ended at {shown(ended_at)}; its bill ends there")


def _list(app: App, view: View, now: int, *, everything: bool, hidden: bool) -> None:
    from steno.cli.render.vms import burning, listing

    vms = view.vms(billed_or_since=None if everything else now - DAY, hidden=hidden)
    sources, total = view.sources(now), view.store.vms.count()
    if app.json:
        emit_json({"vms": vms, "position": view.position, "sources": source_objects(sources)})
        return
    if vms:
        emit(listing(vms, view.machine, view.until, columns()))
    if total == 0:
        hint("no machines yet; `steno submit` makes the first machine, `steno up` watches a provider's")
    elif len(vms) < total:
        hint(f"{count(total - len(vms), 'older machine')} not shown; --all lists every machine")
    live = [vm for vm in vms if vm.archive is None]
    burn = burning(live, view.state.vms.__getitem__)
    if burn is not None:
        hint(burn)
    watched = {vm.source for vm in live if view.machine(vm.vm_id).billed}
    say_unseen([source for source in sources if source.name in watched], now)


def _show(app: App, view: View, word: str, now: int) -> None:
    from steno.cli.render.runs import anomaly_table
    from steno.cli.render.vms import in_full
    from steno.projections.read_models.view import beside

    answer = view.vm(word)
    machine, anomalies = view.machine(answer.vm_id), view.anomalies_of(f"vm/{answer.vm_id}")
    source = view.source_named(answer.source, now)
    seen = None if source is None else source.observability
    last = {"anomalies": anomalies, "position": view.position, "observability": seen}
    names = {run_id: view.run(run_id).name or run_id for run_id in answer.runs}
    text = in_full(answer, machine, names, view.until(machine))
    if anomalies:
        text += "\n\n" + anomaly_table(anomalies)
    show(app, msgspec.to_builtins(answer) | beside(machine) | last, text)
    if not app.json and machine.billed and source is not None:
        say_unseen([source], now)


def _machine(record: Record, word: str) -> Vm:
    with caught_up_view(record) as view:
        return view.machine(view.vm_row(word).vm_id)


def _stopped(app: App, record: Record, vm: Vm, *, when_idle: bool) -> Vm:
    """Request the stop; return the machine once it ended, must wait for a run, or the time limit is reached."""
    from steno.cli.wiring.session import END_TIMEOUT, OUTCOME_TIMEOUT
    from steno.engine.control.dispatcher import Dispatcher
    from steno.engine.runtime.controllers import watching
    from steno.engine.submit.requests import request_vm_stop
    from steno.events.types import VmStopFailed

    with (
        closing(app.provider(vm.provider, record.store, project=vm.facts.project)) as provider,
        watching(app, record, provider, adopt=False) as controller,
    ):
        dispatcher = Dispatcher(controller)
        project, submitter = vm.facts.project or provider.project, getpass.getuser()
        position = request_vm_stop(controller.journal, vm, project=project, when_idle=when_idle, submitter=submitter)
        controller.watch()
        current = controller.world.state.vms.get(vm.vm_id) or vm
        if when_idle and current.occupants:
            return current
        outcome = dispatcher.machine_stopped(vm.vm_id, position, OUTCOME_TIMEOUT)
        if isinstance(outcome, VmStopFailed):
            raise VmInUse(f"{vm.facts.name or vm.provider_id} was not stopped and is still billed: {outcome.error}")
        with stoppable(signal.SIGINT, KeyboardInterrupt) as interrupted:
            end = app.clock.now() + (END_TIMEOUT if outcome is not None else 0)
            while current.state is not VmState.TERMINATED and app.clock.now() < end:
                interrupted()
                controller.effects.wait(controller.watch().pause)
                current = controller.world.state.vms.get(vm.vm_id) or vm
        return current
