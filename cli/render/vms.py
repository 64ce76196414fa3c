"""Machines in a table, and one in full."""

from collections.abc import Callable, Mapping, Sequence

from cli.render import paint, words
from engine.fold.vm import Vm
from engine.money.words import money as dollars
from engine.objects import IntervalObject, VmObject
from events.clock import parse_time

Machine = Callable[[str], Vm]
"""The engine's machine of an id."""


def verdict(vm: VmObject, machine: Vm) -> str:
    """`● idle`, `● terminated · idle_timeout`, `● busy · unreachable` in the state's colour."""
    parts = [f"● {vm.state}"]
    if vm.reason is not None:
        parts.append(vm.reason)
    if machine.billed and machine.facts.unreachable:
        parts.append("unreachable")
    return paint.state(vm.state, " · ".join(parts))


def called(vm: VmObject) -> str:
    """The machine's name, or its id."""
    return vm.name or vm.provider_id


def what(machine: Vm) -> str:
    """`MI300X`, `MI300X:2 spot`, or the machine's type where it has no GPU."""
    facts = machine.facts
    if facts.gpu is None:
        name = facts.instance_type or "–"
    else:
        name = facts.gpu if facts.gpu_count == 1 else f"{facts.gpu}:{facts.gpu_count}"
    return f"{name} spot" if facts.spot else name


def listing(vms: Sequence[VmObject], machine: Machine, until: Callable[[Vm], int], columns: int) -> str:
    """The table of `vms`, in the order given; a narrow terminal shows fewer columns.

    Args:
        until: up to when an open machine is billed (microseconds, UTC).
    """
    head = ("MACHINE", "STATE", "GPU", "WHERE", "$/H", "UP", "RUNS", "COST", "ID")
    rows = []
    for vm in vms:
        found = machine(vm.vm_id)
        rows.append(
            (
                paint.cut(called(vm), 32) + _mark(found),
                verdict(vm, found),
                what(found),
                found.facts.backend or vm.provider_id,
                words.money(vm.price_usd_per_hour),
                words.duration(max(0, _end(vm, until(found)) - found.created)),
                str(len(vm.runs)),
                words.short(vm.cost_usd),
                paint.dim(vm.vm_id[:8]),
            )
        )
    return paint.fitted(head, rows, columns, right=(4, 5, 6, 7), spare=(8, 3, 6, 4, 2))


def _mark(machine: Vm) -> str:
    if machine.archive is not None:
        return paint.dim(" (archive)")
    return "" if machine.ours else paint.dim(" (not ours)")


def burning(vms: Sequence[VmObject], machine: Machine) -> str | None:
    """Total hourly cost of the machines that may be billed, in one line; None if there are none."""
    billed = [vm for vm in vms if machine(vm.vm_id).billed]
    if not billed:
        return None
    hourly = sum(round(float(vm.price_usd_per_hour or 0) * 1_000_000) for vm in billed)
    said = f"{words.count(len(billed), 'machine')} may be billed, {words.money(dollars(hourly))} an hour in total"
    unsure = [called(vm) for vm in billed if vm.state == "unconfirmed"]
    if unsure:
        said += f"; no poll shows the end of {', '.join(unsure)}: check the cloud's console, then run `steno vms gone`"
    return said


def in_full(vm: VmObject, machine: Vm, names: Mapping[str, str], until: int) -> str:
    """One machine up to the last poll: facts, runs, and its bill by interval."""
    facts = machine.facts
    where = " ".join(part for part in (facts.backend, facts.region) if part) or "–"
    rows: list[tuple[str, str]] = [
        ("state", verdict(vm, machine)),
        ("what", what(machine)),
        ("where", where),
        ("fleet", facts.fleet or "–"),
        *_archive(machine, until),
        ("ours", "yes" if machine.ours else "no: Steno never stops it, and it does not count towards vms.max"),
        ("made for", "–" if machine.made_for is None else names.get(machine.made_for, machine.made_for)),
        ("created", words.moment(machine.created)),
        ("ended", _ended(vm)),
        ("price", f"{words.money(vm.price_usd_per_hour)} an hour"),
        ("cost", f"{words.short(vm.cost_usd)}{_bounds(vm)}"),
        ("idle since", "–" if machine.idle_since is None else _since(machine.idle_since, until)),
        *_intents(machine),
        ("runs", ", ".join(names[run_id] for run_id in vm.runs) or "–"),
        ("machine id", vm.vm_id),
        ("provider's id", vm.provider_id),
    ]
    width = max(len(label) for label, _ in rows)
    lines = [paint.bold(called(vm)) + paint.dim(f"  {machine.source}"), ""]
    lines += [f"{paint.dim(label.ljust(width))}  {value}" for label, value in rows]
    if vm.intervals:
        lines += ["", bill(vm, until)]
    return "\n".join(lines)


def _archive(machine: Vm, until: int) -> list[tuple[str, str]]:
    """The archive of an imported machine."""
    if machine.archive is None:
        return []
    return [("archive", f"{machine.archive}, up to {words.moment(until)}; no budget counts it")]


def bill(vm: VmObject, until: int) -> str:
    """The intervals of a machine's bill up to the last poll."""
    rows = [_interval(one, until) for one in vm.intervals]
    return paint.table(("PHASE", "FROM", "TO", "LASTED", "COST"), rows, right=(3, 4))


def _interval(one: IntervalObject, until: int) -> tuple[str, str, str, str, str]:
    start = parse_time(one.start)
    end = until if one.end is None else parse_time(one.end)
    shown = "–" if one.end is None else words.moment(end)
    return one.phase, words.moment(start), shown, words.duration(max(0, end - start)), words.short(one.cost_usd)


def _intents(machine: Vm) -> list[tuple[str, str]]:
    """Stop requests and stops that Steno sent."""
    rows = []
    if machine.wish is not None:
        when = "when no run is on it" if machine.wish.when_idle else "at once"
        rows.append(("stop requested", f"{words.moment(machine.wish.at)}, {when}"))
    if machine.drain is not None:
        rows.append(("draining", f"since {words.moment(machine.drain.at)} ({machine.drain.by})"))
    if machine.told is not None and machine.told.error is not None:
        rows.append(("stop sent", f"{words.moment(machine.told.intended_at)}, refused: {machine.told.error}"))
    elif machine.told is not None:
        rows.append(("stop sent", words.moment(machine.told.intended_at)))
    return rows


def _bounds(vm: VmObject) -> str:
    least, most = words.short(vm.cost_low_usd), words.short(vm.cost_high_usd)
    return "" if least == most else paint.dim(f"  (between {least} and {most})")


def _ended(vm: VmObject) -> str:
    last = vm.intervals[-1].end if vm.intervals else None
    return "–" if last is None else words.moment(parse_time(last))


def _end(vm: VmObject, until: int) -> int:
    last = vm.intervals[-1].end if vm.intervals else None
    return until if last is None else parse_time(last)


def _since(at: int, until: int) -> str:
    return f"{words.moment(at)}, for {words.duration(max(0, until - at))}"
