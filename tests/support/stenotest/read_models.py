"""What read models say, in the form of a replay, for tests that compare the two."""

import msgspec
from sqlalchemy import select

from engine.fold.tick import Until
from engine.replay.record import replay_record
from events.store.record import Record
from projections.models.view import View
from projections.store.schema import moments
from projections.store.store import ProjectionStore


def said(store: ProjectionStore) -> dict[str, object]:
    """Everything a store tells its readers, as `steno replay --json` tells it."""
    view = View(store)
    return {
        "runs": [msgspec.json.decode(row.object) for row in store.runs.all()],
        "vms": [msgspec.json.decode(row.object) for row in store.vms.all()],
        "anomalies": [msgspec.json.decode(one) for one in store.anomalies()],
        "position": view.position,
    }


def kept_moments(store: ProjectionStore) -> list[int]:
    """The positions whose world is kept, ascending."""
    return [row[0] for row in store.execute(select(moments.c.position).order_by(moments.c.position))]


def replayed(record: Record, until: int | None = None) -> dict[str, object]:
    """The same from a replay of the record."""
    found = replay_record(record, until=None if until is None else Until(position=until)).to_json()
    return {
        "runs": found["runs"],
        "vms": found["vms"],
        "anomalies": found["anomalies"],
        "position": record.head().position if until is None else until,
    }
