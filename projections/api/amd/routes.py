"""The routes under /api/amd: kernels, their statuses as server-sent events, and what a front end asks."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, Final

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from steno.engine.decide.budget import Metrics
from steno.engine.errors import NotIsolated, RefusedByPolicy
from steno.engine.kernel.definition import DTYPES, Wrong
from steno.engine.kernel.executor import OfferedProblem
from steno.engine.kernel.executor import offered as offered_problems
from steno.engine.kernel.submission import ENDPOINTS, GPUS, KernelSubmission, Payload, read_submission
from steno.engine.providers.kind import KernelRights
from steno.engine.providers.registry import kind
from steno.engine.providers.task import Draft
from steno.engine.submit.kernel_orders import expect_isolation, kernel_draft
from steno.engine.submit.requests import AcceptedRequest
from steno.events.errors import StenoError
from steno.events.store.vault import Vault
from steno.projections.api import submission
from steno.projections.api.amd.statuses import StatusObject, Story
from steno.projections.api.bodies import expect_json, read_answer
from steno.projections.api.commands import stop_run
from steno.projections.api.feed.feed import BEAT
from steno.projections.api.feed.listener import Listener
from steno.projections.api.openapi import EVENTS, Operation, Reply, routed
from steno.projections.api.parameters import KEY_HEADER, asked_of, idempotency_key
from steno.projections.api.problems import Problem
from steno.projections.api.reads.money import policy_at
from steno.projections.api.service import Service, Writer
from steno.projections.api.streams import GONE, known_position, last_event_header, run_named, send_stream

_TIMEOUT: Final = 30.0  # seconds until the feed must know what was just appended
_log = logging.getLogger(__name__)


async def _tell(
    service: Service, story: Story, scope: Scope, receive: Receive, send: Send, *headers: tuple[bytes, bytes]
) -> bool:
    """Send the statuses up to the last; returns whether the client left before. If `RunNotFound` is raised, nothing was
    sent.
    """
    with service.feed.listening(None, scope["steno.abort"]) as listener:
        news = await to_thread.run_sync(story.news)
        return await send_stream(scope, receive, send, listener, _statuses(service, listener, story, news), *headers)


async def _statuses(
    service: Service, listener: Listener, story: Story, news: list[tuple[bytes, bytes]]
) -> AsyncGenerator[bytes]:
    """Each status as soon as the feed advances, and the feed's heartbeats."""
    async with aclosing(service.feed.pieces(listener)) as pieces:
        while True:
            for sent_id, data in news:
                yield b"id: %b\ndata: %b\n\n" % (sent_id, data)
            piece = None if story.over else await anext(pieces, None)
            if piece is None:
                return
            if piece == BEAT:
                yield BEAT
            news = await to_thread.run_sync(story.news)


def isolated(service: Service) -> bool:
    """True if kernels are isolated from this service: not as tasks of `local`, processes of the same user."""
    return kind(service.kernels).kernels is KernelRights.ISOLATED


def _refusal(service: Service) -> Problem | None:
    """Why no kernel can be submitted now: 403 by the settings, 503 if this host lacks what it takes to isolate it."""
    try:
        with service.feed.state() as state:
            expect_isolation(service.settings, service.kernels, state)
    except NotIsolated as error:
        return Problem(503, str(error))
    except RefusedByPolicy as error:
        return Problem(403, str(error))
    return None


async def _submit(service: Service, writer: Writer, body: bytes, *, submitter: str, key: str | None) -> AcceptedRequest:
    """Submit a kernel; the same key and body mean the same run. Raises `Problem` (400 invalid JSON, 422 invalid field),
    `Conflict` (the key was used with another body), `RefusedByPolicy` (nothing was appended).
    """
    kernel = await to_thread.run_sync(_read, body)
    if (refusal := await to_thread.run_sync(_refusal, service)) is not None:
        raise refusal

    def draft(run_id: str) -> Draft:
        vault = Vault(service.store.blob("vault"))
        try:
            return kernel_draft(kernel, run_id, vault, service.settings, service.kernels, submission.FIELD)
        except Wrong as wrong:
            raise Problem(422, wrong.detail, field=wrong.field) from None

    content, to = msgspec.json.encode(kernel), service.kernels
    return await submission.submit(
        service, writer, draft, provider=to, content=content, submitter=submitter, key_text=key
    )


def _read(body: bytes) -> KernelSubmission:
    try:
        return read_submission(body)
    except Wrong as wrong:
        status = 422 if wrong.field else 400
        raise Problem(status, wrong.detail, field=wrong.field or "body") from None


