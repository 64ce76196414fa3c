"""The checks of `steno doctor` for dstack: whether a task could run now; the example that it can rent a machine for."""

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import msgspec

from steno.engine.errors import NotConfigured, ProjectNotFound, ProviderError, ProviderUnreachable, TaskInvalid
from steno.engine.providers.dstack import fleet
from steno.engine.providers.dstack.client import Client, HttpAnswer
from steno.engine.providers.dstack.fleet import IdleSetting, ask_plan, idling
from steno.engine.providers.dstack.lenient import at, objects
from steno.engine.providers.dstack.provider import DstackProvider
from steno.engine.providers.dstack.settings import TASK_FILES, default_gpu, fleet_nodes
from steno.engine.providers.dstack.task import (
    EXAMPLE_IMAGE,
    complete_task,
    completed,
    expect_package,
    find_profile,
    needs_image,
    normal_task,
)
from steno.engine.providers.dstack.vm_reading import InstanceType, Price, Resources
from steno.engine.providers.kind import Check, CheckState, Checkup, Trial, with_profile
from steno.engine.providers.task import Draft, read_task_file
from steno.engine.settings.settings import Settings
from steno.engine.settings.values import timeout
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND
from steno.events.errors import StenoError, UnreadableInput

OLDEST, NEWEST = (0, 19, 37), (0, 22, 5)  # servers Steno is tried with; others are polled all the same
MOST_OFFERS = 20
PRICING = 90.0  # seconds the server may take to ask its clouds for offers
CLOUD_KEY = "DSTACK_AMDDEVCLOUD_API_KEY"
PLACE = "~/.dstack/server/config.yml"  # where dstack's server reads it, on the machine it runs on

BOOT = 15 * 60 * SECOND  # longest life of a machine before its task starts; dstack gives up earlier
END = 15 * 60 * SECOND  # how long dstack goes on trying to end a machine
_EXAMPLE = "rocm-dstack-hotaisle"

_SHOWN = ("amddevcloud", "hotaisle")  # backends with a block for the server in docs/amd_devcloud_setup.md


def backend_block(project: str) -> str:
    """The YAML to merge into the server's `~/.dstack/server/config.yml`."""
    return f"""\
projects:
  - name: {project}
    backends:
      - type: amddevcloud
        creds:
          type: api_key
          api_key: <the value of DSTACK_AMDDEVCLOUD_API_KEY>
"""


class DstackOffer(msgspec.Struct, frozen=True, kw_only=True):
    """A machine dstack could rent for the task."""

    backend: str
    instance: str
    region: str
    gpu: str  # `1 × MI300X 192GB`; empty without one
    price: int  # micro-dollars an hour
    spot: bool
    availability: str  # dstack's word: `available`, `idle`, `busy`, `not_available`, `no_quota`, `unknown`

    @property
    def usable(self) -> bool:
        return self.availability not in ("not_available", "no_quota")


class _OfferRow(msgspec.Struct):
    """An offer of `runs/get_plan`, as far as we read it."""

    instance: InstanceType
    price: Price
    backend: str | None = None
    region: str | None = None
    availability: str | None = None


def _offer(row: dict[str, object]) -> DstackOffer | None:
    try:
        wire = msgspec.convert(row, _OfferRow)
    except msgspec.ValidationError:
        return None
    resources = wire.instance.resources or Resources()
    gpus = resources.gpus
    size = f" {gpus[0].memory_mib // 1024}GB" if gpus and gpus[0].memory_mib is not None else ""
    return DstackOffer(
        backend=str(wire.backend),
        instance=str(wire.instance.name),
        region=str(wire.region),
        gpu=f"{len(gpus)} × {gpus[0].name}{size}" if gpus else "",
        price=round(wire.price * DOLLAR),
        spot=resources.spot is True,
        availability=str(wire.availability),
    )


def cloud_key(*, is_set: bool, backends: tuple[str, ...] = ()) -> Check:
    if not is_set:
        message = f"{CLOUD_KEY} is not set here; Steno does not need it, dstack's server does"
        return Check(name="cloud_key", message=message)
    message = f"{CLOUD_KEY} is set; Steno does not use it, it belongs in {PLACE} of dstack's server"
    missing = bool(backends) and "amddevcloud" not in backends
    return Check(name="cloud_key", state=CheckState.WARNING if missing else CheckState.OK, message=message)


