"""The settings there are: names, variables, defaults, and what a value must be."""

import re

import msgspec

from engine.settings.profiles import PROFILES
from engine.settings.service import host, origins, port, submit_rate
from engine.settings.values import (
    Parse,
    alerts,
    budget,
    duration,
    machines,
    one_of,
    positive_duration,
    price,
    rate,
    thresholds,
    timeout,
    webhook,
    whole,
)


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """One setting Steno knows."""

    name: str
    """As in `steno.toml` (`dstack.url` is `url` under `[dstack]`), in flags and in `steno config`."""
    variables: tuple[str, ...] = ()
    """Environment variables that set it, the strongest first."""
    default: str | None = None
    help: str
    secret: bool = False
    presence_only: bool = False
    """Only whether it is set is ever kept."""
    parse: Parse | None = None
    """Gives the value its text means; ValueError says what it must be."""
    unused: bool = False
    """A variable of the project Steno began with that nothing of Steno reads: listed only where somebody sets it."""


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `steno.toml` whose names are the user's to choose."""

    pattern: str
    """`rates.<GPU>`: how the names look to a person."""
    names: re.Pattern[str]
    parse: Parse
    help: str


TABLE: tuple[Known, ...] = (
    Known(name="record", variables=("STENO_RECORD",), help="where the record is: a path (SQLite) or an SQLAlchemy URL"),
    Known(
        name="provider",
        variables=("STENO_PROVIDER",),
        default="local",
        help="where tasks run: local or dstack",
        parse=one_of("local", "dstack"),
    ),
    Known(name="project", variables=("STENO_PROJECT", "DSTACK_PROJECT"), help="dstack's project"),
    Known(
        name="profile",
        variables=("STENO_PROFILE",),
        help="how long machines are kept warm, by kind of work: development, batch, infrequent, one-off, no-reuse",
        parse=one_of(*PROFILES),
    ),
    Known(name="dstack.url", variables=("STENO_DSTACK_URL", "DSTACK_SERVER_URL"), help="dstack's server"),
    Known(
        name="dstack.token", variables=("STENO_DSTACK_TOKEN", "DSTACK_TOKEN"), help="our token at dstack", secret=True
    ),
    Known(name="dstack.config", variables=("STENO_DSTACK_CONFIG",), help="dstack's own configuration file"),
    Known(name="dstack.backend", variables=("STENO_BACKEND", "DSTACK_BACKEND"), help="backend of tasks that name none"),
    Known(
        name="dstack.gpu",
        variables=("STENO_GPU", "AMD_DEFAULT_GPU"),
        default="MI300X",
        help="GPU of a command for dstack without --gpu and without a task file; off: none",
    ),
    Known(
        name="dstack.fleet_nodes",
        variables=("STENO_FLEET_NODES",),
        help="the most machines a fleet that Steno makes may hold; not set: as many as vms.max",
        parse=whole,
    ),
    Known(
        name="dstack.amddevcloud_api_key",
        variables=("DSTACK_AMDDEVCLOUD_API_KEY",),
        help="the backend's cloud key: dstack's server needs it, Steno never sends or records it",
        secret=True,
        presence_only=True,
    ),
    Known(
        name="vms.mode",
        variables=("STENO_VMS_MODE",),
        default="provider",
        help="who chooses a run's machine: provider (dstack reuses its idle ones) or pool (Steno keeps them)",
        parse=one_of("provider", "pool"),
    ),
    Known(
        name="vms.max",
        variables=("STENO_MAX_VMS", "AMD_VM_MAX_CONCURRENT"),
        default="3",
        help="the most machines of ours at once; more runs wait in Steno's queue; off: no limit",
        parse=machines,
    ),
    Known(
        name="vms.idle_timeout",
        variables=("STENO_IDLE_TIMEOUT", "AMD_VM_IDLE_TIMEOUT"),
        default="600",
        help="how long a machine may idle before it is ended: seconds, 10m, 0, or off; a task's shorter one wins",
        parse=timeout,
    ),
    Known(
        name="vms.share",
        variables=("STENO_VMS_SHARE",),
        default="any",
        help="whose runs may follow one another on one machine: any, or user (needs vms.mode = pool)",
        parse=one_of("any", "user"),
    ),
    Known(
        name="queue.patience",
        variables=("STENO_QUEUE_PATIENCE",),
        default="30m",
        help="how long a run is asked for again where the provider has no capacity; 0: it fails at once",
        parse=duration,
    ),
    Known(
        name="budget.total",
        variables=("STENO_BUDGET", "AMD_GRANT_CREDITS_TOTAL"),
        default="1400.00",
        help="what may be spent in all, dollars; a submission that could overrun it is refused; off: no budget",
        parse=budget,
    ),
    Known(
        name="budget.alerts",
        variables=("STENO_BUDGET_ALERTS", "AMD_COST_ALERT_THRESHOLD"),
        default="0.8",
        help="shares of the budget at which an alert is given, once each, with commas between; off: none",
        parse=thresholds,
    ),
    Known(
        name="budget.assumed_duration",
        variables=("STENO_ASSUMED_DURATION",),
        default="24h",
        help="what a run without max_duration is taken to last at worst",
        parse=positive_duration,
    ),
    Known(
        name="rates.MI300X",
        variables=("AMD_MI300X_HOURLY_RATE",),
        default="1.99",
        help="dollars an hour of one MI300X; set by you it stands instead of the recorded price of on-demand machines",
        parse=rate,
    ),
    Known(
        name="local.price",
        variables=("STENO_LOCAL_PRICE",),
        default="0",
        help="what this machine is taken to cost, dollars an hour, so that all of this can be tried for nothing",
        parse=price,
    ),
    Known(
        name="local.boot",
        variables=("STENO_LOCAL_BOOT",),
        default="0",
        help="how long a machine of the local provider is taken to need to start",
        parse=duration,
    ),
    Known(name="local.gpu", variables=("STENO_LOCAL_GPU",), help="GPU model machines of the local provider are given"),
    Known(
        name="alerts.webhook",
        variables=("STENO_WEBHOOK",),
        help="where alerts are posted; an address can be a key to itself, so it is not shown",
        secret=True,
        parse=webhook,
    ),
    Known(
        name="alerts.secret",
        variables=("STENO_WEBHOOK_SECRET",),
        help="what alerts are signed with (HMAC-SHA256)",
        secret=True,
    ),
    Known(
        name="alerts.on",
        variables=("STENO_ALERTS_ON",),
        default="run_end,anomaly,budget,orphan",
        help="what the webhook is told of: run_end, anomaly, budget, orphan, with commas between; off: nothing",
        parse=alerts,
    ),
    Known(
        name="api.url",
        variables=("STENO_API_URL",),
        help="the address of the HTTP service as people reach it, for the links of notices",
        parse=webhook,
    ),
    Known(
        name="api.host",
        variables=("STENO_API_HOST",),
        default="127.0.0.1",
        help="where the HTTP service listens; anywhere but on loopback it needs a token (steno token create)",
        parse=host,
    ),
    Known(
        name="api.loopback",
        variables=("STENO_API_LOOPBACK",),
        default="open",
        help="who is let in from this machine: open (every user of it, without a token), or token (as from elsewhere)",
        parse=one_of("open", "token"),
    ),
    Known(
        name="api.port",
        variables=("STENO_API_PORT",),
        default="8642",
        help="the HTTP service's port; 0: any that is free",
        parse=port,
    ),
    Known(
        name="api.cors",
        variables=("STENO_API_CORS",),
        help="origins whose pages may call the HTTP service, with commas between; not set: only its own",
        parse=origins,
    ),
    Known(
        name="api.submit_rate",
        variables=("STENO_API_SUBMIT_RATE",),
        default="30/m",
        help="how many runs one caller may ask for over HTTP in a second, minute or hour: 1/s, 30/m; off: no limit",
        parse=submit_rate,
    ),
    Known(
        name="kernel.image",
        variables=("STENO_KERNEL_IMAGE",),
        default="rocm/dev-ubuntu-24.04:6.4-complete",
        help="image of the tasks that kernels are checked and timed in; it has Python and hipcc",
    ),
    Known(
        name="kernel.compiler",
        variables=("STENO_KERNEL_COMPILER",),
        default="auto",
        help="what compiles kernels: hipcc, g++, clang++ (both on the CPU), or auto: the first of them that is there",
        parse=one_of("auto", "hipcc", "g++", "clang++"),
    ),
    Known(
        name="kernel.max_duration",
        variables=("STENO_KERNEL_MAX_DURATION",),
        default="10m",
        help="how long a kernel's task may take at most",
        parse=positive_duration,
    ),
    Known(
        name="kernel.cancel_on_close",
        variables=("STENO_KERNEL_CANCEL_ON_CLOSE",),
        default="false",
        help="true: a kernel is stopped when whoever submitted it closes the stream; false: it goes on",
        parse=one_of("true", "false"),
    ),
    Known(
        name="kernel.unsafe_local",
        variables=("STENO_KERNEL_UNSAFE_LOCAL",),
        default="false",
        help="true: tokens may submit kernels to the provider local, where they run as the service's user",
        parse=one_of("true", "false"),
    ),
    Known(
        name="container.isolation",
        variables=("AMD_CONTAINER_ISOLATION",),
        default="true",
        help="one container a task: dstack does that anyway",
        unused=True,
    ),
    Known(
        name="container.memory_limit",
        variables=("AMD_CONTAINER_MEMORY_LIMIT",),
        default="16GB",
        help="memory of a task: say `resources.memory` in the task file",
        unused=True,
    ),
    Known(
        name="container.cpu_limit",
        variables=("AMD_CONTAINER_CPU_LIMIT",),
        default="4.0",
        help="processors of a task: say `resources.cpu` in the task file",
        unused=True,
    ),
)

