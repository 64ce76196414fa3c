"""The runs and the machines of an open store, and apart from the runs the logs of their cases: a scan of these reads
some bytes a run.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from sqlalchemy import bindparam, func, select, text
from sqlalchemy.dialects.sqlite import insert

from steno.engine.money.daily import BilledMachine, MachineDays
from steno.engine.state.facts import firing_row
from steno.projections.read_models.database import Database
from steno.projections.read_models.row_table import RowTable
from steno.projections.read_models.schema import (
    RUN_GOES_ON,
    SHOWN,
    VM_GOES_ON,
    RunRow,
    VmRow,
    gone,
    marks,
    run_values,
    runs,
    vms,
)

_ID: Final = runs.c.run_id == bindparam("id")
_OBJECTS: Final = select(runs.c.run_id, runs.c.packed).where(text("run_id IN (SELECT value FROM json_each(:ids))"))
_AGAINST: Final = select(runs.c.ordinal, runs.c.run_id, runs.c.name, runs.c.user, runs.c.against).where(text(SHOWN))
_STARTS: Final = select(runs.c.start, runs.c.waited).where(  # `+`: not by the index of times
    runs.c.start.is_not(None), runs.c.waited.is_not(None), text(f"{SHOWN} AND +sort_at BETWEEN :since AND :until")
)
_COUNTED: Final = (
    select(runs.c.start, func.count())
    .where(runs.c.start.is_not(None), text("ended = 1 AND archive IS NULL"))
    .group_by(runs.c.start)
)
_OF_PROVIDER: Final = (
    select(runs.c.run_id)
    .where(runs.c.provider_id == bindparam("provider_id"), runs.c.provider == bindparam("provider"))
    .order_by(runs.c.sort_at.desc())
)  # the newest: an id can come again
_TASK: Final = re.compile(r"(.+)\[(\d{1,9})\]")
_ENDED: Final = select(runs.c.state, runs.c.packed).where(_ID, text("ended = 1 AND archive IS NULL"))
_ENDS: Final = select(marks.c.subject).where(text("kind IN ('run_succeeded', 'run_failed', 'run_stopped')"))
_LAST_ENDS: Final = _ENDS.order_by(marks.c.position.desc(), marks.c.ordinal.desc()).limit(bindparam("limit"))
_ENDS_SINCE: Final = _ENDS.where(marks.c.track == text("1"), marks.c.at >= bindparam("since"))
_LIVE_CHANGES: Final = (
    select(runs.c.run_id, runs.c.changed).where(text(f"archive IS NULL AND {SHOWN}")).order_by(text("ordinal"))
)
_VALUE: Final = (
    insert(run_values).values({name: bindparam(name) for name in ("kind", "value", "changed")}).on_conflict_do_nothing()
)
_GONE: Final = insert(gone).values(run_id=bindparam("id")).on_conflict_do_nothing()


NEWEST: Final = "@last"  # in place of a name: the run first seen last; live runs before archived runs


def answer(run: bytes, ran: bytes) -> bytes:
    """The run's object with what it executes as its last key, `ran`, as JSON."""
    return run[:-1] + b',"ran":' + ran + b"}"


