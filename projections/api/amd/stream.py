"""Kernels over HTTP: submission and its statuses as server-sent events, from wherever a client was."""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import Final

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from engine.commands.submit import AcceptedRequest
from engine.kernel.definition import Wrong
from engine.kernel.executor import Terms, order_of
from engine.kernel.submission import KernelSubmission, read_submission
from engine.providers.task import choose_name
from events.clock import SECOND
from events.errors import StenoError
from events.shape.secrets import PREFIX
from projections.api import submission
from projections.api.amd.story import Story
from projections.api.bodies import expect_json
from projections.api.commands import stop_run
from projections.api.feed.feed import BEAT
from projections.api.feed.listener import Listener
from projections.api.parameters import asked_of, idempotency_key
from projections.api.problems import Problem
from projections.api.roles import Caller
from projections.api.service import Service, Writer
from projections.api.streams import LAST_EVENT_ID, expect_ready, expect_there, last_event_id, run_named, send_stream

_PATIENCE: Final = 30.0
"""Seconds until the feed must know what was just appended."""
_log = logging.getLogger(__name__)


class Submit:
    """POST /api/amd/submit."""

    def __init__(self, service: Service, writer: Writer) -> None:
        self._service = service
        self._writer = writer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        service, request = self._service, Request(scope, receive)
        asked_of(request, ())
        key = idempotency_key(request)
        expect_json(request)
        submitter = _submitter(service, scope["steno.caller"])
        accepted = await _submit(service, self._writer, await request.body(), submitter=submitter, key=key)
        await service.feed.beyond(accepted.position, _PATIENCE)
        headers = [(b"steno-position", b"%d" % accepted.position), (b"steno-run-id", accepted.run_id.encode())]
        if not isolated(service):
            headers.append((b"steno-isolation", b"none"))
        story = Story(service, accepted.run_id)
        left = await _tell(service, story, scope, receive, send, *headers)
        if left and not story.over and service.settings.value("kernel.cancel_on_close") == "true":
            await asyncio.shield(self._stop(accepted.run_id, submitter))

    async def _stop(self, run_id: str, submitter: str) -> None:
        try:
            await stop_run(self._service, self._writer, run_id, abort=False, submitter=submitter)
        except StenoError as error:
            _log.warning("kernel %s was left and could not be stopped: %s", run_id, error)


class Resume:
    """GET /api/amd/runs/{id}/stream."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, feed = Request(scope), self._service.feed
        asked_of(request, ())
        after = last_event_id(request) or 0
        await expect_ready(feed)
        await expect_there(feed, after, LAST_EVENT_ID)
        await feed.beyond(await to_thread.run_sync(feed.head), 2.0)
        run_id = await to_thread.run_sync(run_named, self._service, request.path_params["id"])
        await _tell(self._service, Story(self._service, run_id, after), scope, receive, send)


async def _tell(
    service: Service, story: Story, scope: Scope, receive: Receive, send: Send, *headers: tuple[bytes, bytes]
) -> bool:
    """Send the statuses up to the last; whether the client went before that.

    Raises:
        RunNotFound: nothing was sent.
    """
    with service.feed.listening(None, scope["steno.abort"]) as listener:
        news = await to_thread.run_sync(story.news)
        return await send_stream(scope, receive, send, listener, _statuses(service, listener, story, news), *headers)


async def _statuses(
    service: Service, listener: Listener, story: Story, news: list[tuple[int, bytes]]
) -> AsyncGenerator[bytes]:
    """Each status as soon as the feed moves on, and the feed's heartbeats."""
    async with aclosing(service.feed.pieces(listener)) as pieces:
        while True:
            for position, data in news:
                yield b"id: %d\ndata: %b\n\n" % (position, data)
            piece = None if story.over else await anext(pieces, None)
            if piece is None:
                return
            if piece == BEAT:
                yield BEAT
            news = await to_thread.run_sync(story.news)


def isolated(service: Service) -> bool:
    """Whether a kernel runs apart from this service: not on `local`, where it is a process of the same user."""
    return service.outside.provider != "local"


def _submitter(service: Service, who: Caller) -> str:
    """The name of whoever may submit kernels.

    Raises:
        Problem: 403, this one may not: here a kernel could read the record, and whatever else the service's user may.
    """
    unsafe = service.settings.value("kernel.unsafe_local") == "true"
    if not (isolated(service) or unsafe or who.via == "loopback"):
        raise Problem(
            403,
            "the provider is local: a kernel would run as the service's user, not isolated. Only who is on its machine "
            "may submit one, without a token. Use another provider, or set kernel.unsafe_local = true",
        )
    return who.name


async def _submit(service: Service, writer: Writer, body: bytes, *, submitter: str, key: str | None) -> AcceptedRequest:
    """Submit the kernel of a request; the same key with the same body is the same run.

    Raises:
        Problem: 400, the body is not valid JSON; 422, with the field that is wrong.
        Conflict: the key came with another request.
        RefusedByPolicy: nothing was appended.
    """
    kernel = await to_thread.run_sync(_read, body)

    async def build(sent: submission.HttpSubmission, run_id: str) -> submission.HttpSubmission:
        # the secret that marks this run's frames: nobody without the vault's key can know it beforehand
        name = f"kernel/{run_id}".encode()
        secret = await writer.do(lambda journal: journal.record.vault.commitment(name).removeprefix(PREFIX))
        return await to_thread.run_sync(_ordered, service, kernel, sent, run_id, secret)

    source = msgspec.json.encode(kernel)
    sent = submission.HttpSubmission(
        name=None, project=None, configuration={}, submitter=submitter, key=key, source=source
    )
    return await submission.submit(service, writer, sent, build)


def _read(body: bytes) -> KernelSubmission:
    try:
        return read_submission(body)
    except Wrong as wrong:
        status = 422 if wrong.field else 400
        raise Problem(status, wrong.detail, field=wrong.field or "body") from None


def _ordered(
    service: Service, kernel: KernelSubmission, sent: submission.HttpSubmission, run_id: str, secret: str
) -> submission.HttpSubmission:
    settings = service.settings
    terms = Terms(
        image=settings.parsed("kernel.image"),
        compiler=settings.parsed("kernel.compiler"),
        max_duration=settings.parsed("kernel.max_duration") // SECOND,
    )
    try:
        order = order_of(kernel, secret, terms)
    except Wrong as wrong:
        raise Problem(422, wrong.detail, field=wrong.field) from None
    stem = kernel.problem if kernel.problem[0].isalpha() else f"kernel-{kernel.problem}"
    name, mark = choose_name(run_id, stem), msgspec.json.encode(order.mark)
    return replace(sent, name=name, configuration=order.configuration, kernel=mark)