class Problems(msgspec.Struct, frozen=True, kw_only=True):
    """The values that a submission can have."""

    problems: tuple[OfferedProblem, ...]
    dtypes: tuple[str, ...]
    endpoints: tuple[str, ...]
    gpus: tuple[str, ...]
    isolated: bool
    """False: a kernel runs as the service's user, with its files and its network. Submit only your own code."""
    refused: str | None
    """Why the service refuses every kernel now; null: it does not."""


def routes(service: Service) -> list[BaseRoute]:
    writer = Writer(service)
    offered = Problems(
        problems=offered_problems(),
        dtypes=DTYPES,
        endpoints=ENDPOINTS,
        gpus=GPUS,
        isolated=isolated(service),
        refused=None,
    )
    published = msgspec.json.encode(schema())

    async def submit(request: Request) -> ASGIApp:
        asked_of(request, ())
        key = idempotency_key(request)
        expect_json(request)
        submitter: str = request.scope["steno.caller"].name
        accepted = await _submit(service, writer, await request.body(), submitter=submitter, key=key)
        await service.feed.beyond(accepted.position, _TIMEOUT)
        headers = [(b"steno-position", b"%d" % accepted.position), (b"steno-run-id", accepted.run_id.encode())]
        if not isolated(service):
            headers.append((b"steno-isolation", b"none"))
        story = Story(service, accepted.run_id)

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            left = await _tell(service, story, scope, receive, send, *headers)
            if left and not story.over and service.settings.value("kernel.cancel_on_close") == "true":
                stopping = stop_run(service, writer, accepted.run_id, abort=False, submitter=submitter)
                try:
                    await asyncio.shield(stopping)
                except StenoError as error:
                    _log.warning("kernel %s was left and could not be stopped: %s", accepted.run_id, error)

        return answer

    async def resume(request: Request) -> Callable[..., Awaitable[bool]]:
        asked_of(request, ())
        after = await known_position(request, service.feed) or 0
        await service.feed.beyond(await to_thread.run_sync(service.feed.head), 2.0)
        run_id = await to_thread.run_sync(run_named, service, request.path_params["id"])
        return partial(_tell, service, Story(service, run_id, after))

    async def fixed(request: Request) -> Response:
        asked_of(request, ())
        return read_answer(request, published, service.feed.position)

    async def offers(request: Request) -> Response:
        asked_of(request, ())
        refusal = await to_thread.run_sync(_refusal, service)
        now = msgspec.structs.replace(offered, refused=None if refusal is None else refusal.detail)
        return read_answer(request, msgspec.json.encode(now), service.feed.position)

    async def figures(request: Request) -> Response:
        asked_of(request, ())
        metrics, position = await to_thread.run_sync(_figures, service)
        return read_answer(request, msgspec.json.encode(metrics), position)

    return routed(OPERATIONS, submit, resume, figures, fixed, offers)


def schema() -> dict[str, Any]:
    payload: dict[str, Any] = msgspec.json.schema(Payload)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **payload}


def _figures(service: Service) -> tuple[Metrics, int]:
    with service.pool.now() as look:
        return look.view.figures(policy_at(service, look.view.state), look.now), look.position


_STATUSES: Final = "Server-sent events until the final status"
OPERATIONS: Final = (
    Operation(
        "POST /api/amd/submit",
        "Check and benchmark a kernel; the answer streams its statuses, and the first one has the run_id",
        "kernels",
        {200: Reply(f"{_STATUSES}; closing the stream does not stop the run.", StatusObject, EVENTS)},
        name="submitKernel",
        description="With the provider `local` kernels run in containers of this host; without a Docker engine they "
        "are refused (503). With `kernel.unsafe_local = true` they run as the service's user, not isolated, and the "
        "answer has `Steno-Isolation: none`.",
        parameters=(KEY_HEADER,),
        body=Payload,
    ),
    Operation(
        "GET /api/amd/runs/{id}/stream",
        "The statuses of a kernel, from its submission or after a given position",
        "kernels",
        {200: Reply(f"{_STATUSES}.", StatusObject, EVENTS), 410: GONE},
        name="followKernel",
        parameters=(last_event_header("status"),),
    ),
    Operation(
        "GET /api/amd/metrics",
        "Figures for a front end",
        "kernels",
        {200: Reply("Seven figures.", Metrics)},
        name="kernelMetrics",
    ),
    Operation(
        "GET /api/amd/schema",
        "The JSON Schema of the submit body, `problem_def` included",
        "kernels",
        {200: Reply("A schema.", dict[str, Any])},
        name="kernelSchema",
    ),
    Operation(
        "GET /api/amd/problems",
        "The shipped problems, data types, endpoints and GPUs",
        "kernels",
        {200: Reply("The problems.", Problems)},
        name="kernelProblems",
    ),
)
