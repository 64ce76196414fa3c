"""A submission over HTTP: completed by its provider's rules, admitted by the policy, then recorded."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec
from anyio import to_thread

from engine.commands.submit import (
    AcceptedRequest,
    Key,
    accepted_before,
    admit,
    key_of,
    policy_in_force,
    refuse_taken_name,
    request_run,
)
from engine.errors import TaskInvalid
from engine.live.journal import Journal
from engine.providers.task import Completed
from events.clock import SECOND
from projections.api.problems import Problem
from projections.api.service import Outside, Service, Writer

Build = Callable[["HttpSubmission", str], Awaitable["HttpSubmission"]]

_TIMEOUT = SECOND  # wait for the feed to reach earlier submissions
_STEP = SECOND // 200
_OF_THE_SERVER = {
    "files": "`files` would be read on the server's machine; put what the task needs into its image or its commands",
    "repos": "`repos` would be read on the server's machine; clone them in the task's commands",
}
_FIELD = "configuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSubmission:
    """A request for a run; holds secret values in clear, in memory only."""

    name: str | None
    project: str | None
    configuration: dict[str, object]
    submitter: str
    key: str | None  # its Idempotency-Key
    stem: str | None = None  # how a generated name begins
    fallback: tuple[str, ...] = ()  # GPU models of later submissions
    sizes: Mapping[str, object] | None = None  # that change a recorded task
    source: bytes | None = None  # what the sender wrote, if the configuration was built from that
    kernel: bytes | None = None  # the mark of a task whose output is read

    def body(self) -> bytes:
        if self.source is not None:
            return self.source
        return msgspec.json.encode([self.name, self.project, self.configuration], order="sorted")


async def submit(
    service: Service,
    writer: Writer,
    submission: HttpSubmission,
    build: Build | None = None,
    outside: Outside | None = None,
) -> AcceptedRequest:
    """Complete, admit and append a submission, or find the run of an earlier one with the same key. `build` makes the
    configuration for a run id; `outside`: another provider than the service's. Raises `Problem` (404, 422 with the
    field), `Conflict` (key used with another request), `RefusedByPolicy` or `NameInUse` (nothing was appended).
    """

    outside = outside or service.outside
    provider = outside.provider

    def earlier(journal: Journal) -> tuple[Key, AcceptedRequest | None]:
        text = submission.key or ""
        key = key_of(journal, submitter=submission.submitter, text=text, body=submission.body())
        return key, accepted_before(journal, key)

    key, before = (None, None) if submission.key is None else await writer.do(earlier)
    if before is not None:
        return before
    run_id = service.ids.new() if key is None else key.run_id
    wanted = submission if build is None else await build(submission, run_id)
    task = await to_thread.run_sync(_completed, outside, wanted, run_id)
    project = await to_thread.run_sync(_project_of, service, outside, wanted)

    def append(journal: Journal) -> AcceptedRequest:
        source = f"{provider}/{project}"

        def admitted() -> int:
            _wait_for_feed(service, journal.record.head().position)
            now = service.clock.now()
            with service.feed.state() as state:
                policy = policy_in_force(state, source, service.settings)
                refuse_taken_name(state, provider, project, task.name, run_id, now)
                admit(provider, task, wanted.submitter, policy, state, now)
                return state.position

        return request_run(
            journal,
            run_id=run_id,
            provider=provider,
            project=project,
            task=task,
            submitter=wanted.submitter,
            kernel=wanted.kernel,
            key=key,
            check=admitted,
        )

    accepted = await writer.do(append)
    service.projector.hurry()
    service.feed.live.nudge()
    return accepted


def _completed(outside: Outside, submission: HttpSubmission, run_id: str) -> Completed:
    """The complete task. Reads nothing of this machine; the first call may spend a second on imports."""
    configuration = dict(submission.configuration)
    _refuse_server_values(configuration)
    _refuse_zero_bytes(configuration, _FIELD)
    if submission.name is not None:
        configuration["name"] = submission.name
    try:
        stem, fallback, sizes = submission.stem, submission.fallback, submission.sizes
        return outside.complete(configuration, run_id=run_id, where=_FIELD, stem=stem, fallback=fallback, sizes=sizes)
    except TaskInvalid as error:
        raise Problem(422, str(error).removeprefix("--"), field=_field_of(str(error))) from None


def _project_of(service: Service, outside: Outside, submission: HttpSubmission) -> str:
    own, wanted = outside.project(), submission.project
    if wanted is None or wanted == own:
        return own
    with service.feed.state() as state:
        sources = tuple(state.sources)
    if f"{outside.provider}/{wanted}" not in sources:
        known = ", ".join(sorted({own, *(name.partition("/")[2] for name in sources if "/" in name)}))
        raise Problem(404, f"nobody records the project {wanted[:60]!r}; there are: {known}", field="project")
    return wanted


def _wait_for_feed(service: Service, head: int) -> None:
    """Wait until the world includes the requests just accepted: each counts against the budget."""
    end = service.clock.now() + _TIMEOUT
    while service.feed.position < head and service.clock.now() < end:
        service.clock.sleep(_STEP)


def _refuse_server_values(configuration: Mapping[str, object]) -> None:
    """Refuse what `steno submit` would take from its machine: over HTTP that is the server."""
    for name, why in _OF_THE_SERVER.items():
        if configuration.get(name):
            raise Problem(422, why, field=f"{_FIELD}.{name}")
    env = configuration.get("env")
    unset: str | None = None
    if isinstance(env, list):
        unset = next((f"env[{n}]" for n, one in enumerate(env) if isinstance(one, str) and "=" not in one), None)
    elif isinstance(env, dict):
        unset = next((f"env.{name}" for name, value in env.items() if value is None), None)
    if unset is not None:
        why = "a variable without a value would come from the server: write NAME=value"
        raise Problem(422, why, field=f"{_FIELD}.{unset}")


def _refuse_zero_bytes(value: object, field: str) -> None:
    """Refuse zero bytes: no program accepts one as an argument, and no provider's database stores one."""
    match value:
        case str() if "\0" in value:
            raise Problem(422, "it contains a zero byte", field=field)
        case dict():
            for name, one in value.items():
                _refuse_zero_bytes(name, field)
                _refuse_zero_bytes(one, f"{field}.{name}")
        case list():
            for index, one in enumerate(value):
                _refuse_zero_bytes(one, f"{field}[{index}]")


def _field_of(message: str) -> str:
    """The field that an error about a task names in backticks; else the whole task."""
    if message.startswith("invalid name "):
        return f"{_FIELD}.name"
    before, mark, rest = message.removeprefix(f"{_FIELD}: ").partition("`")
    name, closed, _ = rest.partition("`")
    if not mark or not closed or len(before) > len("unknown field ") or " " in name:
        return _FIELD
    return f"{_FIELD}.{name.partition(':')[0]}"
