"""The endpoints whose answers are read: what a poll asked, how its answer is cut, and whether it is an answer.

dstack's REST API from 0.19.37 to 0.22.5, and the paths under which older records have what the local provider answered
in the same words. `path` and request alone decide.
"""

import re
from typing import Any, Final

import msgspec

from engine.providers.dstack.lenient import at
from engine.providers.reading import Listing, Scope
from events.shape.shape import BodyShape

_RUNS_LIST: Final = "runs/list"
_RUNS_GET: Final = "runs/get"
_INSTANCES_LIST: Final = "instances/list"
_FLEETS_LIST: Final = "fleets/list"
_FLEETS_GET: Final = "fleets/get"
_EVENTS_LIST: Final = "events/list"

_LISTING: Final = {
    _RUNS_LIST: Listing.RUNS,
    _RUNS_GET: Listing.RUN,
    _INSTANCES_LIST: Listing.VMS,
    _EVENTS_LIST: Listing.EVENTS,
}
_LISTS: Final = frozenset({_RUNS_LIST, _INSTANCES_LIST, _FLEETS_LIST, _EVENTS_LIST})
_THINGS: Final = frozenset({_RUNS_GET, _FLEETS_GET})
_PAGE: Final = 100
"""dstack's default and greatest `limit` of runs."""
_MACHINES_PAGE: Final = 1000
"""dstack's default `limit` of machines."""
MOST_ITEMS: Final = 10_000
"""Items of a server's answer: a page that we ask for has 100, and each new item becomes a stream of the record."""

_PROJECT_PATH: Final = re.compile(r"^/api/project/([^/]+)/(runs/list|runs/get|fleets/list|fleets/get|instances/list)$")
_ROOT_PATH: Final = re.compile(r"^/api/(runs/list|instances/list|fleets/list|events/list)$")
_LOCAL_PATH: Final = re.compile(r"^/local/(runs/list|runs/get|instances/list)$")
_ANY_PROJECT: Final = re.compile(r"^/api/project/([^/]+)/")
_NOT_EXISTS: Final = "resource_not_exists"

_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


class _Identity(msgspec.Struct):
    id: str


_identity = msgspec.json.Decoder(_Identity)


# -- what was asked --------------------------------------------------------------------------------------------------


def scope_of(path: str, req: bytes) -> Scope | None:
    """What a poll asked. Paths of any other form are dstack's too: older records hold them."""
    if not path.startswith("/"):
        return None
    asked = _mapping(req)
    project = _project_of(asked)
    if path.startswith("/local/"):
        former = _LOCAL_PATH.match(path)
        return None if former is None else _scope_of("local", former[1], project, asked)
    if (found := _PROJECT_PATH.match(path)) is not None:
        return _scope_of("dstack", found[2], found[1], asked)
    if (found := _ROOT_PATH.match(path)) is not None:
        return _scope_of("dstack", found[1], project, asked)
    project = found[1] if (found := _ANY_PROJECT.match(path)) is not None else project
    return Scope(provider="dstack", source=_source("dstack", project), listing=Listing.OTHER, project=project)


def _source(provider: str, project: str | None) -> str:
    return f"{provider}/{project}" if project else provider


def _scope_of(provider: str, endpoint: str, project: str | None, asked: dict[str, Any]) -> Scope:
    limit = asked.get("limit")
    submissions = asked.get("job_submissions_limit")
    only_active = asked.get("only_active") is True
    default = _MACHINES_PAGE if endpoint == _INSTANCES_LIST else _PAGE
    narrowing = ("repo_id", "username", "fleet_ids", "instance_ids")
    return Scope(
        provider=provider,
        source=_source(provider, project),
        listing=_LISTING.get(endpoint, Listing.OTHER),
        endpoint=endpoint,
        project=project,
        watched=endpoint != _EVENTS_LIST,
        only_active=only_active,
        filtered=only_active or any(asked.get(key) not in (None, []) for key in narrowing),
        page_after=_page_after(asked),
        limit=limit if isinstance(limit, int) and not isinstance(limit, bool) else default,
        by_id=_text(asked.get("id")),
        by_name=_text(asked.get("run_name")),
        jobs_omitted=asked.get("include_jobs") is False or submissions == 0,
        attempts_limited=submissions is not None,
    )


def _page_after(asked: dict[str, Any]) -> str | None:
    behind = _text(asked.get("prev_run_id")) or _text(asked.get("prev_id"))
    if behind is not None:
        return behind
    since = asked.get("prev_submitted_at", asked.get("prev_created_at"))
    return None if since is None else f"@{since}"


