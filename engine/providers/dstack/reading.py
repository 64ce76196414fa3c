"""The reading of dstack's answers (REST API of 0.19.37 to 0.22.5), and of older local answers, which use its words.

`path` and request alone decide what was asked, how the answer is cut, and whether it is an answer.
"""

import re
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Any, Final

import msgspec

from steno.engine.providers.dstack.lenient import Identified, at, mapping
from steno.engine.providers.dstack.requirements import read_terms
from steno.engine.providers.dstack.run_reading import (
    RUNS,
    RunWire,
    facts_of,
    quotes,
    read_configuration,
    read_cost,
    with_attempt_words,
    with_run_words,
)
from steno.engine.providers.dstack.vm_reading import read_vm, read_vm_event
from steno.engine.providers.dstack.words import FINAL_RUN_STATUSES, RETRY_EVENTS, STOPS, retry_event
from steno.engine.state.facts import AttemptFacts, JobFacts, RunFacts, VmFacts
from steno.engine.state.reading import Listing, Reading, Scope
from steno.engine.state.states import State
from steno.events.shape.shape import BodyShape

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


def scope_of(path: str, req: bytes) -> Scope | None:
    """The question of a poll. Paths of any other form are dstack's too, for older records."""
    if not path.startswith("/"):
        return None
    request, match = mapping(req), _PATH.fullmatch(path)
    former, project, endpoint = ("", None, "") if match is None else match.groups()
    project, provider = project or _project_of(request), former or "dstack"
    source = f"{provider}/{project}" if project else provider
    if endpoint not in SHAPES:
        return None if former else Scope(provider=provider, source=source, listing=Listing.OTHER, project=project)
    limit, submissions = request.get("limit"), request.get("job_submissions_limit")
    only_active = request.get("only_active") is True
    narrowing = ("repo_id", "username", "fleet_ids", "instance_ids")
    return Scope(
        provider=provider,
        source=source,
        listing=_LISTING.get(endpoint, Listing.OTHER),
        endpoint=endpoint,
        project=project,
        watched=endpoint != "events/list",
        only_active=only_active,
        filtered=only_active or any(request.get(key) not in (None, []) for key in narrowing),
        page_after=_page_after(request),
        limit=limit if isinstance(limit, int) and not isinstance(limit, bool) else _PAGE.get(endpoint, 100),
        by_id=_text(request.get("id")),
        by_name=_text(request.get("run_name")),
        jobs_omitted=request.get("include_jobs") is False or submissions == 0,
        attempts_limited=submissions is not None,
    )


def _page_after(request: dict[str, Any]) -> str | None:
    behind = _text(request.get("prev_run_id")) or _text(request.get("prev_id"))
    if behind is not None:
        return behind
    since = request.get("prev_submitted_at", request.get("prev_created_at"))
    return None if since is None else f"@{since}"


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _project_of(request: dict[str, Any]) -> str | None:
    name = _text(request.get("project_name"))
    if name is not None:
        return name
    several = request.get("project_names")
    if isinstance(several, list) and len(several) == 1:
        return _text(several[0])
    return None


def is_answer(scope: Scope, status: int | None, body: bytes | None) -> bool:
    """True if the source answered: a 2xx of its endpoint's shape, or `resource_not_exists`. HTML is a failure."""
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
    """True if it is dstack's `resource_not_exists`; `detail` may be a string, an object or a list."""
    if status is None or body is None or not 400 <= status < 500 or _NOT_EXISTS.encode() not in body:
        return False
    detail = mapping(body).get("detail")
    entries = detail if isinstance(detail, list) else [detail]
    return any(_NOT_EXISTS in (entry, at(entry, "code")) for entry in entries)


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


_KNOWN: Final = 128  # runs whose facts are remembered, with what was read: 2 KB each


def alternatives(facts: RunFacts) -> Iterator[tuple[str, RunFacts]]:
    """(`had the job exited 0`, the observation as it would have been), one change each; the run's words follow."""
    before = " before the stop" if facts.reason in STOPS else ""
    for index, job in enumerate(facts.jobs):
        newest = job.newest
        if newest is None:
            continue
        label = f"job {job.replica_num}-{job.job_num}" if len(facts.jobs) > 1 else "the job"
        if _ran(newest):
            if newest.exit_status != 0:
                yield f"had {label} exited 0{before}", _with(facts, index, job, "done", "done_by_runner", 0)
            if not newest.exit_status:
                other = _with(facts, index, job, "failed", "container_exited_with_error", 1)
                yield f"had {label} exited 1{before}", other
            if newest.ended:
                yield f"had {label} still been running", _with(facts, index, job, "running", None, None)
        if newest.ended and retry_event(newest.reason, newest.exit_status) is not None and not newest.retried:
            covering = msgspec.structs.replace(job, retry_on=RETRY_EVENTS)
            other = _with(facts, index, covering, newest.status, newest.reason, newest.exit_status)
            yield f"had the task's retry policy covered how {label} ended", other
    if facts.reason not in STOPS and not facts.requeued and any(_ran(job.newest) for job in facts.jobs):
        jobs = tuple(_worded(job, "terminated", "terminated_by_user", None) for job in facts.jobs)
        yield "had the run been stopped before its end", with_run_words(facts, "terminated", "stopped_by_user", jobs)
    if not facts.jobs:
        for status, reason in (("done", "all_jobs_done"), ("failed", "job_failed"), ("terminated", "stopped_by_user")):
            yield f"had the run's status been {status} ({reason})", with_run_words(facts, status, reason, ())


