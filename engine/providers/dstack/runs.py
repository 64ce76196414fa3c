"""Runs at a dstack server: submit, find, look, stop."""

from collections.abc import Iterator
from pathlib import Path

from engine.errors import NameInUse, ProviderError, RunNotFound, TaskInvalid
from engine.fold.clock_skew import skew_of
from engine.providers.base import Named, Submission, Submitted
from engine.providers.dstack.answer import MOST_PAGES, rows, trouble
from engine.providers.dstack.client import Client
from engine.providers.dstack.task import normal_task, wording
from engine.providers.dstack.uploads import upload_all
from engine.providers.dstack.words import MARK
from engine.providers.naming import check_name
from events.clock import SECOND, parse_time

FINISHED = frozenset({"terminated", "failed", "done"})
"""Words of `run.status` after which nothing happens any more."""
PAGE = 100
"""Rows of a page; dstack's limit."""


def submit(client: Client, submission: Submission) -> Submitted:
    """Upload what the task takes along and start it, once.

    Raises:
        NameInUse: an active run has the name.
        TaskInvalid, ProjectNotFound, ProviderUnreachable, ProviderRefused, ProviderError: as they say.
    """
    name = check_name(submission.name)
    base = Path(submission.base) if submission.base is not None else Path.cwd()
    taken = upload_all(client, submission.configuration, base)
    specification: dict[str, object] = {
        "run_name": name,
        "configuration": wording(submission),
        **taken.repo,
    }
    if taken.file_archives:
        specification["file_archives"] = taken.file_archives
    plan = {"plan": {"run_spec": specification, "current_resource": None}, "force": False}
    answer = client.ask(client.address.path("runs/apply"), plan, again=False)
    if not answer.ok:
        error = trouble(answer, client.address.url, client.address.project, "submit the task")
        if isinstance(error, TaskInvalid) and (there := holder(client, name)) is not None and not there.ended:
            raise NameInUse(f"an active run is named {name}; stop it first, or choose another name")
        raise error
    run = answer.json()
    if not isinstance(run, dict) or not isinstance(run.get("id"), str):
        raise ProviderError(f"{client.address.url} took the task but answered no run; is it a dstack server?")
    return Submitted(provider_id=run["id"], name=name, submitted_at=time_of(run.get("submitted_at")))


def find(client: Client, name: str, since: int) -> tuple[Named, ...]:
    """The runs of that name submitted at or after `since` (our clock), ended or deleted or not, newest first.

    The server's times are shifted where the two clocks are certainly apart (`engine.fold.clock_skew`).
    """
    found = []
    for run, skew in _newest_first(client):
        submitted = time_of(run.get("submitted_at"))
        if submitted is None:
            continue
        submitted -= skew
        # `Date` has whole seconds: a run that seems up to a second early may be ours
        if submitted < since - SECOND:
            break
        if _specification(run).get("run_name") == name:
            found.append(_named(run, submitted))
    return tuple(found)


def holder(client: Client, name: str) -> Named | None:
    """The run of that name, unless it is deleted: dstack refuses a second one while it goes on, and deletes it after.

    Raises:
        ProjectNotFound, ProviderUnreachable, ProviderRefused, ProviderError: as they say.
    """
    try:
        return _named(_run(client, {"run_name": name}, "look up the name"))
    except RunNotFound:
        return None


def is_same(client: Client, submission: Submission, provider_id: str) -> bool:
    """Whether that run has the configuration that this submission would have, and is the token's own user's."""
    try:
        run = get(client, provider_id, "compare the run")
    except RunNotFound:
        return False
    me = client.ask("/api/users/get_my_user").json()
    if not isinstance(me, dict) or me.get("username") is None or me["username"] != run.get("user"):
        return False
    theirs = _specification(run).get("configuration")
    if not isinstance(theirs, dict):
        return False
    try:
        return _comparable(theirs) == _comparable(wording(submission))
    except (ValueError, TypeError, AttributeError, KeyError):  # of a version whose configurations we cannot read
        return False


