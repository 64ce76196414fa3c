"""A submission over HTTP: completed without values of this machine, admitted by the newest world, then recorded."""

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import msgspec
from anyio import to_thread

from steno.engine.errors import TaskInvalid
from steno.engine.live.journal import Journal
from steno.engine.providers import registry
from steno.engine.providers.kind import ProviderKind
from steno.engine.providers.task import Completed, Draft
from steno.engine.state.policy import Policy
from steno.engine.state.world import World
from steno.engine.submit.completion import completed
from steno.engine.submit.requests import AcceptedRequest, Key, accepted_before, key_of, policy_in_force
from steno.engine.submit.requests import submit as submit_task
from steno.events.clock import SECOND
from steno.projections.api.problems import Problem
from steno.projections.api.service import Service, Writer

FIELD = "configuration"  # of the body: a task's name in messages
_TIMEOUT = SECOND  # wait for the feed to reach earlier submissions
_STEP = SECOND // 200
_OF_THE_SERVER = {
    "files": "`files` would be read on the server's machine; put what the task needs into its image or its commands",
    "repos": "`repos` would be read on the server's machine; clone them in the task's commands",
}


def content_of(name: str | None, project: str | None, configuration: Mapping[str, object]) -> bytes:
    """The content of a request for a run, in canonical form."""
    return msgspec.json.encode([name, project, configuration], order="sorted")


async def submit(
    service: Service,
    writer: Writer,
    draft: Callable[[str], Draft],
    *,
    provider: str,
    project: str | None = None,
    content: bytes,
    submitter: str,
    key_text: str | None,
) -> AcceptedRequest:
    """Complete, admit and append a submission, or find the run of an earlier one with the same key. Raises `Problem`
    (404, 422 with the field), `Conflict` (key used with another request), `RefusedByPolicy` or `NameInUse` (nothing was
    appended). `draft` gives the task of a run id, in a worker thread; its secret values are in clear, in memory only.
    `content` is what the Idempotency-Key `key_text` is bound to; `project`: None for the one of the settings.
    """
    key, before = None, None
    if key_text is not None:
        key, before = await writer.do(partial(_earlier, submitter=submitter, text=key_text, content=content))
    if before is not None:
        return before
    run_id = service.ids.new() if key is None else key.run_id
    task = await to_thread.run_sync(_completed, service, provider, draft, run_id)
    there = await to_thread.run_sync(_project_of, service, provider, project)

    def append(journal: Journal) -> AcceptedRequest:
        return submit_task(
            journal,
            run_id=run_id,
            provider=provider,
            project=there,
            task=task,
            submitter=submitter,
            key=key,
            newest=lambda: _newest(service, f"{provider}/{there}", journal.record.head().position),
        )

    accepted = await writer.do(append)
    service.feed.live.nudge()
    return accepted


def _earlier(journal: Journal, **sent: Any) -> tuple[Key, AcceptedRequest | None]:
    key = key_of(journal, **sent)
    return key, accepted_before(journal, key)


@cache
def _warm(provider: str) -> ProviderKind:
    """The provider, with the imports that check a task: up to 30 MB, so only on submission."""
    kind = registry.kind(provider)
    kind.warm_up()
    gc.freeze()
    return kind


def _completed(service: Service, provider: str, draft: Callable[[str], Draft], run_id: str) -> Completed:
    """The complete task, without values of this machine; the first call may import for a second."""
    task, kind = draft(run_id), _warm(provider)
    _refuse_server_values(task.configuration)
    _refuse_zero_bytes(task.configuration, FIELD)
    try:
        return completed(kind, task, service.settings, run_id=run_id)
    except TaskInvalid as error:
        raise Problem(422, str(error).removeprefix("--"), field=_field_of(str(error))) from None


def _project_of(service: Service, provider: str, wanted: str | None) -> str:
    own = registry.kind(provider).project(service.settings)
    if wanted is None or wanted == own:
        return own
    with service.feed.state() as state:
        sources = tuple(state.sources)
    if f"{provider}/{wanted}" not in sources:
        known = ", ".join(sorted({own, *(name.partition("/")[2] for name in sources if "/" in name)}))
        raise Problem(404, f"nobody records the project {wanted[:60]!r}; known projects: {known}", field="project")
    return wanted


@contextmanager
def _newest(service: Service, source: str, head: int) -> Iterator[tuple[World, Policy, int]]:
    """The world, once it includes the requests just accepted: each counts against the budget."""
    end = service.clock.now() + _TIMEOUT
    while service.feed.position < head and service.clock.now() < end:
        service.clock.sleep(_STEP)
    with service.feed.state() as state:
        yield state, policy_in_force(state, source, service.settings), service.clock.now()


def _refuse_server_values(configuration: Mapping[str, object]) -> None:
    """Refuse what `steno submit` would take from its machine: over HTTP that is the server."""
    for name, why in _OF_THE_SERVER.items():
        if configuration.get(name):
            raise Problem(422, why, field=f"{FIELD}.{name}")
    env = configuration.get("env")
    unset: str | None = None
    if isinstance(env, list):
        unset = next((f"env[{n}]" for n, entry in enumerate(env) if isinstance(entry, str) and "=" not in entry), None)
    elif isinstance(env, dict):
        unset = next((f"env.{name}" for name, value in env.items() if value is None), None)
    if unset is not None:
        why = "a variable without a value would come from the server: write NAME=value"
        raise Problem(422, why, field=f"{FIELD}.{unset}")


def _refuse_zero_bytes(value: object, field: str) -> None:
    """Refuse zero bytes: no program accepts one as an argument, and no provider's database stores one."""
    match value:
        case str() if "\0" in value:
            raise Problem(422, "it contains a zero byte", field=field)
        case dict():
            for name, inner in value.items():
                _refuse_zero_bytes(name, field)
                _refuse_zero_bytes(inner, f"{field}.{name}")
        case list():
            for index, inner in enumerate(value):
                _refuse_zero_bytes(inner, f"{field}[{index}]")


def _field_of(message: str) -> str:
    """The field that an error about a task names in backticks; else the whole task."""
    if message.startswith("invalid name "):
        return f"{FIELD}.name"
    before, mark, rest = message.removeprefix(f"{FIELD}: ").partition("`")
    name, closed, _ = rest.partition("`")
    if not mark or not closed or len(before) > len("unknown field ") or " " in name:
        return FIELD
    return f"{FIELD}.{name.partition(':')[0]}"