def _mapping(req: bytes) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(req)
    except (msgspec.DecodeError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _project_of(asked: dict[str, Any]) -> str | None:
    one = _text(asked.get("project_name"))
    if one is not None:
        return one
    several = asked.get("project_names")
    if isinstance(several, list) and len(several) == 1:
        return _text(several[0])
    return None


# -- whether it was answered -----------------------------------------------------------------------------------------


def is_answer(scope: Scope, status: int | None, body: bytes | None) -> bool:
    """Whether the source told us something: a 2xx of the shape its endpoint has, or `resource_not_exists`.

    Everything else, an HTML page with status 200 included, is a failure of the source.
    """
    if status is None or body is None:
        return False
    if not 200 <= status < 300:
        return says_not_exists(status, body)
    if scope.endpoint in _LISTS:
        try:
            items = _raw_list.decode(body)
        except msgspec.DecodeError:
            return False
        objects = all(bytes(item).lstrip()[:1] == b"{" for item in items)
        return objects and (len(items) <= MOST_ITEMS or scope.provider == "local")
    if scope.endpoint in _THINGS:
        try:
            return bool(_identity.decode(body).id)
        except msgspec.DecodeError:
            return False
    return True


def says_not_exists(status: int | None, body: bytes | None) -> bool:
    """Whether the answer is dstack's `resource_not_exists`; `detail` may be a string, an object or a list."""
    if status is None or body is None or not 400 <= status < 500 or _NOT_EXISTS.encode() not in body:
        return False
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError):
        return False
    detail = at(value, "detail")
    entries = detail if isinstance(detail, list) else [detail]
    return any(_NOT_EXISTS in (entry, at(entry, "code")) for entry in entries)


# -- how it is cut ---------------------------------------------------------------------------------------------------

_SUBMISSIONS: Final = ("jobs[].job_submissions[]", "latest_job_submission")


def _configuration(at: str) -> tuple[str, ...]:
    """Secret paths of a run or fleet configuration: what a user puts in as credentials."""
    hosts = f"{at}.ssh_config.hosts[]"
    return (
        f"{at}.env",
        f"{at}.registry_auth",
        *(
            f"{where}{inner}.{key}"
            for where in (f"{at}.ssh_config", hosts)
            for inner in ("", ".proxy_jump")
            for key in ("identity_file", "ssh_key")
        ),
    )


RUN_SECRETS: Final = (
    *_configuration("run_spec.configuration"),
    "run_spec.profile.env",
    "run_spec.repo_creds",
    "jobs[].job_spec.env",
    "jobs[].job_spec.registry_auth",
    "jobs[].job_spec.ssh_key",
    "jobs[].job_spec.probes[].headers[].value",
    "jobs[].job_spec.probes[].body",
    "jobs[].job_connection_info.sshproxy_upstream_id",
    *(f"{at}.job_provisioning_data.backend_data" for at in _SUBMISSIONS),
)
"""Paths of a run item under which every value may be a secret: environment values, registry credentials and keys come
in clear. A test holds them against the recordings and the servers' models.
"""

FLEET_SECRETS: Final = (*_configuration("spec.configuration"), "spec.profile.env")
"""Paths of a fleet item under which every value may be a secret."""

_VOLATILE: Final = ("cost", "last_processed_at", *(f"{at}.last_processed_at" for at in _SUBMISSIONS))
_COLD: Final = (
    "run_spec",
    "jobs[].job_spec",
    *(f"{at}.job_provisioning_data" for at in _SUBMISSIONS),
    *(f"{at}.job_runtime_data" for at in _SUBMISSIONS),
)


def _run(items: str) -> BodyShape:
    return BodyShape(kind="run", items=items, volatile=_VOLATILE, cold=_COLD, secret=RUN_SECRETS)


def _fleet(items: str) -> BodyShape:
    return BodyShape(kind="fleet", items=items, cold=("spec",), secret=FLEET_SECRETS)


SHAPES: Final[dict[str, BodyShape]] = {
    _RUNS_LIST: _run("[]"),
    _RUNS_GET: _run(""),
    _INSTANCES_LIST: BodyShape(kind="vm", items="[]", cold=("instance_type",)),
    _FLEETS_LIST: _fleet("[]"),
    _FLEETS_GET: _fleet(""),
    _EVENTS_LIST: BodyShape(kind="provider_event", items="[]"),
}
"""By endpoint. Volatile and cold paths only save space; secret ones are replaced before anything is stored."""
