"""Runs, machines, anomalies and blind times as the JSON objects of the public interface, every key always present."""

from itertools import groupby
from typing import Any

from engine.fold.change import Anomaly, Blind, Transition
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.money.bill import Bill, Interval
from engine.rules.sets import RuleSet
from events.clock import SECOND, format_time

JsonObject = dict[str, Any]


def run_object(run: Run, rules: RuleSet, cost: int | None = None) -> JsonObject:
    """One run; `cost` is ours (`engine.money.charge.run_costs`), micro-dollars, None where unknown.

    Machines are facts under every rule set, but a rule set that knows no costs shows none, neither dstack's nor ours.
    """
    found = {
        "run_id": run.run_id,
        "provider_id": run.provider_id,
        "name": run.name,
        "provider": run.provider,
        "state": run.state.value,
        "reason": None if run.reason is None else run.reason.value,
        "exit_status": run.exit_status if rules.metadata else None,
        "rule": run.rule,
        "evidence": list(run.evidence),
        "reported": {
            "status": run.reported.status,
            "reason": run.reported.reason,
            "jobs": [
                {"status": job.status, "reason": job.reason, "exit_status": job.exit_status}
                for job in run.reported.jobs
            ],
        },
        "attempts": run.attempts,
        "vm_id": run.vm_id,
        "start": run.start,
        "submitted_at": _time(run.submitted_at if run.submitted_at is not None else run.requested_at),
        "started_at": _time(run.started_at),
        "finished_at": _time(run.finished_at),
        "execution_seconds": execution_seconds(run),
        "cost_usd": money(cost) if rules.metadata else None,
        "provider_cost_usd": money(run.cost) if rules.metadata else None,
        "transitions": [transition_object(step) for step in run.transitions],
    }
    return _marked(found, run.archive)


def vm_object(vm: Vm, bill: Bill) -> JsonObject:
    """One machine with its bill. Parts of one phase at one price are one interval, whoever was on it; where the last
    one is open its `to` is null, and it is costed to the last poll.
    """
    intervals = [list(parts) for _, parts in groupby(bill.intervals, key=lambda one: (one.phase, one.hourly))]
    found = {
        "vm_id": vm.vm_id,
        "provider_id": vm.provider_id,
        "name": vm.facts.name,
        "state": vm.state.value,
        "reason": None if vm.reason is None else vm.reason.value,
        "price_usd_per_hour": money(bill.hourly),
        "runs": list(vm.runs),
        "cost_usd": money(bill.cost),
        "cost_low_usd": money(bill.low),
        "cost_high_usd": money(bill.high),
        "intervals": [interval_object(parts) for parts in intervals],
        "source": vm.source,
    }
    return _marked(found, vm.archive)


def _marked(found: JsonObject, archive: str | None) -> JsonObject:
    """With `archive`, where an archive alone shows it; nothing live has that key."""
    return found if archive is None else found | {"archive": archive}


def interval_object(parts: list[Interval]) -> JsonObject:
    """Parts of a machine's life that follow one another in one phase."""
    return {
        "phase": parts[0].phase.value,
        "from": format_time(parts[0].since),
        "to": _time(parts[-1].until),
        "cost_usd": money(sum(part.cost for part in parts)),
    }


def transition_object(step: Transition) -> JsonObject:
    """One move of a run."""
    return {
        "position": step.position,
        "at": format_time(step.at),
        "from": step.before.value,
        "to": step.after.value,
        "rule": step.rule,
    }


def anomaly_object(anomaly: Anomaly) -> JsonObject:
    """One anomaly."""
    return {
        "kind": anomaly.kind.value,
        "subject": anomaly.subject,
        "position": anomaly.position,
        "detail": anomaly.detail,
    }


def blind_object(blind: Blind) -> JsonObject:
    """One time in which a source was not seen; `to` is null where it has not answered again."""
    return {"source": blind.source, "from": format_time(blind.since), "to": _time(blind.until)}


def execution_seconds(run: Run) -> float | None:
    """From the first poll that showed the last attempt running to its end, never below zero; None where either is
    unknown.
    """
    if run.started_at is None or run.finished_at is None:
        return None
    return max(0, run.finished_at - run.started_at) / SECOND


def money(amount: int | None) -> str | None:
    """Micro-dollars as dollars with six decimals."""
    if amount is None:
        return None
    sign = "-" if amount < 0 else ""
    return f"{sign}{abs(amount) // 1_000_000}.{abs(amount) % 1_000_000:06d}"


def _time(moment: int | None) -> str | None:
    return None if moment is None else format_time(moment)
