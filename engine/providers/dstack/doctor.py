"""Whether a task could run now: server, token, project, backend, fleet, offers; each answer one line and what to do."""

from collections.abc import Callable, Mapping

import msgspec

from engine.errors import NotConfigured, ProjectNotFound, ProviderError, ProviderUnreachable
from engine.providers.dstack import fleet
from engine.providers.dstack.client import Client, HttpAnswer
from engine.providers.dstack.idle import IdleSetting, idling
from engine.providers.dstack.task import for_dstack, normal_task
from engine.providers.dstack.vm_reading import DEAREST
from engine.providers.kind import Check, CheckState
from events.errors import StenoError

OLDEST, NEWEST = (0, 19, 37), (0, 22, 5)
"""Servers Steno is tried with; others are polled all the same."""
MOST_OFFERS = 20
PRICING = 90.0
"""Seconds the server may take to ask its clouds for offers."""
CLOUD_KEY = "DSTACK_AMDDEVCLOUD_API_KEY"
PLACE = "~/.dstack/server/config.yml"
"""Where dstack's server reads it, on the machine it runs on."""

_BLOCKS = {
    "amddevcloud": """\
      - type: amddevcloud
        creds:
          type: api_key
          api_key: <the value of DSTACK_AMDDEVCLOUD_API_KEY>
""",
    "hotaisle": """\
      - type: hotaisle
        team_handle: <your team's handle at Hot Aisle>
        creds:
          type: api_key
          api_key: <your Hot Aisle API key>
""",
}


def backend_block(project: str, backend: str = "amddevcloud") -> str:
    """The YAML to merge into `~/.dstack/server/config.yml` on the machine dstack's server runs on.

    Raises:
        NotConfigured: a backend whose credentials we do not know.
    """
    block = _BLOCKS.get(backend)
    if block is None:
        known = " and ".join(sorted(_BLOCKS))
        raise NotConfigured(
            f"no block for backend {backend!r}: Steno knows those of {known}; see dstack's backends page"
        )
    return f"projects:\n  - name: {project}\n    backends:\n{block}"


class DstackOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A machine dstack could rent for the task."""

    backend: str
    instance: str
    region: str
    gpu: str
    """`1 × MI300X 192GB`; empty without one."""
    price: int
    """Micro-dollars an hour."""
    spot: bool
    availability: str
    """As dstack has it: `available`, `idle`, `busy`, `not_available`, `no_quota`, `unknown`."""

    @property
    def usable(self) -> bool:
        """It could be rented now."""
        return self.availability not in ("not_available", "no_quota")


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All checks, in order, and what they found."""

    checks: tuple[Check, ...]
    server_version: str | None = None
    user: str | None = None
    backends: tuple[str, ...] = ()
    offers: tuple[DstackOffer, ...] = ()

    @property
    def ok(self) -> bool:
        """No check failed."""
        return all(check.state is not CheckState.FAILED for check in self.checks)


def diagnose(
    client: Client,
    task: Mapping[str, object],
    *,
    cloud_key_set: bool,
    nodes: int | None,
    timeout: IdleSetting | None = None,
) -> Diagnosis:
    """Check everything a submission of `task` needs; nothing is changed and no machine is rented.

    Args:
        task: a valid task; its resources and backends say which offers are asked for.
        cloud_key_set: whether DSTACK_AMDDEVCLOUD_API_KEY is set here.
        nodes: as for `fleet.plan_fleet`.
        timeout: Steno's own idle timeout; None: leave the idle check out.
    """
    return _Doctor(client, task, nodes, timeout).look(cloud_key_set=cloud_key_set)


def cloud_key(*, is_set: bool, backends: tuple[str, ...] = ()) -> Check:
    """Where the backend's cloud key belongs."""
    if not is_set:
        message = f"{CLOUD_KEY} is not set here; Steno does not need it, dstack's server does"
        return Check(name="cloud_key", message=message)
    message = f"{CLOUD_KEY} is set; Steno does not use it, it belongs in {PLACE} of dstack's server"
    missing = bool(backends) and "amddevcloud" not in backends
    return Check(name="cloud_key", state=CheckState.WARNING if missing else CheckState.OK, message=message)


