"""A kernel's request on its way into the record."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec
from anyio import to_thread

from engine.kernel.definition import Wrong
from engine.kernel.executor import OneTask, Terms
from engine.kernel.submission import read_submission
from engine.settings.values import positive_duration
from events.clock import SECOND
from events.secrets import PREFIX
from events.shape.depth import MAX_DEPTH, too_deep
from projections.api import submission
from projections.api.problems import Problem

if TYPE_CHECKING:
    from engine.act.journal import Journal
    from engine.commands.idempotency import Accepted, Key
    from engine.kernel.executor import Executor
    from engine.kernel.submission import Submission
    from projections.api.service import Service
    from projections.api.writing import Writer


def executor_of(service: Service) -> Executor:
    """What carries kernels out, as the settings have it."""
    settings = service.settings
    return OneTask(
        Terms(
            image=settings.value("kernel.image") or "",
            compiler=settings.value("kernel.compiler") or "auto",
            max_duration=positive_duration(settings.value("kernel.max_duration") or "10m") // SECOND,
        )
    )


async def submit(service: Service, writer: Writer, body: bytes, *, submitter: str, key: str | None) -> Accepted:
    """The run that a request asks for, in the record; the same key with the same body is the same run.

    Raises:
        Problem: 400, the body is no JSON; 422, with the field that is wrong; 409, the key came with something else.
        RefusedByPolicy: nothing was appended.
    """
    asked = await to_thread.run_sync(_read, body)
    said = submission.Submission(
        name=None, project=None, configuration={}, submitter=submitter, key=key, asked=msgspec.json.encode(asked)
    )
    identity, before = await writer.do(lambda journal: submission.repeated(said, journal))
    if before is not None:
        return before
    run_id = service.ids.new() if identity is None else identity.run_id
    secret = await writer.do(lambda journal: _secret(journal, run_id))
    wanted = await to_thread.run_sync(_ordered, service, asked, said, run_id, secret)
    task = await to_thread.run_sync(submission.completed, service, wanted, run_id)
    project = await to_thread.run_sync(submission.project_of, service, wanted)
    run: tuple[str, str, Key | None] = (run_id, project, identity)
    accepted = await writer.do(lambda journal: submission.accept(service, journal, wanted, task, run))
    service.projector.wake()
    return accepted


def _read(body: bytes) -> Submission:
    if too_deep(body):
        raise Problem(400, f"the body nests deeper than {MAX_DEPTH}", field="body")
    try:
        return read_submission(body)
    except Wrong as wrong:
        status = 422 if wrong.field else 400
        raise Problem(status, wrong.detail, field=wrong.field or "body") from None


def _secret(journal: Journal, run_id: str) -> str:
    """What the frames of this run are known by: nobody without the vault's key can say it before they do."""
    return journal.record.vault.commitment(f"kernel/{run_id}".encode()).removeprefix(PREFIX)


def _ordered(
    service: Service, asked: Submission, said: submission.Submission, run_id: str, secret: str
) -> submission.Submission:
    try:
        order = executor_of(service).order(asked, secret)
    except Wrong as wrong:
        raise Problem(422, wrong.detail, field=wrong.field) from None
    return submission.Submission(
        name=_name(asked.problem, run_id),
        project=None,
        configuration=order.configuration,
        submitter=said.submitter,
        key=said.key,
        asked=said.asked,
        kernel=msgspec.json.encode(order.mark),
    )


def _name(problem: str, run_id: str) -> str:
    """The problem's, and 12 digits that no other run has."""
    words = re.sub("[^a-z0-9]+", "-", problem.lower()).strip("-")
    words = words if words[:1].isalpha() else f"kernel-{words}".strip("-")
    return f"{words[:28].rstrip('-')}-{run_id.replace('-', '').lower()[-12:]}"
