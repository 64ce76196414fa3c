"""The content of read models in the form of a replay, for tests that compare the two."""

import msgspec
from sqlalchemy import select

from steno.engine.fold.poll_reader import Until
from steno.engine.replay.replay import replay_record
from steno.events.store.record import Record
from steno.projections.read_models.schema import moments
from steno.projections.read_models.store import ProjectionStore
from steno.projections.read_models.view import View


def said(store: ProjectionStore) -> dict[str, object]:
    """Everything a store tells its readers, as `steno replay --json` tells it."""
    view = View(store)
    return {
        "runs": [msgspec.json.decode(row.object) for row in store.runs.all()],
        "vms": [msgspec.json.decode(row.object) for row in store.vms.all()],
        "anomalies": [msgspec.to_builtins(anomaly) for anomaly in store.anomalies()],
        "position": view.position,
    }


def kept_moments(store: ProjectionStore) -> list[int]:
    """The positions whose world is kept, ascending."""
    return [row[0] for row in store.execute(select(moments.c.position).order_by(moments.c.position))]


def replayed(record: Record, until: int | None = None) -> dict[str, object]:
    """The same from a replay of the record."""
    replay = replay_record(record, until=None if until is None else Until(position=until)).to_json()
    return {
        "runs": replay["runs"],
        "vms": replay["vms"],
        "anomalies": replay["anomalies"],
        "position": record.head().position if until is None else until,
    }
