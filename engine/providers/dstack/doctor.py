"""Whether a task could run now: server, token, project, backend, fleet, offers; each answer one line and what to do."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from engine.errors import ProviderError
from engine.providers.dstack import fleet
from engine.providers.dstack.answer import Answer, trouble
from engine.providers.dstack.client import Client
from engine.providers.dstack.idle import Timeout, idling
from engine.providers.dstack.server_config import PLACE, backend_block
from engine.providers.dstack.task import for_dstack, normal_task
from engine.readings.instances import DEAREST
from events.clock import SECOND
from events.errors import StenoError

OLDEST, NEWEST = (0, 19, 37), (0, 22, 5)
"""Servers Steno is tried with; others are polled all the same."""
BOOT = 15 * 60 * SECOND
"""Longest life of a machine before its task starts that a worst case counts; dstack gives up earlier."""
END = 15 * 60 * SECOND
"""How long dstack goes on trying to end a machine."""
MOST_OFFERS = 20
PRICING = 90.0
"""Seconds the server may take to ask its clouds for offers."""


class State(StrEnum):
    """What a check found."""

    OK = "ok"
    WARNING = "warning"  # a task can run, but look at this
    FAILED = "failed"  # a task cannot run
    SKIPPED = "skipped"  # could not be looked at, because of a failure above


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing looked at."""

    name: str
    """`server`, `token`, `project`, `backend`, `fleet`, `idle`, `offers`, `cloud_key`."""
    state: State
    said: str
    """One line: what is, and what to do where it is not well."""


class Offer(msgspec.Struct, frozen=True, kw_only=True):
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
    """dstack's word: `available`, `idle`, `busy`, `not_available`, `no_quota`, `unknown`."""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True):
    """All checks, in order, and what they found."""

    checks: tuple[Check, ...]
    server_version: str | None = None
    user: str | None = None
    backends: tuple[str, ...] = ()
    offers: tuple[Offer, ...] = ()
    cloud_key_set: bool = False

    @property
    def ok(self) -> bool:
        """No check failed."""
        return all(check.state is not State.FAILED for check in self.checks)


def diagnose(
    client: Client,
    task: Mapping[str, object],
    *,
    cloud_key_set: bool,
    nodes: int | None,
    timeout: Timeout | None = None,
) -> Diagnosis:
    """Look at everything a submission of `task` needs; nothing is changed and no machine is rented.

    Args:
        task: a valid task; its resources and backends say which offers are asked for.
        cloud_key_set: whether DSTACK_AMDDEVCLOUD_API_KEY is set here; its value is not wanted.
        nodes: as for `fleet.plan_fleet`.
        timeout: Steno's own idle timeout; None: whatever it is, nothing is said of it.
    """
    checks: list[Check] = []
    version = user = None
    backends: tuple[str, ...] = ()
    offers: tuple[Offer, ...] = ()
    try:
        version = _server(client, checks)
        user = _token(client, checks)
        backends = _project(client, checks)
        _backend(client, checks, backends, task)
        fleets = fleet.list_fleets(client)
        _fleet(client, checks, task, fleets, version, nodes)
        if timeout is not None:
            _idle(checks, task, fleets, timeout)
        offers = _offers(client, checks, task, version)
    except _CannotGoOn:
        pass
    except StenoError as error:
        checks.append(Check(name=_next(checks), state=State.FAILED, said=str(error)))
    looked = {check.name for check in checks}
    said = "not looked at, because of the failure above"
    checks.extend(Check(name=name, state=State.SKIPPED, said=said) for name in _ORDER if name not in looked)
    checks.append(_cloud_key(cloud_key_set, backends))
    return Diagnosis(
        checks=tuple(checks),
        server_version=version,
        user=user,
        backends=backends,
        offers=offers,
        cloud_key_set=cloud_key_set,
    )