class RunTable(RowTable[RunRow]):
    row = RunRow
    table = runs
    key = "run_id"
    live = RUN_GOES_ON
    since = "sort_at"
    paged_by = ("sort_at", "ordinal")

    def put(self, rows: Iterable[RunRow], changed: int = 0) -> None:
        changed_rows = list(rows)
        super().put(changed_rows, changed)
        values = {
            (name, value)
            for row in changed_rows
            for name in ("user", "project", "source")
            if (value := getattr(row, name))
        }
        values |= {
            ("gpu", model) for row in changed_rows for model in row.gpu.split("\n") if model and ":" not in model
        }
        new = ({"kind": kind, "value": value, "changed": changed} for kind, value in sorted(values) if value)
        self._database.execute_many(_VALUE, new)

    def drop(self, ids: Iterable[str], changed: int = 0) -> None:
        """Delete runs that were merged into others."""
        run_ids = list(ids)
        super().drop(run_ids, changed)
        self._database.execute_many(_GONE, ({"id": run_id} for run_id in run_ids))

    def _named(self, name: str) -> RunRow | None:
        if name == NEWEST:
            return self._first(SHOWN)
        # A foreign run may share the name of one waiting in Steno: the name then means Steno's.
        going_on = self._rows(f"name = :word AND {RUN_GOES_ON}", "sort_at DESC, ordinal DESC", word=name)
        named = next((row for row in going_on if not row.is_foreign), None) or super()._named(name)
        # An array has its name in common with its tasks, a schedule with its firings: the name means the whole.
        whole = None if named is None else self._whole(named)
        return named if whole is None else whole

    def _whole(self, part: RunRow) -> RunRow | None:
        """The array of a task, if it was submitted through Steno; the schedule of a firing."""
        if part.part_of is not None:
            return self._first("provider_id = :word AND is_foreign = 0", word=part.part_of)
        row = firing_row(part.provider_id or "")
        return None if row in ("", part.provider_id) else self._first("provider_id = :word", word=row)

    def matching(self, word: str) -> tuple[RunRow, ...]:
        """As of every table, or a task of an array: `NAME[3]`, `ID[3]`."""
        matches = super().matching(word)
        named = None if matches else _TASK.fullmatch(word)
        if named is None:
            return matches
        array = next(((row.part_of or row.provider_id) for row in super().matching(named[1])), named[1])
        task = self._first("part_of = :word AND task = :task", word=array, task=int(named[2]))
        return () if task is None else (task,)

    def tasks(self, array: RunRow) -> list[RunRow]:
        """The tasks of an array, by their number; an earlier array can have had its id."""
        of = {"word": array.provider_id, "provider": array.provider, "at": array.sort_at}
        return list(self._rows("part_of = :word AND provider = :provider AND sort_at = :at", "task", **of))

    def firings(self, schedule: RunRow) -> list[RunRow]:
        """The firings of a schedule, the newest first."""
        of = {"first": f"{schedule.provider_id}#", "last": f"{schedule.provider_id}$", "provider": schedule.provider}
        return list(self._rows("provider_id BETWEEN :first AND :last AND provider = :provider", "sort_at DESC", **of))

    def objects_of(self, ids: Iterable[str]) -> list[tuple[bytes, bytes]]:
        """The runs' objects and what they execute, as JSON, in this order."""
        wanted = list(ids)
        rows = self.unpacked(self._database.execute(_OBJECTS, ids=msgspec.json.encode(wanted).decode()))
        objects = {run_id: (run, ran) for run_id, run, ran, _ in rows}
        return [objects[run_id] for run_id in wanted]

    def against(self) -> list[tuple[int, str, str | None, str | None, bytes | None]]:
        """(place, run id, name, user, `against`) of every run that is not hidden, unordered."""
        return self._database.execute(_AGAINST).fetchall()

    def starts(self, since: int, until: int) -> list[tuple[str, int]]:
        """(cold or warm, microseconds to running) of the visible runs submitted in a range, unordered."""
        return self._database.execute(_STARTS, since=since, until=until).fetchall()

    def start_counts(self) -> dict[str, int]:
        """cold or warm → how many ended runs started so; no archives."""
        return dict(self._database.execute(_COUNTED).fetchall())

    def ended_named(self, name: str, count: int) -> tuple[RunRow, ...]:
        """The ended runs of a name that were first seen last."""
        return tuple(self._rows(f"name = :word AND ended = 1 AND {SHOWN}", "ordinal DESC", limit=count, word=name))

    def ended_on(self, provider: str, gpu: str, count: int) -> tuple[RunRow, ...]:
        """The ended runs of a provider with this `RunRow.gpu` that were first seen last."""
        condition = f"provider = :provider AND gpu = :gpu AND ended = 1 AND {SHOWN}"
        return tuple(self._rows(condition, "ordinal DESC", limit=count, provider=provider, gpu=gpu))

    def live_changes(self) -> list[tuple[str, int]]:
        """(run id, position of its newest change) of every run that is of no archive, by first sight."""
        return self._database.execute(_LIVE_CHANGES).fetchall()

    def of_provider(self, provider: str, provider_id: str) -> str | None:
        """The run id of a provider's id."""
        row = self._database.first(_OF_PROVIDER, provider=provider, provider_id=provider_id)
        return None if row is None else row[0]

    def recent(self, count: int, position: int) -> tuple[RunRow, ...]:
        """The runs first seen last, and those written at a position or later."""
        newest = self._rows(order="ordinal DESC", limit=count)
        return (*newest, *self._rows("changed >= :position", position=position))

    def last_ended(self, count: int) -> tuple[bytes, ...]:
        """The objects of the runs that ended last, newest first."""
        return tuple(row[1] for row in self._ended(_LAST_ENDS, limit=2 * count))[:count]

    def ended_since(self, moment: int) -> Counter[str]:
        """state → the number of runs that ended since a time."""
        return Counter(row[0] for row in self._ended(_ENDS_SINCE, since=moment))

    def _ended(self, ends: Any, **given: int) -> Iterable[tuple[Any, ...]]:
        """(state, object, …) of live runs that ended and have such a mark."""
        subjects = dict.fromkeys(row[0] for row in self._database.execute(ends, **given).fetchall())
        ended = (self._database.first(_ENDED, id=subject.removeprefix("run/")) for subject in subjects)
        return self.unpacked(row for row in ended if row is not None)


