"""The OpenAPI document of a site: that of one record, with `record` and positions of several."""

import copy
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from projections.api.bodies import read_answer
from projections.api.openapi import document
from projections.api.parameters import asked_of
from projections.site.places import AFTER, AT, CURSOR, MIN_POSITION
from projections.site.reads import MERGED
from projections.site.site import RECORD

_ABOUT: Final = (
    " This service has several records. Each row names its `record`; a position is one of each record, `a:12,b:30`; "
    "`records` says where each stands, and why one is left out. With the parameter `record` an answer is that record's "
    "alone."
)
_STREAM: Final = "/api/stream"
_FIXED: Final = ("/api/tokens", "/api/session", "/api/amd/schema", "/api/amd/problems")
_OF_ALL: Final = {one.name: one.described() for one in (AT, MIN_POSITION, CURSOR)}
_RECORDS: Final = {
    "type": "array",
    "description": "Where each record stands, and why one is left out.",
    "items": {
        "type": "object",
        "required": ["record", "position", "trouble"],
        "properties": {
            "record": {"type": "string"},
            "position": {"type": ["integer", "null"]},
            "trouble": {"type": ["string", "null"]},
        },
    },
}


def endpoint_of(parts: Sequence[Any], names: tuple[str, ...]) -> Any:
    """The endpoint of `/openapi.json`."""

    @cache
    def body() -> bytes:
        return msgspec.json.encode(site_document(parts, names))

    async def endpoint(request: Request) -> Response:
        asked_of(request, ())
        return read_answer(request, body())

    return endpoint


def site_document(parts: Sequence[Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The document of these parts over the records `names`."""
    found: dict[str, Any] = copy.deepcopy(document(parts))
    found["info"]["description"] += _ABOUT
    record = {
        "name": RECORD,
        "in": "query",
        "required": False,
        "description": "Of this record alone.",
        "schema": {"type": "string", "enum": list(names)},
    }
    for path, operations in found["paths"].items():
        if not path.startswith("/api/"):
            continue
        for method, one in operations.items():
            if path == _STREAM:
                one["parameters"] = [AFTER.described(), *(_last(given) for given in one["parameters"][1:])]
            if not path.startswith(_FIXED):
                one["parameters"] = [*one["parameters"], record]
            if path in MERGED and method == "get":
                one["parameters"] = [_OF_ALL.get(given["name"], given) for given in one["parameters"]]
                _merge(found, one)
    opened: dict[str, Any] = _open(found)
    return opened


def _last(given: dict[str, Any]) -> dict[str, Any]:
    return {**given, "schema": {"type": "string"}, "description": "The id of the last message received."}


def _merge(found: dict[str, Any], operation: dict[str, Any]) -> None:
    """The answer of a merged read: the same object with positions as text."""
    answer = operation["responses"]["200"]
    answer.get("headers", {}).pop("Steno-Position", None)
    answer.setdefault("headers", {})["Steno-Position"] = {
        "description": "The position of each record that the answer shows.",
        "schema": {"type": "string"},
    }
    content = answer["content"]["application/json"]
    name = content["schema"]["$ref"].rpartition("/")[2]
    schemas = found["components"]["schemas"]
    own = copy.deepcopy(schemas[name])
    text = {"type": "string", "description": "A position of each record."}
    own["properties"] |= {
        key: text for key in ("position", "head", "checkpoint") if key in own["properties"] or key == "position"
    }
    own["properties"]["records"] = _RECORDS
    if "hash" in own["properties"]:
        own["properties"]["hash"] = {"type": "null"}
    own["required"] = [*own.get("required", ()), "records"]
    content["schema"] = {"$ref": f"#/components/schemas/Site{name}"}
    schemas[f"Site{name}"] = own


def _open(value: Any) -> Any:
    """Objects may have more keys: their record."""
    if isinstance(value, dict):
        return {key: _open(one) for key, one in value.items() if not (key == "additionalProperties" and one is False)}
    return [_open(one) for one in value] if isinstance(value, list) else value