@dataclass
class Diagnosis:
    """Checks all that a submission of the task needs of a server. It changes nothing and rents no machine."""

    client: Client
    task: Mapping[str, object]
    nodes: int | None  # as for `fleet.plan_fleet`
    timeout: IdleSetting | None = None  # Steno's own idle timeout; None: leave the idle check out
    cloud_key_set: bool = False
    checks: list[Check] = field(default_factory=list)
    server_version: str | None = None
    user: str | None = None
    backends: tuple[str, ...] = ()
    offers: tuple[DstackOffer, ...] = ()

    @property
    def ok(self) -> bool:
        return all(check.state is not CheckState.FAILED for check in self.checks)

    def look(self) -> Self:
        """All checks; those after a failure are skipped."""
        steps: tuple[tuple[str, Callable[[], None], type[StenoError] | None], ...] = (
            ("server", self._server, ProviderUnreachable),
            ("token", self._token, ProviderUnreachable),
            ("project", self._project, ProjectNotFound),
            ("backend", self._backend, None),
            ("fleet", self._fleet, None),
            ("offers", self._look_for_offers, None),
        )
        for name, step, kind in steps:
            if not self.ok:
                self._add(name, "not checked, because of the failure above", CheckState.SKIPPED)
                continue
            try:
                step()
            except StenoError as error:
                problem = None if kind is None else kind(str(error))
                self.checks.append(Check(name=name, state=CheckState.FAILED, message=str(error), error=problem))
        self.checks.append(cloud_key(is_set=self.cloud_key_set, backends=self.backends))
        return self

    def _add(self, name: str, message: str, state: CheckState = CheckState.OK) -> None:
        self.checks.append(Check(name=name, state=state, message=message))

    def _server(self) -> None:
        address = self.client.address
        answer = self.client.ask("/api/server/get_info")
        version = at(answer.json(), "server_version")
        if answer.status in (None, 401, 403):
            raise self.client.trouble(answer, "reach the server")
        if not isinstance(version, str):
            raise ProviderError(
                f"{address.url} answers (HTTP {answer.status}), but not as a dstack server does; check the address"
            )
        self.server_version, message = version, f"dstack {version} at {address.url}"
        parts = tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())
        if parts and not OLDEST <= parts <= NEWEST:
            self._add("server", f"{message}; Steno is tried with 0.19.37 to 0.22.5", CheckState.WARNING)
        else:
            self._add("server", message)

    def _token(self) -> None:
        # the answer also holds the user's token and private key: take two fields only
        account = self._object(self.client.ask("/api/users/get_my_user"), "look up the user of the token")
        self.user = str(account.get("username"))
        self._add("token", f"the token is {self.user}'s ({account.get('global_role')})")

    def _project(self) -> None:
        # lists answer `200 []` for a project we cannot see; this route gives an error
        project = self.client.address.project
        shape = self._object(self.client.ask(f"/api/projects/{project}/get"), "look up the project")
        names = [row.get("name") for row in objects(shape.get("backends"))]
        self.backends = tuple(sorted(name for name in names if isinstance(name, str)))
        self._add("project", f"project {project} is visible")

    def _backend(self) -> None:
        project, named = self.client.address.project, self.task.get("backends")
        wanted = [str(name) for name in named] if isinstance(named, list) else []
        missing = sorted(set(wanted) - set(self.backends))
        if not self.backends or (wanted and len(missing) == len(wanted)):
            message = (
                f"project {project} has no backend{' ' + ' or '.join(missing) if missing else ''}; "
                f"add it to {PLACE} on the server's machine and restart the server"
            )
            if not missing or missing[0] in _SHOWN:
                message += " (docs/amd_devcloud_setup.md has the block)"
            raise ProviderError(message)
        message = f"backends: {', '.join(self.backends)}"
        if missing:
            message += f"; the task also names {', '.join(missing)}, which the project does not have"
        self._add("backend", message, CheckState.WARNING if missing else CheckState.OK)

    def _fleet(self) -> None:
        fleets, normal = fleet.list_fleets(self.client), normal_task(self.task)
        plan = fleet.plan_fleet(normal, fleets, project=self.client.address.project, nodes=self.nodes)
        if not fleet.needs_fleet(self.server_version):
            self._add("fleet", f"dstack {self.server_version} makes the fleet a task needs itself")
        elif plan is not None:
            most = "any number of" if self.nodes is None else f"0 to {self.nodes}"
            self._add(
                "fleet", f"none of {len(fleets)} fleets fits; submit makes {plan.name} ({most} machines, none now)"
            )
        else:
            fitting = [str(row.get("name")) for row in fleets if fleet.fits(row, normal)]
            self._add("fleet", f"fleet {', '.join(fitting)} fits" if fitting else "the task names its own fleet")
        if self.timeout is not None:
            idle = idling(normal, fleets, self.timeout)
            self._add("idle", idle.message)
            for line in idle.fleets:
                self._add("idle", line, CheckState.WARNING)

    def _look_for_offers(self) -> None:
        answer = ask_plan(self.client, self.task, self.server_version, most=MOST_OFFERS, patience=PRICING)
        plans = self._object(answer, "ask for offers").get("job_plans")
        first = plans[0] if isinstance(plans, list) and plans else None
        self.offers = tuple(offer for offer in map(_offer, objects(at(first, "offers"))) if offer is not None)
        usable = [offer for offer in self.offers if offer.usable]
        if not self.offers:
            raise ProviderError("no machine of the project's backends fits the task; ask for less, or for another GPU")
        if not usable:
            message = f"{len(self.offers)} offers, none available now; wait, or ask for another GPU"
            self._add("offers", message, CheckState.WARNING)
        else:
            best = min(usable, key=lambda offer: offer.price)
            which = f"{best.gpu or best.instance}, {best.backend}"
            self._add("offers", f"{len(self.offers)} offers from ${best.price / 1e6:.2f}/h ({which})")

    def _object(self, answer: HttpAnswer, what: str) -> dict[str, object]:
        content = answer.json()
        if not answer.ok or not isinstance(content, dict):
            raise self.client.nonsense(what, "object") if answer.ok else self.client.trouble(answer, what)
        return content