class _CannotGoOn(Exception):
    """A check failed in a way that makes the later ones pointless."""


class _Doctor:
    """One look at a server, check after check."""

    def __init__(
        self, client: Client, task: Mapping[str, object], nodes: int | None, timeout: IdleSetting | None
    ) -> None:
        self._client = client
        self._task = task
        self._nodes = nodes
        self._timeout = timeout
        self._checks: list[Check] = []
        self._version: str | None = None
        self._user: str | None = None
        self._backends: tuple[str, ...] = ()
        self._offers: tuple[DstackOffer, ...] = ()

    def look(self, *, cloud_key_set: bool) -> Diagnosis:
        """All checks; those after a failure are skipped."""
        steps: dict[str, Callable[[], None]] = {
            "server": self._server,
            "token": self._token,
            "project": self._project,
            "backend": self._backend,
            "fleet": self._fleet,
            "offers": self._look_for_offers,
        }
        errors = {"server": ProviderUnreachable, "token": ProviderUnreachable, "project": ProjectNotFound}
        failed = False
        for name, step in steps.items():
            if failed:
                self._add(name, "not checked, because of the failure above", CheckState.SKIPPED)
                continue
            try:
                step()
            except _CannotGoOn:
                failed = True
            except StenoError as error:
                kind = errors.get(name)
                problem = None if kind is None else kind(str(error))
                self._checks.append(Check(name=name, state=CheckState.FAILED, message=str(error), error=problem))
                failed = True
        self._checks.append(cloud_key(is_set=cloud_key_set, backends=self._backends))
        return Diagnosis(
            checks=tuple(self._checks),
            server_version=self._version,
            user=self._user,
            backends=self._backends,
            offers=self._offers,
        )

    def _add(self, name: str, message: str, state: CheckState = CheckState.OK) -> None:
        self._checks.append(Check(name=name, state=state, message=message))

    def _server(self) -> None:
        address = self._client.address
        answer = self._client.ask("/api/server/get_info")
        found = answer.json()
        version = found.get("server_version") if isinstance(found, dict) else None
        if answer.status in (None, 401, 403):
            raise self._client.trouble(answer, "reach the server")
        if not isinstance(version, str):
            raise ProviderError(
                f"{address.url} answers (HTTP {answer.status}), but not as a dstack server does; check the address"
            )
        self._version, message = version, f"dstack {version} at {address.url}"
        parts = tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())
        if parts and not OLDEST <= parts <= NEWEST:
            self._add("server", f"{message}; Steno is tried with 0.19.37 to 0.22.5", CheckState.WARNING)
        else:
            self._add("server", message)

    def _token(self) -> None:
        # the answer also holds the user's token and private key: only two fields are taken from it
        found = self._object(self._client.ask("/api/users/get_my_user"), "look up the user of the token")
        self._user = str(found.get("username"))
        self._add("token", f"the token is {self._user}'s ({found.get('global_role')})")

    def _project(self) -> None:
        # lists answer `200 []` for a project we cannot see; this route gives an error
        project = self._client.address.project
        rows = self._object(self._client.ask(f"/api/projects/{project}/get"), "look up the project").get("backends")
        names = [row.get("name") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        self._backends = tuple(sorted(name for name in names if isinstance(name, str)))
        self._add("project", f"project {project} is visible")

    def _backend(self) -> None:
        project, named = self._client.address.project, self._task.get("backends")
        wanted = [str(name) for name in named] if isinstance(named, list) else []
        missing = sorted(set(wanted) - set(self._backends))
        if not self._backends or (wanted and len(missing) == len(wanted)):
            message = (
                f"project {project} has no backend{' ' + ' or '.join(missing) if missing else ''}; "
                f"add it to {PLACE} on the server's machine and restart the server"
            )
            if not missing or missing[0] in _BLOCKS:
                message += " (docs/amd_devcloud_setup.md has the block)"
            self._add("backend", message, CheckState.FAILED)
            raise _CannotGoOn
        message = f"backends: {', '.join(self._backends)}"
        if missing:
            message += f"; the task also names {', '.join(missing)}, which the project does not have"
        self._add("backend", message, CheckState.WARNING if missing else CheckState.OK)

    def _fleet(self) -> None:
        fleets, normal = fleet.list_fleets(self._client), normal_task(self._task)
        plan = fleet.plan_fleet(normal, fleets, project=self._client.address.project, nodes=self._nodes)
        if not fleet.needs_fleet(self._version):
            self._add("fleet", f"dstack {self._version} makes the fleet a task needs itself")
        elif plan is not None:
            most = "any number of" if self._nodes is None else f"0 to {self._nodes}"
            self._add(
                "fleet", f"none of {len(fleets)} fleets fits; submit makes {plan.name} ({most} machines, none now)"
            )
        else:
            fitting = [str(row.get("name")) for row in fleets if fleet.fits(row, normal)]
            self._add("fleet", f"fleet {', '.join(fitting)} fits" if fitting else "the task names its own fleet")
        if self._timeout is not None:
            found = idling(normal, fleets, self._timeout)
            self._add("idle", found.message)
            for line in found.fleets:
                self._add("idle", line, CheckState.WARNING)

    def _look_for_offers(self) -> None:
        path = self._client.address.path("runs/get_plan")
        request: dict[str, object] = {"run_spec": {"configuration": for_dstack(self._task)}, "max_offers": MOST_OFFERS}
        if fleet.needs_fleet(self._version):
            # without it newer servers show the offers of existing fleets only; 0.19 does not know the field
            request["for_offers_only"] = True
        answer = self._client.ask(path, request, patience=PRICING)
        if answer.status == 422 and "for_offers_only" in request:
            del request["for_offers_only"]
            answer = self._client.ask(path, request, patience=PRICING)
        plans = self._object(answer, "ask for offers").get("job_plans")
        first = plans[0] if isinstance(plans, list) and plans and isinstance(plans[0], dict) else {}
        rows = first.get("offers")
        found = map(_offer, rows if isinstance(rows, list) else ())
        self._offers = tuple(offer for offer in found if offer is not None)
        usable = [offer for offer in self._offers if offer.usable]
        if not self._offers:
            message = "no machine of the project's backends fits the task; ask for less, or for another GPU"
            self._add("offers", message, CheckState.FAILED)
        elif not usable:
            message = f"{len(self._offers)} offers, none available now; wait, or ask for another GPU"
            self._add("offers", message, CheckState.WARNING)
        else:
            best = min(usable, key=lambda offer: offer.price)
            which = f"{best.gpu or best.instance}, {best.backend}"
            self._add("offers", f"{len(self._offers)} offers from ${best.price / 1e6:.2f}/h ({which})")

    def _object(self, answer: HttpAnswer, what: str) -> dict[str, object]:
        found = answer.json()
        if not answer.ok or not isinstance(found, dict):
            raise self._client.nonsense(what, "object") if answer.ok else self._client.trouble(answer, what)
        return found


def _offer(row: object) -> DstackOffer | None:
    if not isinstance(row, dict):
        return None
    instance, price = row.get("instance"), row.get("price")
    if not isinstance(instance, dict) or not isinstance(price, int | float) or not 0 <= price <= DEAREST:
        return None
    resources = instance.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    return DstackOffer(
        backend=str(row.get("backend")),
        instance=str(instance.get("name")),
        region=str(row.get("region")),
        gpu=_gpus(resources.get("gpus")),
        price=round(price * 1_000_000),
        spot=resources.get("spot") is True,
        availability=str(row.get("availability")),
    )


def _gpus(gpus: object) -> str:
    if not isinstance(gpus, list) or not gpus or not isinstance(gpus[0], dict):
        return ""
    memory = gpus[0].get("memory_mib")
    size = f" {memory // 1024}GB" if isinstance(memory, int) else ""
    return f"{len(gpus)} × {gpus[0].get('name')}{size}"