_MODEL = "[A-Za-z0-9][A-Za-z0-9_-]*"
FAMILIES: tuple[Family, ...] = (
    Family(
        pattern="rates.<GPU>",
        names=re.compile(rf"rates\.{_MODEL}"),
        parse=rate,
        help="dollars an hour of one GPU of that model, instead of the recorded price of on-demand machines",
    ),
    Family(
        pattern="billing.<backend>.minimum",
        names=re.compile(r"billing\.[a-z][a-z0-9_-]*\.minimum"),
        parse=duration,
        help="the least time that backend charges for a machine",
    ),
    Family(
        pattern="billing.<backend>.granularity",
        names=re.compile(r"billing\.[a-z][a-z0-9_-]*\.granularity"),
        parse=duration,
        help="that backend charges whole multiples of this time",
    ),
)

_BY_NAME = {known.name: known for known in TABLE}
_BY_LOWER = {known.name.lower(): known.name for known in TABLE if known.name.startswith("rates.")}


def setting(name: str) -> Known | None:
    """The setting of that name, one of a family included; None: there is none.

    GPU models are compared without case, so `rates.mi300x` is `rates.MI300X`.
    """
    if name.startswith("rates."):
        name = _BY_LOWER.get(name.lower(), "rates." + name.removeprefix("rates.").upper())
    known = _BY_NAME.get(name)
    if known is not None:
        return None if known.unused else known
    for family in FAMILIES:
        if family.names.fullmatch(name):
            return Known(name=name, help=family.help, parse=family.parse)
    return None