def _ran(newest: AttemptFacts | None) -> bool:
    """True if the attempt got as far as a machine: only then can it exit."""
    if newest is None:
        return False
    return newest.exit_status is not None or newest.hostname is not None or newest.state is State.RUNNING


def _worded(job: JobFacts, status: str | None, reason: str | None, exit_status: int | None) -> JobFacts:
    if job.newest is None:
        return job
    newest = with_attempt_words(job.newest, status, reason, exit_status, job.retry_on)
    return msgspec.structs.replace(job, attempts=(*job.attempts[:-1], newest))


def _with(
    facts: RunFacts, index: int, job: JobFacts, status: str | None, reason: str | None, exit_status: int | None
) -> RunFacts:
    """The observation with one job changed, and the run's own words as dstack derives them."""
    jobs = (*facts.jobs[:index], _worded(job, status, reason, exit_status), *facts.jobs[index + 1 :])
    if not any(other.failed for other in jobs):  # dstack ends the other jobs only because one failed
        jobs = tuple(
            _worded(other, "running", None, None)
            if other.newest is not None and other.newest.reason == "terminated_by_server"
            else other
            for other in jobs
        )
    return with_run_words(facts, *_run_words(facts, jobs), jobs)


def _run_words(facts: RunFacts, jobs: tuple[JobFacts, ...]) -> tuple[str | None, str | None]:
    """Status and reason of the run, as dstack derives them from its jobs; kept unless the run is ending."""
    final = facts.status in FINAL_RUN_STATUSES
    if not final and facts.status != "terminating":
        return facts.status, facts.reason
    attempts = [job.newest for job in jobs if job.newest is not None]
    over = len(attempts) == len(jobs) and all(newest.ended for newest in attempts)

    def ending(status: str, reason: str) -> tuple[str, str]:
        return (status if final and over else "terminating"), reason

    failed = [job.newest for job in jobs if job.newest is not None and job.failed]
    if any(not newest.retried for newest in failed):
        kept = facts.reason is not None and facts.reason not in (*STOPS, "all_jobs_done")
        return ending("failed", (facts.reason or "") if kept else "job_failed")
    if failed:
        return ("failed", facts.reason) if facts.reason == "retry_limit_exceeded" else ("pending", None)
    if over and all(job.newest.exit_status == 0 for job in jobs if job.newest is not None and job.decides):
        return ending("done", "all_jobs_done")
    if facts.reason in STOPS:
        return ending("terminated", facts.reason or "")
    return "running", None


PRIVATE: Final = {  # of answers and task files
    **dict.fromkeys(
        ("run_name", "user", "actor_user", "ssh_key_pub", "email", "repo_id", "repo_name", "repo_url"), "names"
    ),
    **dict.fromkeys(("run.name", "job.name", "fleet.name", "instance.name"), "names"),  # what the server's log is about
    **dict.fromkeys(("commands", "entrypoint", "image", "image_name", "working_dir", "files", "init"), "commands"),
    **dict.fromkeys(("hostname", "internal_ip", "ip_address", "external_ip", "instance_id"), "hosts"),
}


class DstackReading(Reading):
    private = PRIVATE

    def __init__(self) -> None:
        self._scope = lru_cache(maxsize=4096)(scope_of)
        self._known: dict[str, tuple[RunWire, tuple[str, ...], RunFacts]] = {}
        """Run id → its last reading: items of a trace differ in volatile values, so no cache by text has them."""

    def scope(self, path: str, req: bytes) -> Scope | None:
        return self._scope(path, req)

    def shape(self, path: str, req: bytes) -> BodyShape | None:
        scope = self.scope(path, req)
        return None if scope is None else SHAPES.get(scope.endpoint)

    def answered(self, path: str, req: bytes, status: int | None, body: bytes | None, error: str | None = None) -> bool:
        scope = self.scope(path, req)
        return scope is not None and is_answer(scope, status, body)

    def runs(self, item: bytes, scope: Scope) -> tuple[RunFacts, ...]:
        wire, drift = RUNS.decode(item)
        known = self._known.get(wire.id)
        if known is not None and known[0] == wire and known[1] == drift:
            return (known[2],)
        facts = facts_of(wire, drift)
        if len(self._known) >= _KNOWN:
            self._known.clear()
        self._known[wire.id] = (wire, drift, facts)
        return (facts,)

    def vm(self, item: bytes, scope: Scope) -> VmFacts:
        return read_vm(item)

    says_not_exists = staticmethod(says_not_exists)
    costs = staticmethod(read_cost)
    configurations = staticmethod(read_configuration)
    quotes = staticmethod(quotes)
    alternatives = staticmethod(alternatives)
    vm_event = staticmethod(read_vm_event)
    terms = staticmethod(read_terms)
