"""What a poll asked: endpoint, project and filter, read from its path and request body.

A trace is routed by `path` alone; `ep` is a label. Endpoints: dstack's REST API (0.19.37 to 0.22.5) and the local
provider, which lists its runs and machines under `/local/runs/list` and `/local/instances/list` in the same words.
"""

import re
from functools import lru_cache
from typing import Any, Final

import msgspec

RUNS_LIST: Final = "runs/list"
RUNS_GET: Final = "runs/get"
INSTANCES_LIST: Final = "instances/list"
FLEETS_LIST: Final = "fleets/list"
FLEETS_GET: Final = "fleets/get"
EVENTS_LIST: Final = "events/list"
OTHER: Final = "other"

_PAGE: Final = 100
"""dstack's default and greatest `limit` of runs."""
_MACHINES_PAGE: Final = 1000
"""dstack's default `limit` of machines."""

_PROJECT_PATH = re.compile(r"^/api/project/([^/]+)/(runs/list|runs/get|fleets/list|fleets/get|instances/list)$")
_ROOT_PATH = re.compile(r"^/api/(runs/list|instances/list|fleets/list|events/list)$")
_LOCAL_PATH = re.compile(r"^/local/(runs/list|runs/get|instances/list)$")
_ANY_PROJECT = re.compile(r"^/api/project/([^/]+)/")


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """The question of a poll: which list or thing, of whom, filtered how."""

    provider: str
    """`dstack`, `local`, `slurm`."""
    source: str
    """`dstack/<project>`, or `dstack` where no single project is named; `local/<host>`; `slurm`."""
    endpoint: str
    project: str | None = None
    only_active: bool = False
    filtered: bool = False
    """Something beside the project narrows the list: absence from the answer means nothing."""
    page_after: str | None = None
    """The id the page starts behind (`prev_run_id`, of machines `prev_id`); None on the first page."""
    limit: int = _PAGE
    by_id: str | None = None
    by_name: str | None = None
    jobs_omitted: bool = False
    """`include_jobs: false`, or no submission of any job (`job_submissions_limit: 0`)."""
    submissions_limited: bool = False
    """`job_submissions_limit` was given: older submissions may be missing, and with them their cost."""


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


@lru_cache(maxsize=4096)
def read_scope(path: str, req: bytes) -> Scope:
    """The scope of a poll; endpoint `other` for a path we do not know. Never raises."""
    if path.startswith("slurm:"):
        return Scope(provider="slurm", source="slurm", endpoint=OTHER)
    asked = _mapping(req)
    if (found := _LOCAL_PATH.match(path)) is not None:
        project = _project_of(asked)
        source = f"local/{project}" if project else "local"
        return _scope_of("local", source, found[1], project, asked)
    if (found := _PROJECT_PATH.match(path)) is not None:
        return _scope_of("dstack", f"dstack/{found[1]}", found[2], found[1], asked)
    if (found := _ROOT_PATH.match(path)) is not None:
        project = _project_of(asked)
        return _scope_of("dstack", f"dstack/{project}" if project else "dstack", found[1], project, asked)
    provider = "local" if path.startswith("/local/") else "dstack"
    project = found[1] if (found := _ANY_PROJECT.match(path)) is not None else _project_of(asked)
    return Scope(
        provider=provider, source=f"{provider}/{project}" if project else provider, endpoint=OTHER, project=project
    )


def _scope_of(provider: str, source: str, endpoint: str, project: str | None, asked: dict[str, Any]) -> Scope:
    limit = asked.get("limit")
    submissions = asked.get("job_submissions_limit")
    only_active = asked.get("only_active") is True
    default = _MACHINES_PAGE if endpoint == INSTANCES_LIST else _PAGE
    narrowing = ("repo_id", "username", "fleet_ids", "instance_ids")
    return Scope(
        provider=provider,
        source=source,
        endpoint=endpoint,
        project=project,
        only_active=only_active,
        filtered=only_active or any(asked.get(key) not in (None, []) for key in narrowing),
        page_after=_page_after(asked),
        limit=limit if isinstance(limit, int) and not isinstance(limit, bool) else default,
        by_id=_text(asked.get("id")),
        by_name=_text(asked.get("run_name")),
        jobs_omitted=asked.get("include_jobs") is False or submissions == 0,
        submissions_limited=submissions is not None,
    )


def _page_after(asked: dict[str, Any]) -> str | None:
    behind = _text(asked.get("prev_run_id")) or _text(asked.get("prev_id"))
    if behind is not None:
        return behind
    since = asked.get("prev_submitted_at", asked.get("prev_created_at"))
    return None if since is None else f"@{since}"


def source_of(path: str, req: bytes) -> str:
    """Who was asked: `dstack/<project>`, `dstack`, `local/<host>`, `slurm`."""
    return read_scope(path, req).source


def is_page(scope: Scope) -> bool:
    """Whether the poll reads one page of the list of runs."""
    return scope.endpoint == RUNS_LIST