def checkup(settings: Settings, open_: Callable[[], DstackProvider], *, wanted: bool, trial: bool) -> Checkup:
    """Server, token, project, backend, fleet, idle timeout and offers: for this folder's task as `submit` would send
    it, else, and for a trial, for the shipped example.

    `wanted`: the settings name dstack; otherwise a server is asked only if its address is set.
    """
    key = settings.value("dstack.amddevcloud_api_key") is not None
    diagnosis: Diagnosis | None = None
    problem: StenoError | None = None
    checks: tuple[Check, ...] = ()
    if wanted or settings.value("dstack.url") is not None:
        idle = settings.find("vms.idle_timeout")
        limit = IdleSetting(limit=timeout(idle.value or "off"), origin=idle.source)
        try:
            expect_package()
            task, checks = _task(settings)
            if task is None or trial:
                task, line = example(), f"the checks below are for the shipped example, {example_file().parent.name}"
                checks += (Check(name="task", message=line),)
            with closing(open_()) as provider:
                diagnosis = Diagnosis(provider.client, task, fleet_nodes(settings), limit, cloud_key_set=key).look()
        except (NotConfigured, ProjectNotFound) as error:
            problem = error
    checks += tuple(diagnosis.checks) if diagnosis is not None else (cloud_key(is_set=key),)
    failed = () if diagnosis is None else [check.name for check in diagnosis.checks if check.state is CheckState.FAILED]
    block = backend_block(settings.value("project") or "main") if "backend" in failed or key else None
    server = "For ~/.dstack/server/config.yml on the machine of dstack's server:"
    return Checkup(
        checks=checks,
        problem=problem,
        absent=diagnosis is None and problem is None,
        details={
            "dstack": None if diagnosis is None else {"version": diagnosis.server_version, "user": diagnosis.user},
            "dstack_problem": None if problem is None else str(problem),
            "offers": [] if diagnosis is None else diagnosis.offers,
            "server_configuration": block,
        },
        note=None if block is None else f"{server}\n\n{block}",
        trial=_trial(diagnosis) if diagnosis is not None and trial else None,
    )


def example_file() -> Path:
    """The task file of the shipped MI300X example, installed or in the source tree. StenoError: there is none."""
    root = Path(__file__).resolve().parents[3]
    for folder in (root / "cli" / "_examples", root / "examples"):
        file = folder / _EXAMPLE / TASK_FILES[0]
        if file.is_file():
            return file
    raise StenoError(f"this installation has no examples/{_EXAMPLE}; take it from Steno's source")


def example() -> dict[str, object]:
    file = example_file()
    return complete_task(read_task_file(file), os.environ, str(file))


def worst_case(price: int, *, run: int, idle: int) -> int:
    """The most one machine can cost, from boot to end: micro-dollars. `price` is per hour; times are microseconds."""
    return -(-price * (BOOT + run + idle + END) // (3600 * SECOND))


def _trial(diagnosis: Diagnosis) -> Trial:
    """At the price of the dearest offer: dstack takes the next where the first has no machine."""
    price = max((offer.price for offer in diagnosis.offers if offer.usable), default=0)
    task = normal_task(example())
    limits = (task.get("max_duration"), task.get("idle_duration"))
    run, idle = (value * SECOND if isinstance(value, int) and value > 0 else 0 for value in limits)
    return Trial(
        file=example_file(), hourly=price, run=run, idle=idle, worst_case=worst_case(price, run=run, idle=idle)
    )


def _task(settings: Settings) -> tuple[dict[str, object] | None, tuple[Check, ...]]:
    """This folder's task as `submit` would send it, if dstack accepts it; else if a plain command names an image."""
    file = next((file for file in map(Path, TASK_FILES) if file.is_file()), None)
    gpu = default_gpu(settings)
    if file is not None:
        lines = [f"{file.name} is a valid task"]
        try:
            task = read_task_file(file)
            profile = find_profile(None, os.environ)
            if profile is not None:
                task, line = with_profile(task, profile)
                lines.append(line)
            draft = Draft(configuration=task, where=file.name, environ=os.environ, folder=Path.cwd())
            task = completed(draft, settings)
        except (TaskInvalid, UnreadableInput) as error:
            return None, (Check(name="task", state=CheckState.WARNING, message=str(error)),)
        return task, tuple(Check(name="task", message=line) for line in lines)
    if gpu is not None and needs_image({"resources": {"gpu": gpu}}):
        message = (
            f"a command without a task file asks for {gpu} (setting dstack.gpu) and needs --image, for example "
            f"--image {EXAMPLE_IMAGE}: dstack's default image supports only NVIDIA GPUs"
        )
        return None, (Check(name="task", state=CheckState.WARNING, message=message),)
    return None, (Check(name="task", message=f"no {TASK_FILES[0]} here; `steno submit -- COMMAND` needs none"),)
