"""The endpoints whose answers are read: what a poll asked, how its answer is cut, and whether it is an answer.

Covers dstack's REST API (0.19.37 to 0.22.5) and the paths of older local records. `path` and request alone decide.
"""

import re
from functools import partial
from typing import Any, Final

import msgspec

from engine.providers.dstack.lenient import Identified, at, mapping
from engine.providers.reading import Listing, Scope
from events.shape.shape import BodyShape

_LISTING: Final = {
    "runs/list": Listing.RUNS,
    "runs/get": Listing.RUN,
    "instances/list": Listing.VMS,
    "events/list": Listing.EVENTS,
}
_PAGE: Final = {"instances/list": 1000}  # dstack's default `limit`; of other lists it is 100
MOST_ITEMS: Final = 10_000  # of an answer: a page we ask for has 100, and each new item becomes a stream

_PATH: Final = re.compile("/(?:(local)|api(?:/project/([^/]+))?)/(.*)")
_NOT_EXISTS: Final = "resource_not_exists"

_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


_identity = msgspec.json.Decoder(Identified)


# -- what was asked --------------------------------------------------------------------------------------------------


def scope_of(path: str, req: bytes) -> Scope | None:
    """What a poll asked. Paths of any other form are dstack's too, for older records."""
    if not path.startswith("/"):
        return None
    asked, found = mapping(req), _PATH.fullmatch(path)
    former, project, endpoint = ("", None, "") if found is None else found.groups()
    project, provider = project or _project_of(asked), former or "dstack"
    source = f"{provider}/{project}" if project else provider
    if endpoint not in SHAPES:
        return None if former else Scope(provider=provider, source=source, listing=Listing.OTHER, project=project)
    limit, submissions = asked.get("limit"), asked.get("job_submissions_limit")
    only_active = asked.get("only_active") is True
    narrowing = ("repo_id", "username", "fleet_ids", "instance_ids")
    return Scope(
        provider=provider,
        source=source,
        listing=_LISTING.get(endpoint, Listing.OTHER),
        endpoint=endpoint,
        project=project,
        watched=endpoint != "events/list",
        only_active=only_active,
        filtered=only_active or any(asked.get(key) not in (None, []) for key in narrowing),
        page_after=_page_after(asked),
        limit=limit if isinstance(limit, int) and not isinstance(limit, bool) else _PAGE.get(endpoint, 100),
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
    """Whether the source answered: a 2xx of its endpoint's shape, or `resource_not_exists`. HTML is a failure."""
    if status is None or body is None:
        return False
    if not 200 <= status < 300:
        return says_not_exists(status, body)
    shape = SHAPES.get(scope.endpoint)
    try:
        if shape is None:
            return True
        if shape.items == "":
            return bool(_identity.decode(body).id)
        items = _raw_list.decode(body)
    except msgspec.DecodeError:
        return False
    objects = all(bytes(item).lstrip()[:1] == b"{" for item in items)
    return objects and (len(items) <= MOST_ITEMS or scope.provider == "local")


def says_not_exists(status: int | None, body: bytes | None) -> bool:
    """Whether it is dstack's `resource_not_exists`; `detail` may be a string, an object or a list."""
    if status is None or body is None or not 400 <= status < 500 or _NOT_EXISTS.encode() not in body:
        return False
    detail = mapping(body).get("detail")
    entries = detail if isinstance(detail, list) else [detail]
    return any(_NOT_EXISTS in (entry, at(entry, "code")) for entry in entries)


# -- how it is cut ---------------------------------------------------------------------------------------------------

_SUBMISSIONS: Final = ("jobs[].job_submissions[]", "latest_job_submission")


def _configuration(at: str) -> tuple[str, ...]:
    """Secret paths of a run or fleet configuration: a user's credentials."""
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


RUN_SECRETS: Final = (  # paths that may hold secrets in clear; a test checks recordings and server models
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

FLEET_SECRETS: Final = (*_configuration("spec.configuration"), "spec.profile.env")

_VOLATILE: Final = ("cost", "last_processed_at", *(f"{at}.last_processed_at" for at in _SUBMISSIONS))
_COLD: Final = (
    "run_spec",
    "jobs[].job_spec",
    *(f"{at}.job_provisioning_data" for at in _SUBMISSIONS),
    *(f"{at}.job_runtime_data" for at in _SUBMISSIONS),
)


_run = partial(BodyShape, kind="run", volatile=_VOLATILE, cold=_COLD, secret=RUN_SECRETS)
_fleet = partial(BodyShape, kind="fleet", cold=("spec",), secret=FLEET_SECRETS)

SHAPES: Final[dict[str, BodyShape]] = {  # by endpoint; volatile and cold paths only save space
    "runs/list": _run(items="[]"),
    "runs/get": _run(items=""),
    "instances/list": BodyShape(kind="vm", items="[]", cold=("instance_type",)),
    "fleets/list": _fleet(items="[]"),
    "fleets/get": _fleet(items=""),
    "events/list": BodyShape(kind="provider_event", items="[]"),
}