_decode_days: Final = msgspec.msgpack.Decoder(MachineDays).decode
_KINDS: Final = select(vms.c.kind, func.max(vms.c.last_at)).group_by(vms.c.kind)
_LIVE: Final = text("archive IS NULL")
_SPENT: Final = select(func.sum(vms.c.cost), func.min(vms.c.created)).where(_LIVE)
_SPANS: Final = select(vms.c.spans).where(_LIVE)
_DAYS: Final = select(vms.c.vm_id, vms.c.name, vms.c.gpu, vms.c.days).where(
    text(f"{SHOWN} AND coalesce(ended_at, :since) >= :since")
)
_LIVE_DAYS: Final = _DAYS.where(_LIVE)
_PAID: Final = select(vms.c.ordinal, vms.c.vm_id, vms.c.name, vms.c.paid, vms.c.archive).where(text(SHOWN))


class VmTable(RowTable[VmRow]):
    row = VmRow
    table = vms
    key = "vm_id"
    live = VM_GOES_ON
    since = "ended_at"
    listed_by = "+ordinal"  # few of many: the indexes find them, and they are sorted

    def _named(self, name: str) -> VmRow | None:
        """The newest of that name; billed machines before those that ended."""
        return self._first("name = :word AND billed = 1", word=name) or super()._named(name)

    def newest(self) -> VmRow | None:
        """The visible machine first seen last; live runs before archived runs."""
        return self._first(SHOWN)

    def kinds(self) -> tuple[VmRow, ...]:
        """The machine of each kind that was seen last."""
        condition = "kind = :kind AND last_at = :last_at"
        pairs = self._database.execute(_KINDS).fetchall()
        return tuple(next(self._rows(condition, limit=1, kind=kind, last_at=last_at)) for kind, last_at in pairs)

    def ended_of(self, kind: str, count: int) -> tuple[VmRow, ...]:
        """The ended machines of a kind that were seen last."""
        condition = "kind = :kind AND ended_at IS NOT NULL"
        return tuple(self._rows(condition, "last_at DESC", limit=count, kind=kind))

    def spent(self) -> tuple[int, int | None]:
        """(micro-dollars of all live machines, time of the first creation)."""
        total, first = self._database.first(_SPENT)
        return total or 0, first

    def spans(self) -> Iterator[bytes]:
        """The spend of every live machine, as `VmRow.spans`."""
        return (row[0] for row in self._database.execute(_SPANS))

    def paid(self) -> list[tuple[int, str, str | None, bytes, str | None]]:
        """(place, vm id, name, encoded `Paid`, archive) of every visible machine, by first sight."""
        return sorted(self._database.execute(_PAID).fetchall(), key=lambda row: row[0])

    def days(self, since: int, *, live: bool = False) -> Iterator[BilledMachine]:
        """The days of every visible machine that did not end before a time; `live`: of no archive."""
        rows = self._database.execute(_LIVE_DAYS if live else _DAYS, since=since).fetchall()
        return (BilledMachine(vm_id, name, gpu, _decode_days(days)) for vm_id, name, gpu, days in rows)


_PUT_LOG = text("INSERT OR REPLACE INTO run_cases (ordinal, cases) SELECT ordinal, :cases FROM runs WHERE run_id = :id")
_DROP_LOG = text("DELETE FROM run_cases WHERE ordinal IN (SELECT ordinal FROM runs WHERE run_id = :id)")
_LOGS = {
    schema: text(
        f"SELECT ordinal, cases FROM {schema}.run_cases WHERE :id IS NULL "  # noqa: S608 - names of ours
        f"OR ordinal = (SELECT ordinal FROM {schema}.runs WHERE run_id = :id) ORDER BY ordinal"
    )
    for schema in ("main", "base")
}
_RUN_AT = {schema: text(f"SELECT run_id FROM {schema}.runs WHERE ordinal = :place") for schema in ("main", "base")}  # noqa: S608 - names of ours


class CaseTable:
    """The logs (`case_log`) of the runs of an open store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = "main"

    def stand_on(self, schema: str) -> None:
        """Read the logs of the attached store: they are longer, and no entry of them changes."""
        self._schema = schema

    def put(self, logs: Iterable[tuple[str, bytes]]) -> None:
        """Insert or replace the logs of runs that have rows."""
        self._database.execute_many(_PUT_LOG, ({"id": run_id, "cases": log} for run_id, log in logs))

    def drop(self, run_ids: Iterable[str]) -> None:
        """Delete the logs of runs whose rows are about to be deleted."""
        self._database.execute_many(_DROP_LOG, ({"id": run_id} for run_id in run_ids))

    def all(self, run_id: str | None = None) -> Iterator[tuple[int, bytes]]:
        """(place of the run, its log), in order of first sight; only of `run_id`, if given."""
        return self._database.execute(_LOGS[self._schema], id=run_id)

    def run_id(self, place: int) -> str:
        """The run at a place."""
        run_id: str = self._database.first(_RUN_AT[self._schema], place=place)[0]
        return run_id
