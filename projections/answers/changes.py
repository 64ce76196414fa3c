"""The changes in a range of time: verdicts, machines, anomalies, gaps, money and settings, also of one user only."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import Annotated, Any, Final

from msgspec import Meta
from msgspec.structs import asdict, replace

from steno.engine.money.costs import runs_on
from steno.engine.rules.why_ended import finding
from steno.engine.state.policy import Policy, Rate
from steno.engine.state.states import State, VmReason, VmState
from steno.engine.state.vm import Vm
from steno.engine.wire import DOLLAR, Shape, Stretched, Time, Usd, rate, usd
from steno.events.clock import duration, format_second, parse_time
from steno.projections.answers.actions import changed_settings
from steno.projections.answers.evidence import message_of
from steno.projections.answers.incidents import incidents, is_of, position_before
from steno.projections.answers.paid import paid
from steno.projections.read_models.reader_pool import Look
from steno.projections.read_models.run_query import RunQuery, find
from steno.projections.read_models.schema import RunRow

_LOOKED_AT: Final = 10_000  # marks, and runs submitted: of more, the newest
_NAMES: Final = 3  # of runs in one line
_VANISHED: Final = frozenset({VmReason.UNREACHABLE, VmReason.INTERRUPTED})
_SETTINGS: Final = {  # field of a policy → its setting, where that is not `vms.<field>`
    "max_vms": "vms.max", "queue_patience": "queue.patience", "budget_total": "budget.total", "rates": "rates",
    "thresholds": "budget.alerts", "assumed_duration": "budget.assumed_duration", "assumed": "assumed rates",
    "free": "free machines",
}  # fmt: skip
_TABLES: Final = frozenset({"limits", "billing"})  # tables of the settings: a setting for each owner or backend


class ChangeRow(Shape, frozen=True, kw_only=True):
    """Something that changed, or several runs that ended alike."""

    kind: Annotated[str, Meta(description="run, machine, anomaly, gap, money or setting")]
    name: str  # of runs the newest names, of money the user; in parentheses what no run pays
    state: Annotated[str, Meta(description="A verdict; vanished, ended or came; the kind of an anomaly or a gap.")] = ""
    user: str | None = None
    at: Time | None = None  # of several runs: the end of the newest
    cost_usd: Usd | None = None  # of a machine, and of money: in the range
    what: str = ""  # what it means, in words
    subjects: tuple[str, ...] = ()  # `run/<run_id>`, `vm/<vm_id>`, `source/<source>`


class Changes(Stretched, frozen=True, kw_only=True):
    """The changes in a range of time."""

    start: Time
    end: Time
    user: str | None
    runs_submitted: int
    total_usd: Usd
    changes: tuple[ChangeRow, ...]  # by kind; runs without success and vanished machines first, then the newest
    more: Annotated[bool, Meta(description="There are more anomalies, or more than 10,000 runs and machines.")]


def changes(look: Look, since: int, user: str | None = None, limit: int = 50) -> Changes:
    """The changes since a time (microseconds UTC) up to the moment of the look; at most `limit` anomalies."""
    odd = incidents(look, limit=limit, since=since, user=user)
    marks = look.view.store.marks(_LOOKED_AT, since, look.now)
    ends = {mark.subject: mark.at for mark in marks.marks if mark.kind.startswith("run_")}
    by_vm, by_user = Counter[str](), Counter[str]()
    for vm_id, _, who, cost in paid(look.view, since, look.now):
        if user in (None, who):
            by_vm[vm_id] += cost
            by_user[who] += cost
    submitted = find(look.view.store, RunQuery(since=since, until=look.now, user=user), _LOOKED_AT)
    rows = [*_runs(look, ends, user), *_machines(look, since, user, by_vm)]
    for note in odd.anomalies:
        row = ChangeRow(kind="anomaly", name=_name(look, note.subject), state=note.kind, at=note.at, what=note.detail)
        rows.append(replace(row, subjects=(note.subject,)))
    for gap in odd.blind:
        until = "it lasts" if gap.end is None else f"until {format_second(parse_time(gap.end))}"
        rows.append(ChangeRow(kind="gap", name=gap.source, state=gap.kind.words, at=parse_time(gap.start), what=until))
    rows += [ChangeRow(kind="money", name=who, cost_usd=cost) for who, cost in by_user.most_common() if cost]
    return Changes(
        start=since,
        end=look.now,
        user=user,
        runs_submitted=len(submitted),
        total_usd=sum(by_user.values()),
        changes=(*rows, *sorted(_settings(look, since), key=lambda row: -(row.at or 0))),
        more=odd.next is not None or marks.thinned or len(submitted) >= _LOOKED_AT,
    )


def _name(look: Look, subject: str) -> str:
    kind, _, name = subject.partition("/")
    table = look.view.store.runs if kind == "run" else look.view.store.vms
    known: Any = table.columns(name, "name")
    return (known and known[0]) or name


def _runs(look: Look, ends: dict[str, int], user: str | None) -> Iterator[ChangeRow]:
    """The verdicts that came and stand: one line for each name, or for each user of those that succeeded."""
    groups = defaultdict[tuple[object, ...], list[RunRow]](list)
    for subject in sorted(ends, key=lambda subject: -ends[subject]):
        row = look.view.store.runs.get(subject.removeprefix("run/"))
        if row is not None and row.ended and not row.hidden and user in (None, row.user):
            good = row.state == State.SUCCEEDED
            groups[good, row.user, *(() if good else (row.name, row.state, row.reason))].append(row)
    for alike, rows in sorted(groups.items(), key=lambda group: bool(group[0][0])):
        run, names = rows[0].decoded, list(dict.fromkeys(row.name or row.run_id[:8] for row in rows))
        vm = look.view.state.vms.get(run.vm_id or "")
        names[_NAMES:] = [f"{len(names) - _NAMES} more"] if len(names) > _NAMES else []
        yield ChangeRow(
            kind="run",
            name=", ".join(names) + (f" ({len(rows):,} runs)" if len(rows) > 1 else ""),
            state=rows[0].state,
            user=rows[0].user,
            at=ends[f"run/{run.run_id}"],
            cost_usd=sum(row.cost or 0 for row in rows),
            what="" if alike[0] else finding(run, message_of(look.record, run), vm=vm).why,
            subjects=tuple(f"run/{row.run_id}" for row in rows),
        )


def _machines(look: Look, since: int, user: str | None, cost: Counter[str]) -> Iterator[ChangeRow]:
    rows = []
    for row in look.view.store.vms.all(since=since, hidden=False):
        vm, subject = look.view.state.vms[row.vm_id], f"vm/{row.vm_id}"
        moments = {"vanished": max((at for at in _vanished(vm) if at <= look.now), default=None), "came": vm.created}
        moments["ended"] = None if vm.state is not VmState.TERMINATED else vm.finished_at
        news = {word: at for word, at in moments.items() if at is not None and at >= since}
        if news and is_of(look, subject, user):
            state = max(news)  # vanished, ended, came
            what, whose = "; ".join(_happened(vm, news)), runs_on(vm)[-1:]
            known: Any = look.view.store.runs.columns(whose[0], "user") if whose else None
            name, paid = f"{row.name or row.vm_id[:8]} ({row.gpu})", cost[row.vm_id]
            made = {"name": name.removesuffix(" (none)"), "user": known and known[0], "cost_usd": paid, "what": what}
            rows.append(ChangeRow(kind="machine", state=state, at=news[state], subjects=(subject,), **made))
    yield from sorted(rows, key=lambda row: (row.state != "vanished", -(row.at or 0)))


def _vanished(vm: Vm) -> Iterator[int]:
    """When its provider did not reach it, no longer listed it, or took it away."""
    yield from (silence.since for silence in vm.unreachable)
    yield from (step.at for step in vm.steps if step.after is VmState.UNCONFIRMED)
    yield from () if vm.missing is None else (vm.missing.at,)
    yield from () if vm.finished_at is None or vm.reason not in _VANISHED else (vm.finished_at,)


def _happened(vm: Vm, news: dict[str, int]) -> Iterator[str]:
    for word, at in news.items():
        more = f" ({(vm.reason or VmReason.UNKNOWN_REASON).replace('_', ' ')})" if word == "ended" else ""
        if silence := next((each for each in vm.unreachable if word == "vanished" and each.since == at), None):
            back = silence.until and vm.state is not VmState.TERMINATED
            more = f", {silence}" + (f", answers since {format_second(silence.until or 0)}" if back else "")
        yield f"{word} at {format_second(at)}{more}"
    if "vanished" in news and vm.billed and vm.archive is None:
        yield "still billed"


def _settings(look: Look, since: int) -> Iterator[ChangeRow]:
    """Settings with another value in force, and what somebody changed for all."""
    for act in changed_settings(look, position_before(look, since)):
        what = f"{act.action} {act.name or ''}".rstrip()
        yield ChangeRow(kind="setting", name=act.subject, user=act.who, at=act.at, what=what)
    for source, steps in look.view.state.policies.items():
        for before, step in pairwise(steps):
            if step.at >= since and (what := policy_words(before.policy, step.policy)):
                yield ChangeRow(kind="setting", name=source, at=step.at, what=what)


def policy_words(before: Policy, after: Policy) -> str:
    """`vms.idle_timeout 10m → 5m, vms.max 3 → 5`; empty for equal policies."""
    old, new = _setting_words(before), _setting_words(after)
    pairs = ((name, old.get(name, "off"), new.get(name, "off")) for name in dict.fromkeys((*old, *new)))
    return ", ".join(f"{name} {was} → {now}" for name, was, now in pairs if was != now)


def _setting_words(policy: Policy) -> dict[str, str]:
    """The value of each setting in words, by the name that users write."""
    names = [name for name in Policy.__struct_fields__ if name not in _TABLES]
    words = {_SETTINGS.get(name, f"vms.{name}"): _value(name, getattr(policy, name)) for name in names}
    for limit in policy.limits:
        for key, amount in asdict(limit).items():
            if key != "owner" and amount is not None:
                text = usd(amount) if key in ("budget", "daily") else str(amount)
                text = f"{amount / DOLLAR:g}" if key == "gpu_hours" else text
                words[f"limits.{limit.owner.replace('/', '.', 1)}.{key}"] = text
    for billing in policy.billing:
        words[f"billing.{billing.backend}.minimum"] = _length(billing.minimum)
        words[f"billing.{billing.backend}.granularity"] = _length(billing.granularity)
    return words


def _length(length: int) -> str:
    """As it is written in settings: `10m`, `1h30m`."""
    return duration(length).replace(" ", "")


def _value(name: str, value: Any) -> str:
    if value is None or value == ():
        return "no limit" if name == "max_vms" else "off"
    if name.endswith(("timeout", "patience", "duration")):
        return _length(value)
    if isinstance(value, tuple) and isinstance(value[0], Rate):
        return " ".join(f"{each.gpu} {rate(each.hourly)}".strip() for each in value)
    if name == "thresholds":
        return " ".join(f"{part / 10:g}%" for part in value)
    return usd(value) if name == "budget_total" else str(value)
