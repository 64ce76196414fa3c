"""Which values of an answer name an item, move at every poll, are big and stable, or are secret.

Paths are as `events.shape.shape` reads them. Volatile and cold paths only save space; secret ones are replaced before
anything is stored. The server's environment values, registry credentials and keys come in clear (dstack 0.19.37 to
0.22.5).
"""

from typing import Final

from engine.readings.scope import (
    EVENTS_LIST,
    FLEETS_GET,
    FLEETS_LIST,
    INSTANCES_LIST,
    RUNS_GET,
    RUNS_LIST,
    Scope,
    read_scope,
)
from events.shape.shape import BodyShape

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
"""Paths of a run item under which every value may be a secret. A test holds them against the recordings and the
servers' models.
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


def _run(listed: bool) -> BodyShape:
    return BodyShape(kind="run", listed=listed, volatile=_VOLATILE, cold=_COLD, secret=RUN_SECRETS)


def _fleet(listed: bool) -> BodyShape:
    return BodyShape(kind="fleet", listed=listed, cold=("spec",), secret=FLEET_SECRETS)


_SHAPES: Final[dict[str, BodyShape]] = {
    RUNS_LIST: _run(listed=True),
    RUNS_GET: _run(listed=False),
    INSTANCES_LIST: BodyShape(kind="vm", listed=True, cold=("instance_type",)),
    FLEETS_LIST: _fleet(listed=True),
    FLEETS_GET: _fleet(listed=False),
    EVENTS_LIST: BodyShape(kind="provider_event", listed=True),
}


def route(path: str, req: bytes) -> Scope:
    """What the poll asked."""
    return read_scope(path, req)


def shape_of(path: str, req: bytes) -> BodyShape | None:
    """The shape of the endpoint's answer; None for one we do not know, whose body is stored whole."""
    return _SHAPES.get(read_scope(path, req).endpoint)
