"""Facts of a record that schemathesis cannot know: its end and its contents. Loaded by test_openapi.py."""

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import schemathesis

KNOWN: dict[str, Any] = json.loads(Path(os.environ["STENO_KNOWN"]).read_text())
"""`head`, `first_at` and `last_at` of the record, ids of its `runs` and `vms`."""


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: dict[str, Any]) -> None:
    """Bring moments of valid requests into the record's life, and let half of the requests be about existing things."""
    if case.meta is None or case.meta.generation.mode.value != "positive":
        return
    query, path = case.query or {}, case.path_parameters or {}
    at = query.get("at")
    if isinstance(at, int):
        query["at"] = at % KNOWN["head"] + 1
    elif isinstance(at, str):
        query["at"] = KNOWN["first_at"] if len(at) % 2 else KNOWN["last_at"]
    if at is None:  # `known` is about a moment, and not before it
        query.pop("known", None)
    elif "known" in query:
        query["known"] = KNOWN["head"] if isinstance(query["known"], int) else "now"
    if isinstance(query.get("min_position"), int):
        query["min_position"] %= KNOWN["head"] + 1
    if case.path in {
        "/api/runs",
        "/api/changes",
        "/api/incidents",
        "/api/costs",
    }:  # of this record and this list: a schema cannot say which values those are
        for name in ("cursor", "user", "project", "gpu", "machine", "source"):
            query.pop(name, None)
    ranged = {
        "/api/costs",
        "/api/record",
        "/api/spend",
        "/api/utilisation",
        "/api/starts",
        "/api/waste",
        "/api/changes",
        "/api/incidents",
    }
    if case.path in ranged and "since" in query:  # not after the end
        query["since"] = KNOWN["first_at"]
        query.pop("until", None)
    if "from" in query:  # not after `to`
        query.pop("to", None)
    word = path.get("id")
    if isinstance(word, str) and not unquote(word).isprintable():  # refused in every path; a schema cannot say it
        path["id"] = word = "nobody"
    if isinstance(word, str) and len(word) % 2:
        known = KNOWN["vms" if "/vms/" in case.path else "runs"]
        path["id"] = known[sum(word.encode()) % len(known)]
    if isinstance(path.get("position"), int):
        path["position"] = path["position"] % KNOWN["head"] + 1
