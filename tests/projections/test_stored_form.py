"""Rows of the read models hold JSON of public objects, so a new key of an object is a new form of the file."""

import hashlib
import json
from typing import Any

import msgspec

from steno.engine.money.daily import MachineDays
from steno.engine.objects import BlindObject, RanObject, RunObject, VmObject
from steno.engine.state.changes import Anomaly
from steno.projections.read_models.cost_rows import Against, Paid
from steno.projections.read_models.schema import VERSION, ddl

FORM = (23, "b39a4d8262f444ae")
"""`VERSION` of projections/read_models/schema.py, and the digest of the form that it stands for."""


def without_prose(schema: Any) -> Any:
    """A JSON Schema without its descriptions."""
    match schema:
        case dict():
            return {
                name: without_prose(inner)
                for name, inner in schema.items()
                if not (name == "description" and isinstance(inner, str))
            }
        case list() | tuple():
            return [without_prose(inner) for inner in schema]
    return schema


def test_another_form_of_rows_has_another_version() -> None:
    """Else an upgraded site serves old objects until each run changes: raise VERSION, then write both into FORM."""
    stored = (RunObject, RanObject, VmObject, Anomaly, BlindObject, Against, Paid, MachineDays)
    form = json.dumps([sorted(ddl().split(";")), without_prose(msgspec.json.schema_components(stored))], sort_keys=True)
    assert (VERSION, hashlib.sha256(form.encode()).hexdigest()[:16]) == FORM
