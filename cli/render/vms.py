"""Machines in a table, and one in full."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from steno.cli.render import paint, words
from steno.engine.objects import VmObject
from steno.engine.state.vm import Vm
from steno.engine.wire import money as dollars
from steno.events.clock import duration, parse_time

Machine = Callable[[str], Vm]  # the engine's machine of an id


def verdict(vm: VmObject, machine: Vm) -> str:
    """`● idle`, `● terminated · idle_timeout`, `● busy · unreachable`, `● idle · unhealthy` in the state's colour."""
    unreachable = machine.billed and machine.facts.unreachable and vm.reason != "unreachable"
    unhealthy = "unhealthy" if machine.billed and machine.facts.health is not None else None
    return paint.verdict(vm.state, vm.reason, "unreachable" if unreachable else unhealthy)


def called(vm: VmObject) -> str:
    return paint.plain(vm.name or vm.provider_id)


def what(machine: Vm) -> str:
    """`MI300X`, `MI300X:2 spot`, or the machine's type if it has no GPU."""
    facts = machine.facts
    if facts.gpu is None:
        name = facts.instance_type or "–"
    else:
        name = facts.gpu if facts.gpu_count == 1 else f"{facts.gpu}:{facts.gpu_count}"
    return f"{name} spot" if facts.spot else name


def listing(vms: Sequence[VmObject], machine: Machine, until: Callable[[Vm], int], columns: int) -> str:
    """The table of `vms`, in the given order; `until` gives the end of an open bill (microseconds, UTC)."""
    head = ("MACHINE", "STATE", "GPU", "WHERE", "$/H", "UP", "RUNS", "COST", "ID")
    rows = []
    names = Counter(called(vm) for vm in vms)
    shared = [[vm for vm in vms if called(vm) == name] for name in names if names[name] > 1]
    where = _apart(shared, machine) if shared else lambda vm: machine(vm.vm_id).facts.backend or vm.provider_id
    for vm in vms:
        folded, ended = machine(vm.vm_id), _ended(vm)
        end = until(folded) if ended is None else parse_time(ended)
        mark = " (archive)" if folded.archive is not None else "" if folded.ours else " (not ours)"
        rows.append(
            (
                paint.cut(called(vm), 32) + (paint.dim(mark) if mark else ""),
                verdict(vm, folded),
                what(folded),
                where(vm),
                words.money(vm.price_usd_per_hour),
                duration(max(0, end - folded.created)),
                str(len(vm.runs)),
                words.short(vm.cost_usd),
                paint.dim(vm.vm_id[:8]),
            )
        )
    # Only source and id tell apart what has one name: they are left out last.
    spare = (6, 4, 2, 5, 3) if shared else (8, 3, 6, 4, 2)
    return paint.fitted(head, rows, columns, right=(4, 5, 6, 7), spare=spare)


def _apart(shared: Sequence[Sequence[VmObject]], machine: Machine) -> Callable[[VmObject], str]:
    """The fact that tells all machines of one name apart: source, cloud and region, address, or provider's id."""
    facts: tuple[Callable[[VmObject], str], ...] = (
        lambda vm: vm.source,
        lambda vm: place(machine(vm.vm_id)),
        lambda vm: machine(vm.vm_id).facts.hostname or "–",
    )
    apart = (fact for fact in facts if all(len(set(map(fact, vms))) == len(vms) for vms in shared))
    return next(apart, lambda vm: vm.provider_id)


def place(machine: Vm) -> str:
    return " ".join(part for part in (machine.facts.backend, machine.facts.region) if part) or "–"


def burning(vms: Sequence[VmObject], machine: Machine) -> str | None:
    """Total hourly cost of the billed machines, in one line; None if there are none."""
    billed = [vm for vm in vms if machine(vm.vm_id).billed]
    if not billed:
        return None
    hourly = sum(round(float(vm.price_usd_per_hour or 0) * 1_000_000) for vm in billed)
    burn = f"{words.count(len(billed), 'machine')} may be billed, {words.money(dollars(hourly))} an hour in total"
    unsure = [called(vm) for vm in billed if vm.state == "unconfirmed"]
    if unsure:
        burn += f"; no poll shows the end of {', '.join(unsure)}: check the cloud's console, then run `steno vms gone`"
    return burn


def in_full(vm: VmObject, machine: Vm, names: Mapping[str, str], until: int) -> str:
    """A machine up to the last poll: facts, runs, and its bill by interval."""
    facts, archive, idle = machine.facts, machine.archive, machine.idle_since
    least, most = words.short(vm.cost_low_usd), words.short(vm.cost_high_usd)
    bounds = "" if least == most else paint.dim(f"  (between {least} and {most})")
    rows = [
        ("state", verdict(vm, machine)),
        ("what", what(machine)),
        ("where", place(machine)),
        ("address", facts.hostname or "–"),
        ("fleet", facts.fleet or "–"),
        *([] if archive is None else [("archive", f"{archive}, up to {words.moment(until)}; no budget counts it")]),
        ("ours", "yes" if machine.ours else "no: Steno never stops it, and it does not count towards vms.max"),
        ("made for", "–" if machine.made_for is None else names.get(machine.made_for, machine.made_for)),
        ("created", words.moment(machine.created)),
        ("ended", words.moment(_ended(vm))),
        ("price", f"{words.money(vm.price_usd_per_hour)} an hour"),
        ("cost", words.short(vm.cost_usd) + bounds + words.idle(vm.busy)),
        ("idle since", "–" if idle is None else f"{words.moment(idle)}, for {duration(max(0, until - idle))}"),
        *_intents(machine),
        ("runs", ", ".join(names[run_id] for run_id in vm.runs) or "–"),
        ("machine id", vm.vm_id),
        ("provider's id", vm.provider_id),
    ]
    lines = [paint.bold(called(vm)) + paint.dim(f"  {machine.source}"), "", *paint.facts(rows)]
    return "\n".join([*lines, "", bill(vm, until)] if vm.intervals else lines)


def bill(vm: VmObject, until: int) -> str:
    """The intervals of the bill up to the last poll."""
    rows = []
    for interval in vm.intervals:
        lasted = (until if interval.end is None else parse_time(interval.end)) - parse_time(interval.start)
        times = words.moment(interval.start), words.moment(interval.end), duration(max(0, lasted))
        rows.append((interval.phase, *times, words.short(interval.cost_usd)))
    return paint.table(("PHASE", "FROM", "TO", "LASTED", "COST"), rows, right=(3, 4))


def _intents(machine: Vm) -> list[tuple[str, str]]:
    rows = []
    if machine.wish is not None:
        when = "when no run is on it" if machine.wish.when_idle else "at once"
        rows.append(("stop requested", f"{words.moment(machine.wish.at)}, {when}"))
    if machine.drain is not None:
        rows.append(("draining", f"since {words.moment(machine.drain.at)} ({machine.drain.by})"))
    if machine.told is not None:
        refused = "" if machine.told.error is None else f", refused: {machine.told.error}"
        rows.append(("stop sent", words.moment(machine.told.intended_at) + refused))
    return rows


def _ended(vm: VmObject) -> str | None:
    return vm.intervals[-1].end if vm.intervals else None
