"""Requests that one record answers: passed on unchanged but for the record's name, which the answer repeats."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from projections.api.bodies import JSON
from projections.api.problems import Problem
from projections.api.service import Outside, Service
from projections.site.finder import holder, taker
from projections.site.pages import naming
from projections.site.places import is_places
from projections.site.site import RECORD, Member, RecordSet

HEADER: Final = b"steno-record"


def passed_to(member: Member) -> ASGIApp:
    """The application that answers a request as this record alone does."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        own = [
            (key, place) for key, value in pairs if key != RECORD and (place := _own(member, key, value)) is not None
        ]
        await member.app({**scope, "query_string": urlencode(own).encode()}, receive, _Named(member.name, send).send)

    return answer


def _own(member: Member, key: str, value: str) -> str | None:
    """A parameter as this record takes it: of a position of each record, its own; None: it waits for none of it."""
    if key not in ("at", "min_position", "after") or not is_places(value):
        return value
    found = dict(one.split(":") for one in value.split(","))
    if member.name not in found and key != "min_position":
        raise Problem(400, f"{key} is {value[:60]!r}, which names no position of {member.name}", field=key)
    return found.get(member.name)


class _Named:
    """Adds the record to an answer: as a header, and as the first key of a JSON object."""

    def __init__(self, name: str, send: Send) -> None:
        self._name = name
        self._send = send
        self._start: Message | None = None

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), (HEADER, self._name.encode())]}
            kind = dict(message["headers"]).get(b"content-type")
            if kind == JSON.encode() and message["status"] < 300:
                self._start = message  # its length is known with the body
                return
        elif self._start is not None and message["type"] == "http.response.body":
            start, self._start = self._start, None
            body = message.get("body", b"")
            if body.startswith(b"{") and not body.startswith(b"{}"):
                body = naming(self._name, body)
            length = b"%d" % len(body)
            headers = [(key, length if key == b"content-length" else value) for key, value in start["headers"]]
            await self._send({**start, "headers": headers})
            message = {**message, "body": body}
        await self._send(message)


def by_id(site: RecordSet, kind: str) -> Callable[[Request], Any]:
    """The endpoint of a run, a machine or a kernel."""

    async def endpoint(request: Request) -> ASGIApp:
        member = site.asked(request)
        if member is None:
            member = await to_thread.run_sync(holder, site, kind, request.path_params["id"])
        return passed_to(member)

    return endpoint


def by_name(site: RecordSet, why: str) -> Callable[[Request], Any]:
    """The endpoint of what is of one record only, which the request has to name."""

    async def endpoint(request: Request) -> ASGIApp:
        member = site.asked(request)
        if member is None:
            raise site.choose(why)
        return passed_to(member)

    return endpoint


def of_first(site: RecordSet) -> Callable[[Request], Any]:
    """The endpoint of what is the same for all records, or kept beside the first: the tokens."""

    async def endpoint(_: Request) -> ASGIApp:
        return site.first.app

    return endpoint


def by_source(site: RecordSet, outside: Callable[[Service], Outside]) -> Callable[[Request], Any]:
    """The endpoint of submissions, and of what goes where they go."""

    async def endpoint(request: Request) -> ASGIApp:
        member = site.asked(request)
        if member is not None:
            return passed_to(member)
        message = await request.receive() if request.method == "POST" else {"body": b""}
        member = await to_thread.run_sync(taker, site, outside, _project(message.get("body", b"")))
        passed = passed_to(member)
        waiting = [message] if request.method == "POST" else []

        async def again(scope: Scope, receive: Receive, send: Send) -> None:
            async def received() -> Message:
                return waiting.pop() if waiting else await receive()

            await passed(scope, received, send)

        return again

    return endpoint


def _project(body: bytes) -> str | None:
    """The project that a submission names; of a body that is wrong none: its record says what is."""
    try:
        found = msgspec.json.decode(body)
    except msgspec.MsgspecError:
        return None
    project = found.get("project") if isinstance(found, dict) else None
    return project if isinstance(project, str) and project else None
