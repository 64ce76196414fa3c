"""What changed in a range of time: verdicts, machines, anomalies, gaps, money and settings, also of one user only."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from steno.engine.money.costs import Costs, charges, cut_at, runs_on
from steno.engine.objects import BlindObject
from steno.engine.rules.why_ended import finding
from steno.engine.state.kernel_mark import is_kept
from steno.engine.state.policy import Policy, Rate
from steno.engine.state.states import State, VmReason, VmState
from steno.engine.state.vm import Vm
from steno.engine.wire import Position, Shape, Stretched, Time, Usd, rate, usd
from steno.events.clock import format_second, span
from steno.projections.answers.actions import changed_settings
from steno.projections.answers.evidence import message_of
from steno.projections.answers.incidents import DatedAnomaly, anomalies_of, blind, position_before
from steno.projections.read_models.reader_pool import Look
from steno.projections.read_models.run_query import RunQuery, find
from steno.projections.read_models.schema import RunRow
from steno.projections.read_models.world_table import decode_run

_LOOKED_AT: Final = 10_000  # ends of runs, and runs submitted: of more, the newest
_ENDS: Final = ("run_succeeded", "run_failed", "run_stopped")
_NAMES: Final = 3  # of runs in one line
_VANISHED: Final = frozenset({VmReason.UNREACHABLE, VmReason.INTERRUPTED})
_NAMED: Final = {  # field of a policy → its setting, where that is not `vms.<field>`
    "max_vms": "vms.max",
    "queue_patience": "queue.patience",
    "budget_total": "budget.total",
    "thresholds": "budget.alerts",
    "assumed_duration": "budget.assumed_duration",
    "rates": "rates",
    "assumed": "assumed prices",
    "billing": "billing",
    "free": "machines are free",
}
_TIMES: Final = frozenset({"idle_timeout", "busy_idle_timeout", "queue_patience", "assumed_duration"})


class EndedRuns(Shape, frozen=True, kw_only=True):
    """Runs that ended alike: those that succeeded, of one user; others, of one name."""

    name: Annotated[str, Meta(description="The newest names, with commas.")]
    user: str
    state: str
    reason: str | None
    exit_status: int | None
    count: int
    last_at: Time  # the end of the newest
    cost_usd: Usd
    why: Annotated[str, Meta(description="Why the newest ended so; empty if it succeeded.")]
    run_ids: tuple[str, ...]  # newest first


class ChangedMachine(Shape, frozen=True, kw_only=True):
    """A machine that came, ended or vanished."""

    vm_id: str
    name: str
    gpu: str
    state: str
    user: Annotated[str | None, Meta(description="Whose run it was made for, else whose run was on it last.")]
    came_at: Time | None
    ended_at: Time | None
    vanished_at: Time | None
    what: str
    cost_usd: Annotated[Usd, Meta(description="Its cost in the range.")]


class SpentBy(Shape, frozen=True, kw_only=True):
    user: Annotated[str, Meta(description="In parentheses: what no run pays.")]
    cost_usd: Usd


class ChangedSetting(Shape, frozen=True, kw_only=True):
    """A setting that another value came into force of, or something that a user changed for all."""

    position: Position
    at: Time
    subject: Annotated[str, Meta(description="The source, or the stream, that it is about.")]
    what: str
    who: str | None  # None: the process that acts on the source has other settings


class Changes(Stretched, frozen=True, kw_only=True):
    """What changed in a range of time; every list is newest first."""

    start: Time
    end: Time
    user: Annotated[str | None, Meta(description="Runs, machines, anomalies and money of this user only.")]
    submitted: int
    runs: tuple[EndedRuns, ...]
    machines: tuple[ChangedMachine, ...]
    anomalies: tuple[DatedAnomaly, ...]
    blind: tuple[BlindObject, ...]
    total_usd: Usd
    spent: tuple[SpentBy, ...]  # the most first
    settings: tuple[ChangedSetting, ...]
    more: Annotated[bool, Meta(description="There are more anomalies, or more than 10,000 ends of runs.")]


def changes(look: Look, since: int, user: str | None = None, limit: int = 50) -> Changes:
    """What changed since a time (microseconds UTC) up to the moment of the look; at most `limit` anomalies."""
    position = position_before(look, since)
    ended = _ended(look, since, user)
    notes = list(anomalies_of(look, limit + 1, since=since, user=user))
    by_vm, by_user = _spent(look, since, user)
    spent = [SpentBy(user=who, cost_usd=cost) for who, cost in by_user.most_common() if cost]
    found = find(look.view.store, RunQuery(since=since, until=look.now, user=user), _LOOKED_AT)
    return Changes(
        start=since,
        end=look.now,
        user=user,
        submitted=len(found),
        runs=tuple(_groups(look, ended)),
        machines=tuple(_machines(look, since, user, by_vm)),
        anomalies=tuple(notes[:limit]),
        blind=blind(look, since),
        total_usd=sum(by_user.values()),
        spent=tuple(spent),
        settings=tuple(sorted(_settings(look, since, position), key=lambda each: -each.position)),
        more=len(notes) > limit or max(len(ended), len(found)) >= _LOOKED_AT,
    )


def _ended(look: Look, since: int, user: str | None) -> list[tuple[int, RunRow]]:
    """(when it ended, row) of the runs whose verdict came in the range and stands, newest first."""
    marks = look.view.store.marks(_LOOKED_AT, since, look.now).marks
    ends = {mark.subject.removeprefix("run/"): mark.at for mark in marks if mark.kind in _ENDS}
    rows = ((at, look.view.store.runs.get(run_id)) for run_id, at in ends.items())
    shown = [(at, row) for at, row in rows if row is not None and row.ended and not row.hidden]
    return sorted([end for end in shown if user in (None, end[1].user)], key=lambda end: -end[0])


def _groups(look: Look, ended: Iterable[tuple[int, RunRow]]) -> Iterator[EndedRuns]:
    groups = defaultdict[tuple[str | None, str | None, str, str | None, str], list[tuple[int, RunRow]]](list)
    for at, row in ended:
        good = row.state == State.SUCCEEDED
        status = None if good else decode_run(row.folded).exit_status
        alike = (None if good else row.name, row.user, row.state, None if good else row.reason, str(status))
        groups[alike].append((at, row))
    for alike, members in sorted(groups.items(), key=lambda group: group[0][2] == State.SUCCEEDED):
        at, newest = members[0]
        run, names = decode_run(newest.folded), list(dict.fromkeys(row.name or row.run_id[:8] for _, row in members))
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        vm = look.view.state.vms.get(run.vm_id or "")
        good = newest.state == State.SUCCEEDED
        yield EndedRuns(
            name=", ".join(names[:_NAMES]) + more,
            user=newest.user or "unknown",
            state=newest.state,
            reason=alike[3],
            exit_status=None if good else run.exit_status,
            count=len(members),
            last_at=at,
            cost_usd=sum(row.cost or 0 for _, row in members),
            why="" if good else finding(run, message_of(look.record, run), vm=vm).why,
            run_ids=tuple(row.run_id for _, row in members),
        )


# -- machines and money ------------------------------------------------------------------------------------------------


def _spent(look: Look, since: int, user: str | None) -> tuple[Counter[str], Counter[str]]:
    """Micro-dollars spent in the range (by machine, by user); all ranges in a row sum to the bills exactly."""
    state, by_vm, by_user = look.view.state, Counter[str](), Counter[str]()
    costs = Costs(state)
    for row in look.view.store.vms.all(since=since, hidden=False):
        bill = () if is_kept(state.vms[row.vm_id]) else charges(costs.bill(row.vm_id))
        for charge in (part for whole in bill for part in cut_at(whole, (since,)) if part.since >= since):
            who = f"({charge.line.value})" if charge.run_id is None else _user_of(look, charge.run_id)
            if user in (None, who):
                by_vm[row.vm_id] += charge.cost
                by_user[who] += charge.cost
    return by_vm, by_user


def _user_of(look: Look, run_id: str) -> str:
    known: Any = look.view.store.runs.columns(run_id, "user")
    return (known and known[0]) or "unknown"


def _machines(look: Look, since: int, user: str | None, cost: Counter[str]) -> Iterator[ChangedMachine]:
    """Those that vanished first, then by their last change."""
    rows = []
    for row in look.view.store.vms.all(since=since, hidden=False):
        vm = look.view.state.vms[row.vm_id]
        users = [_user_of(look, run_id) for run_id in runs_on(vm)]
        came = vm.created if vm.created >= since else None
        ended = vm.finished_at if vm.state is VmState.TERMINATED else None
        ended = ended if ended is not None and ended >= since else None
        gone = next((at for at in reversed(_vanished(vm)) if since <= at <= look.now), None)
        if (came or ended or gone) and (user is None or user in users):
            rows.append(
                ChangedMachine(
                    vm_id=row.vm_id,
                    name=row.name or row.vm_id[:8],
                    gpu=row.gpu,
                    state=vm.state.value,
                    user=users[-1] if users else None,
                    came_at=came,
                    ended_at=ended,
                    vanished_at=gone,
                    what="; ".join(_happened(vm, came, ended, gone)),
                    cost_usd=cost[row.vm_id],
                )
            )
    yield from sorted(rows, key=lambda row: (row.vanished_at is None, -(row.ended_at or row.came_at or 0)))


def _vanished(vm: Vm) -> list[int]:
    """When its provider did not reach it, no longer listed it, or took it away, in order of time."""
    moments = [silence.since for silence in vm.unreachable]
    moments += [] if vm.missing is None else [vm.missing.at]
    moments += [step.at for step in vm.steps if step.after is VmState.UNCONFIRMED]
    moments += [vm.finished_at] if vm.finished_at is not None and vm.reason in _VANISHED else []
    return sorted(moments)


def _happened(vm: Vm, came: int | None, ended: int | None, gone: int | None) -> Iterator[str]:
    if came is not None:
        yield f"came at {format_second(came)}"
    if gone is not None:
        silence = next((each for each in vm.unreachable if each.since == gone), None)
        back = f", answers again since {format_second(silence.until)}" if silence and silence.until else ""
        yield f"vanished at {format_second(gone)}" + ("" if silence is None else f", {silence}{back}")
    if ended is not None:
        yield f"ended at {format_second(ended)} ({(vm.reason or VmReason.UNKNOWN_REASON).replace('_', ' ')})"
    elif gone is not None and vm.billed and vm.archive is None:
        yield "still billed"


# -- settings ----------------------------------------------------------------------------------------------------------


def _settings(look: Look, since: int, position: int) -> Iterator[ChangedSetting]:
    for act in changed_settings(look, position):
        what = f"{act.action} {act.name or ''}".rstrip()
        yield ChangedSetting(position=act.position, at=act.at, subject=act.subject, what=what, who=act.who)
    for source, steps in look.view.state.policies.items():
        for before, step in pairwise(steps):
            if step.at >= since and (what := policy_words(before.policy, step.policy)):
                yield ChangedSetting(position=step.position, at=step.at, subject=source, what=what, who=None)


def policy_words(before: Policy, after: Policy) -> str:
    """`vms.idle_timeout 10m → 5m, vms.max 3 → 5`; empty for equal policies."""
    pairs = ((name, getattr(before, name), getattr(after, name)) for name in Policy.__struct_fields__)
    return ", ".join(
        f"{_NAMED.get(name, f'vms.{name}')} {_value(name, old)} → {_value(name, new)}"
        for name, old, new in pairs
        if old != new
    )


def _value(name: str, value: Any) -> str:
    if value is None or value == ():
        return "off" if name != "max_vms" else "no limit"
    if name == "budget_total":
        return usd(value)
    if name == "thresholds":
        return " ".join(f"{part / 10:g}%" for part in value)
    if name in _TIMES:
        return span(value) if value else "0"
    if isinstance(value, tuple):
        return " ".join(
            f"{each.gpu} {rate(each.hourly)}".strip() if isinstance(each, Rate) else _plain(each) for each in value
        )
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def _plain(value: object) -> str:
    return str(msgspec.to_builtins(value))