def get(client: Client, provider_id: str, what: str) -> dict[str, object]:
    """The run of that id, deleted ones too.

    Raises:
        RunNotFound: dstack has no such run.
        ProjectNotFound, ProviderUnreachable, ProviderRefused, ProviderError: as they say.
    """
    return _run(client, {"id": provider_id}, what)


def stop(client: Client, provider_id: str, abort: bool) -> None:
    """End the run of that id, unless it has ended; a later run of the same name is never touched.

    dstack stops by name. Among runs that have not ended a name is unique: it is ours as long as our run has not.
    """
    run = get(client, provider_id, "stop the run")
    if str(run.get("status")) in FINISHED:
        return
    name = _specification(run).get("run_name")
    if not isinstance(name, str):
        raise ProviderError(f"{client.address.url} shows run {provider_id} without a name; cannot stop it")
    newest = _run(client, {"run_name": name}, "stop the run")
    if newest.get("id") != provider_id:
        return
    answer = client.ask(client.address.path("runs/stop"), {"runs_names": [name], "abort": abort})
    if not answer.ok:
        raise trouble(answer, client.address.url, client.address.project, "stop the run")


def _run(client: Client, request: dict[str, object], what: str) -> dict[str, object]:
    answer = client.ask(client.address.path("runs/get"), request)
    if not answer.ok:
        raise trouble(answer, client.address.url, client.address.project, what, gone=RunNotFound)
    run = answer.json()
    if not isinstance(run, dict) or not isinstance(run.get("id"), str):
        raise ProviderError(f"cannot {what}: {client.address.url} answered no run; is it a dstack server?")
    return run


def _comparable(task: dict[str, object]) -> dict[str, object]:
    """A task with what a server fills in by itself, and without tags: two that mean the same are equal."""
    normal = normal_task({**task, "tags": None})
    resources = normal.get("resources")
    gpu = resources.get("gpu") if isinstance(resources, dict) else None
    if isinstance(gpu, dict) and gpu.get("name"):
        gpu.pop("vendor", None)  # 0.22.5 adds it to a model's name, 0.19.37 does not
    return {**normal, "nodes": normal.get("nodes") or 1, "priority": normal.get("priority") or 0}


def _named(run: dict[str, object], submitted_at: int | None = None) -> Named:
    configuration = _specification(run).get("configuration")
    tags = configuration.get("tags") if isinstance(configuration, dict) else None
    mark = tags.get(MARK) if isinstance(tags, dict) else None
    return Named(
        provider_id=str(run["id"]),
        mark=mark if isinstance(mark, str) else None,
        ended=str(run.get("status")) in FINISHED,
        submitted_at=submitted_at,
    )


def _specification(run: dict[str, object]) -> dict[str, object]:
    found = run.get("run_spec")
    return found if isinstance(found, dict) else {}


def _newest_first(client: Client) -> Iterator[tuple[dict[str, object], int]]:
    """Every run of the project, with how far the server's clock is ahead of ours (microseconds)."""
    request: dict[str, object] = {"project_name": client.address.project, "limit": PAGE}
    known: set[str] = set()
    for _ in range(MOST_PAGES):
        answer = client.ask("/api/runs/list", request)
        if not answer.ok:
            raise trouble(answer, client.address.url, client.address.project, "look for the run")
        page = rows(answer)
        if page is None:
            raise ProviderError(
                f"cannot look for the run: {client.address.url} answered no list; is it a dstack server?"
            )
        at = answer.server_time
        skew = 0 if at is None else skew_of(at, answer.started_at, answer.observed_at)
        for run in page:
            yield run, skew
        if len(page) < PAGE:
            return
        ids = {str(run["id"]) for run in page}
        if ids <= known:
            break
        known |= ids
        request |= {"prev_submitted_at": page[-1].get("submitted_at"), "prev_run_id": page[-1]["id"]}
    # not "no such run": the task would be submitted once more
    raise ProviderError(f"cannot look for the run: the list of runs of {client.address.url} does not end")


def time_of(text: object) -> int | None:
    """A time of dstack's (microseconds, UTC); None if it is not readable."""
    if not isinstance(text, str):
        return None
    try:
        return parse_time(text)
    except ValueError:
        return None
