"""The submission of a kernel over HTTP."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from anyio import to_thread

from engine.kernel.definition import Wrong
from engine.kernel.executor import OneTask, Terms
from engine.kernel.submission import read_submission
from engine.settings.values import positive_duration
from events.clock import SECOND
from events.poll import MAX_DEPTH, too_deep
from events.shape.secrets import PREFIX
from projections.api import submission
from projections.api.problems import Problem

if TYPE_CHECKING:
    from engine.act.journal import Journal
    from engine.commands.submit import AcceptedRequest
    from engine.kernel.executor import KernelExecutor
    from engine.kernel.submission import KernelSubmission
    from projections.api.service import Service, Writer


def executor_of(service: Service) -> KernelExecutor:
    """What carries kernels out, as the settings have it."""
    settings = service.settings
    return OneTask(
        Terms(
            image=settings.value("kernel.image") or "",
            compiler=settings.value("kernel.compiler") or "auto",
            max_duration=positive_duration(settings.value("kernel.max_duration") or "10m") // SECOND,
        )
    )


async def submit(service: Service, writer: Writer, body: bytes, *, submitter: str, key: str | None) -> AcceptedRequest:
    """Submit the kernel of a request; the same key with the same body is the same run.

    Raises:
        Problem: 400, the body is not valid JSON; 422, with the field that is wrong.
        Conflict: the key came with another request.
        RefusedByPolicy: nothing was appended.
    """
    kernel = await to_thread.run_sync(_read, body)

    async def build(sent: submission.HttpSubmission, run_id: str) -> submission.HttpSubmission:
        secret = await writer.do(lambda journal: _secret(journal, run_id))
        return await to_thread.run_sync(_ordered, service, kernel, sent, run_id, secret)

    source = msgspec.json.encode(kernel)
    sent = submission.HttpSubmission(
        name=None, project=None, configuration={}, submitter=submitter, key=key, source=source
    )
    return await submission.submit(service, writer, sent, build)


def _read(body: bytes) -> KernelSubmission:
    if too_deep(body):
        raise Problem(400, f"the body nests deeper than {MAX_DEPTH}", field="body")
    try:
        return read_submission(body)
    except Wrong as wrong:
        status = 422 if wrong.field else 400
        raise Problem(status, wrong.detail, field=wrong.field or "body") from None


def _secret(journal: Journal, run_id: str) -> str:
    """The secret that marks this run's frames: nobody without the vault's key can know it beforehand."""
    return journal.record.vault.commitment(f"kernel/{run_id}".encode()).removeprefix(PREFIX)


def _ordered(
    service: Service, kernel: KernelSubmission, sent: submission.HttpSubmission, run_id: str, secret: str
) -> submission.HttpSubmission:
    try:
        order = executor_of(service).order(kernel, secret)
    except Wrong as wrong:
        raise Problem(422, wrong.detail, field=wrong.field) from None
    name, mark = _name(kernel.problem, run_id), msgspec.json.encode(order.mark)
    return replace(sent, name=name, configuration=order.configuration, kernel=mark)


def _name(problem: str, run_id: str) -> str:
    """The problem's name and 12 digits unique to the run."""
    words = re.sub("[^a-z0-9]+", "-", problem.lower()).strip("-")
    words = words if words[:1].isalpha() else f"kernel-{words}".strip("-")
    return f"{words[:28].rstrip('-')}-{run_id.replace('-', '').lower()[-12:]}"