def worst_case(price: int, *, run: int, idle: int) -> int:
    """What one machine can cost at most, micro-dollars: boot, run, idle and the longest end, at `price` an hour.

    Args:
        price: micro-dollars an hour.
        run: longest time of the task itself, microseconds (`max_duration`).
        idle: how long the machine may idle after it, microseconds (`idle_duration`).
    """
    hour = 3600 * SECOND
    return -(-price * (BOOT + run + idle + END) // hour)


_ORDER = ("server", "token", "project", "backend", "fleet", "offers")


class _CannotGoOn(Exception):
    """A check failed in a way that makes the later ones pointless."""


def _next(checks: list[Check]) -> str:
    looked = {check.name for check in checks}
    return next(name for name in _ORDER if name not in looked)


def _server(client: Client, checks: list[Check]) -> str | None:
    address = client.address
    answer = client.ask("/api/server/get_info")
    found = answer.json()
    version = found.get("server_version") if isinstance(found, dict) else None
    if answer.status in (None, 401, 403):
        raise trouble(answer, address.url, address.project, "reach the server")
    if not isinstance(version, str):
        raise ProviderError(
            f"{address.url} answers (HTTP {answer.status}), but not as a dstack server does; check the address"
        )
    said = f"dstack {version} at {address.url}"
    parts = tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())
    if parts and not OLDEST <= parts <= NEWEST:
        checks.append(Check(name="server", state=State.WARNING, said=f"{said}; Steno is tried with 0.19.37 to 0.22.5"))
    else:
        checks.append(Check(name="server", state=State.OK, said=said))
    return version


def _token(client: Client, checks: list[Check]) -> str:
    # the answer also holds the user's token and private key: two words are taken from it and the rest is let go
    answer = client.ask("/api/users/get_my_user")
    found = _object(client, answer, "look up the user of the token")
    user = str(found.get("username"))
    checks.append(Check(name="token", state=State.OK, said=f"the token is {user}'s ({found.get('global_role')})"))
    return user


