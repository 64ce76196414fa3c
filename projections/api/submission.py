"""A run asked for over HTTP: checked as its provider would check it, held against policy, then in the record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from engine.commands.idempotency import Accepted, Key, accept_run, accepted_before, afford, key_of, refuse_taken_name
from engine.errors import TaskInvalid
from engine.fold.queries import policy_of
from events.clock import SECOND
from projections.api.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine.act.journal import Journal
    from projections.api.outside import Completed
    from projections.api.service import Service

_PATIENCE = SECOND
"""How long a submission waits for the feed to know of the ones before it, microseconds."""
_STEP = SECOND // 200
_FROM_HERE = {
    "files": "files of the server are not taken along; put what the task needs into its image or its commands",
    "repos": "repositories of the server are not taken along; clone them in the task's commands",
}
_FIELD = "configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What a request asks for; secret values are in clear and in memory only."""

    name: str | None
    project: str | None
    configuration: dict[str, object]
    submitter: str
    key: str | None
    """Its Idempotency-Key."""
    asked: bytes | None = None
    """What its sender wrote, where the configuration was made of that here."""
    kernel: bytes | None = None
    """The mark of a task whose output is to be read."""

    def body(self) -> bytes:
        """What is asked for, in one form."""
        if self.asked is not None:
            return self.asked
        return msgspec.json.encode([self.name, self.project, self.configuration], order="sorted")


def repeated(submission: Submission, journal: Journal) -> tuple[Key | None, Accepted | None]:
    """(the key of a submission, what it led to when it came first).

    Raises:
        Problem: 409, the key came with something else.
    """
    if submission.key is None:
        return None, None
    key = key_of(journal, submitter=submission.submitter, text=submission.key, body=submission.body())
    return key, accepted_before(journal, key)


def completed(service: Service, submission: Submission, run_id: str) -> Completed:
    """The task as its provider will take it. Reads nothing of this machine; importing dstack takes a second once.

    Raises:
        Problem: 422, with the field that is wrong.
    """
    configuration = dict(submission.configuration)
    _refuse_what_is_here(configuration)
    _refuse_zero_bytes(configuration, _FIELD)
    if submission.name is not None:
        configuration["name"] = submission.name
    try:
        return service.outside.complete(configuration, run_id=run_id, where=_FIELD)
    except TaskInvalid as error:
        raise Problem(422, str(error), field=_field_of(str(error))) from None


def project_of(service: Service, submission: Submission) -> str:
    """Whose run it will be at the provider.

    Raises:
        Problem: 404, nobody records that project, so nobody would hand the run over.
    """
    own, wanted = service.outside.project(), submission.project
    if wanted is None or wanted == own:
        return own
    with service.feed.state() as state:
        sources = tuple(state.sources)
    if f"{service.outside.provider}/{wanted}" not in sources:
        known = ", ".join(sorted({own, *(name.partition("/")[2] for name in sources if "/" in name)}))
        raise Problem(404, f"nobody records the project {wanted[:60]!r}; there are: {known}", field="project")
    return wanted


def accept(
    service: Service, journal: Journal, submission: Submission, task: Completed, run: tuple[str, str, Key | None]
) -> Accepted:
    """Hold a task against budget and cap, and append its request. For the writer's thread.

    Args:
        run: its id, its project, and its key.

    Raises:
        RefusedByPolicy, NameInUse: nothing was appended.
        Conflict: the key came with something else meanwhile.
    """
    run_id, project, key = run
    provider = service.outside.provider
    _wait_for_feed(service, journal.record.head().position)
    with service.feed.state() as state:
        source = f"{provider}/{project}"
        policy = policy_of(state, source) if source in state.policies else service.outside.policy()
        refuse_taken_name(state, source, task.name, service.clock.now())
        afford(task.configuration, submission.submitter, policy, state, service.clock.now())
    return accept_run(
        journal,
        run_id=run_id,
        provider=provider,
        project=project,
        name=task.name,
        configuration=task.configuration,
        submitter=submission.submitter,
        key=key,
        kernel=submission.kernel,
    )


def _wait_for_feed(service: Service, head: int) -> None:
    """Until the engine's world has the requests that were accepted just before: each counts against the budget."""
    end = service.clock.now() + _PATIENCE
    while service.feed.position < head and service.clock.now() < end:
        service.clock.sleep(_STEP)


def _refuse_what_is_here(configuration: Mapping[str, object]) -> None:
    """Refuse what `steno submit` would take from the machine it runs on: here that is the server.

    Raises:
        Problem: 422.
    """
    for name, why in _FROM_HERE.items():
        if configuration.get(name):
            raise Problem(422, why, field=f"{_FIELD}.{name}")
    env = configuration.get("env")
    unset: str | None = None
    if isinstance(env, list):
        unset = next((f"env[{n}]" for n, one in enumerate(env) if isinstance(one, str) and "=" not in one), None)
    elif isinstance(env, dict):
        unset = next((f"env.{name}" for name, value in env.items() if value is None), None)
    if unset is not None:
        said = "a variable without a value would be the server's own: write NAME=value"
        raise Problem(422, said, field=f"{_FIELD}.{unset}")


def _refuse_zero_bytes(value: object, field: str) -> None:
    """No program can be given one, and no database of a provider's keeps it.

    Raises:
        Problem: 422.
    """
    match value:
        case str() if "\0" in value:
            raise Problem(422, "it holds a zero byte", field=field)
        case dict():
            for name, one in value.items():
                _refuse_zero_bytes(name, field)
                _refuse_zero_bytes(one, f"{field}.{name}")
        case list():
            for index, one in enumerate(value):
                _refuse_zero_bytes(one, f"{field}[{index}]")


def _field_of(message: str) -> str:
    """The field that a refusal of a task names, in backticks, as ours and dstack's do; else the whole task."""
    if message.startswith("invalid name "):
        return f"{_FIELD}.name"
    before, mark, rest = message.removeprefix(f"{_FIELD}: ").partition("`")
    name, closed, _ = rest.partition("`")
    if not mark or not closed or len(before) > len("unknown field ") or " " in name:
        return _FIELD
    return f"{_FIELD}.{name.partition(':')[0]}"
