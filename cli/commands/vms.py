"""`steno vms`: the machines there are, one in full, and their end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.groups import DefaultGroup
from cli.wiring.app import App
from cli.wiring.options import at_option, common, hidden_option, optional_vm_argument, pass_app, vm_argument
from cli.wiring.output import emit, emit_json, hint
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from engine.objects import VmObject
    from projections.models.view import View

_DAY = 86_400_000_000


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
    from cli.stores import viewing
    from cli.wiring.time_arguments import seen_from

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
    from cli.ending import end_machine
    from cli.wiring.logging_setup import log_for_data

    log_for_data()
    end_machine(app, vm, when_idle=when_idle)


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
    from cli.ending import confirm_machine_gone

    confirm_machine_gone(app, vm, when)


def _list(app: App, view: View, now: int, *, everything: bool, hidden: bool) -> None:
    vms = view.vms(billed_or_since=None if everything else now - _DAY, hidden=hidden)
    from cli.wiring.live_status import say_unseen, source_object

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
        from cli.wiring.live_status import say_unseen

        say_unseen([source], now)