def _project(client: Client, checks: list[Check]) -> tuple[str, ...]:
    # lists answer `200 []` for a project we cannot see; this route says so
    answer = client.ask(f"/api/projects/{client.address.project}/get")
    found = _object(client, answer, "look up the project")
    rows = found.get("backends")
    names = [row.get("name") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    checks.append(Check(name="project", state=State.OK, said=f"project {client.address.project} is visible"))
    return tuple(sorted(name for name in names if isinstance(name, str)))


def _backend(client: Client, checks: list[Check], backends: tuple[str, ...], task: Mapping[str, object]) -> None:
    named = task.get("backends")
    wanted = [str(name) for name in named] if isinstance(named, list) else []
    missing = sorted(set(wanted) - set(backends))
    if not backends or (wanted and len(missing) == len(wanted)):
        name = missing[0] if missing else "amddevcloud"
        said = (
            f"project {client.address.project} has no backend{' ' + ' or '.join(missing) if missing else ''}; "
            f"add it to {PLACE} on the server's machine and restart the server"
        )
        try:
            backend_block(client.address.project, name)
            said += " (docs/amd_devcloud_setup.md has the block)"
        except StenoError:
            pass
        checks.append(Check(name="backend", state=State.FAILED, said=said))
        raise _CannotGoOn
    said = f"backends: {', '.join(backends)}"
    if missing:
        said += f"; the task also names {', '.join(missing)}, which the project does not have"
    checks.append(Check(name="backend", state=State.WARNING if missing else State.OK, said=said))


def _fleet(
    client: Client,
    checks: list[Check],
    task: Mapping[str, object],
    fleets: list[dict[str, object]],
    version: str | None,
    nodes: int | None,
) -> None:
    if not fleet.needs_fleet(version):
        checks.append(Check(name="fleet", state=State.OK, said=f"dstack {version} makes the fleet a task needs itself"))
        return
    normal = normal_task(task)
    plan = fleet.plan_fleet(normal, fleets, project=client.address.project, nodes=nodes)
    if plan is not None:
        most = "any number of" if nodes is None else f"0 to {nodes}"
        said = f"none of {len(fleets)} fleets fits; submit makes {plan.name} ({most} machines, none now)"
    else:
        fitting = [str(row.get("name")) for row in fleets if fleet.fits(row, normal)]
        said = f"fleet {', '.join(fitting)} fits" if fitting else "the task names its own fleet"
    checks.append(Check(name="fleet", state=State.OK, said=said))


def _idle(checks: list[Check], task: Mapping[str, object], fleets: list[dict[str, object]], timeout: Timeout) -> None:
    found = idling(normal_task(task), fleets, timeout)
    checks.append(Check(name="idle", state=State.OK, said=found.said))
    checks.extend(Check(name="idle", state=State.WARNING, said=line) for line in found.fleets)


def _offers(client: Client, checks: list[Check], task: Mapping[str, object], version: str | None) -> tuple[Offer, ...]:
    request: dict[str, object] = {"run_spec": {"configuration": for_dstack(task)}, "max_offers": MOST_OFFERS}
    if fleet.needs_fleet(version):
        # without it newer servers show the offers of existing fleets only; 0.19 does not know the field
        request["for_offers_only"] = True
    answer = client.ask(client.address.path("runs/get_plan"), request, patience=PRICING)
    if answer.status == 422 and "for_offers_only" in request:
        del request["for_offers_only"]
        answer = client.ask(client.address.path("runs/get_plan"), request, patience=PRICING)
    plans = _object(client, answer, "ask for offers").get("job_plans")
    first = plans[0] if isinstance(plans, list) and plans and isinstance(plans[0], dict) else {}
    rows = first.get("offers")
    offers = tuple(
        offer for offer in (_offer(row) for row in (rows if isinstance(rows, list) else ())) if offer is not None
    )
    usable = [offer for offer in offers if offer.availability not in ("not_available", "no_quota")]
    if not offers:
        said = "no machine of the project's backends fits the task; ask for less, or for another GPU"
        checks.append(Check(name="offers", state=State.FAILED, said=said))
    elif not usable:
        said = f"{len(offers)} offers, none available now; wait, or ask for another GPU"
        checks.append(Check(name="offers", state=State.WARNING, said=said))
    else:
        best = min(usable, key=lambda offer: offer.price)
        said = f"{len(offers)} offers from ${best.price / 1e6:.2f}/h ({best.gpu or best.instance}, {best.backend})"
        checks.append(Check(name="offers", state=State.OK, said=said))
    return offers


def _offer(row: object) -> Offer | None:
    if not isinstance(row, dict):
        return None
    instance, price = row.get("instance"), row.get("price")
    if not isinstance(instance, dict) or not isinstance(price, int | float) or not 0 <= price <= DEAREST:
        return None
    resources = instance.get("resources")
    resources = resources if isinstance(resources, dict) else {}
    return Offer(
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


def _cloud_key(is_set: bool, backends: tuple[str, ...]) -> Check:
    if is_set:
        said = f"DSTACK_AMDDEVCLOUD_API_KEY is set; Steno does not use it, it belongs in {PLACE} of dstack's server"
        missing = bool(backends) and "amddevcloud" not in backends
        return Check(name="cloud_key", state=State.WARNING if missing else State.OK, said=said)
    said = "DSTACK_AMDDEVCLOUD_API_KEY is not set here; Steno does not need it, dstack's server does"
    return Check(name="cloud_key", state=State.OK, said=said)


def _object(client: Client, answer: Answer, what: str) -> dict[str, object]:
    if not answer.ok:
        raise trouble(answer, client.address.url, client.address.project, what)
    found = answer.json()
    if not isinstance(found, dict):
        raise ProviderError(f"cannot {what}: {client.address.url} answered no object; is it a dstack server?")
    return found
