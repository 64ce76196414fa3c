"""The cloud's account of a project's machines, to compare with Steno's."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from stenolab.lab import Lab


def bills_of(lab: Lab, project: str) -> list[dict[str, Any]]:
    """The cloud's bills of that project's machines, oldest first."""
    return [bill for bill in lab.cloud.bills() if f"-{project}-" in bill["name"]]


def most_at_once(bills: Iterable[dict[str, Any]]) -> int:
    """How many machines lived at one moment at most, by the cloud's own account."""
    steps = sorted(
        step for bill in bills for step in ((bill["created"], 1), (bill["deleted"] or float("inf"), -1))
    )  # at one moment an end comes before a beginning
    living = most = 0
    for _, change in steps:
        living += change
        most = max(most, living)
    return most


def bill_of(lab: Lab, project: str, provider_id: str) -> dict[str, Any]:
    """The cloud's bill of the machine that dstack knows by that id: at the same address, alive at the same time."""
    row = next(row for row in lab.instances(project) if row["id"] == provider_id)
    (bill,) = [bill for bill in bills_of(lab, project) if bill["ip"] == row["hostname"]]
    return bill


def seconds(moment: str) -> float:
    """A time of a run or machine object as seconds since the epoch."""
    return datetime.fromisoformat(moment).timestamp()


def micros(amount: str) -> int:
    """Dollars with six decimals as micro-dollars."""
    whole, _, part = amount.partition(".")
    assert len(part) == 6, amount
    return int(whole) * 1_000_000 + int(part)


def of_kind(vm: dict[str, Any], *phases: str) -> list[dict[str, Any]]:
    """The machine's intervals of these phases, in order."""
    return [interval for interval in vm["intervals"] if interval["phase"] in phases]
