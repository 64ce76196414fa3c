"""The settings there are: names, variables, defaults, and what a value must be."""

import re
from typing import Protocol

import msgspec

from engine.settings.known import Block, Family, Known
from engine.settings.profiles import PROFILES
from engine.settings.values import (
    alerts,
    budget,
    host,
    machines,
    one_of,
    origins,
    port,
    positive_duration,
    rate,
    submit_rate,
    thresholds,
    timeout,
    webhook,
)
from events.clock import parse_duration

GENERAL: tuple[Known, ...] = (
    Known(name="record", variables=("STENO_RECORD",), help="where the record is: a path (SQLite) or an SQLAlchemy URL"),
    Known(
        name="profile",
        variables=("STENO_PROFILE",),
        help="how long machines are kept warm, by kind of work: development, batch, infrequent, one-off, no-reuse",
        parse=one_of(*PROFILES),
    ),
    Known(
        name="vms.mode",
        variables=("STENO_VMS_MODE",),
        default="provider",
        help="who chooses a run's machine: provider (it reuses its idle ones) or pool (Steno keeps them)",
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
        parse=parse_duration,
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
        help="notices sent to the webhook: run_end, anomaly, budget, orphan, separated by commas; off: none",
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
        help="one container a task: providers of containers do that anyway",
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
        parse=parse_duration,
        help="the least time that backend charges for a machine",
    ),
    Family(
        pattern="billing.<backend>.granularity",
        names=re.compile(r"billing\.[a-z][a-z0-9_-]*\.granularity"),
        parse=parse_duration,
        help="that backend charges whole multiples of this time",
    ),
)


class Blocks(Protocol):
    """The providers' settings; other packages than Steno are searched only for a name that is not built in."""

    def names(self) -> tuple[str, ...]:
        """Every provider there is."""
        ...

    def built_in(self) -> tuple[Block, ...]:
        """Those that come with Steno."""
        ...

    def named(self, provider: str) -> Block | None:
        """That of one provider; None: there is no such provider.

        Raises:
            NotConfigured: its package cannot be loaded.
        """
        ...


class Table:
    """The settings there are in one call: the general ones and those of the providers that matter to it."""

    def __init__(self, blocks: Blocks) -> None:
        self._blocks = blocks
        self.blocks = list(blocks.built_in())
        """Blocks in the table; one of another package joins when its name is met."""

    @property
    def known(self) -> tuple[Known, ...]:
        """All of them, in the order of `steno config`."""
        built_in = ", ".join(block.provider for block in self._blocks.built_in())
        provider = Known(
            name="provider",
            variables=("STENO_PROVIDER",),
            default="local",
            help=f"where tasks run: {built_in}, or a provider that another package registers",
            parse=self._provider,
        )
        project = Known(name="project", variables=("STENO_PROJECT",), help="the project at the provider")
        found = [GENERAL[0], provider, project, GENERAL[1], *(one for block in self.blocks for one in block.known)]
        return tuple(map(self._with_variables, (*found, *GENERAL[2:])))

    def add(self, provider: str) -> bool:
        """Take in the settings of a provider, if there is one of that name; False if they were there, or there is none.

        Raises:
            NotConfigured: its package cannot be loaded.
        """
        if any(block.provider == provider for block in self.blocks):
            return False
        block = self._blocks.named(provider)
        if block is not None:
            self.blocks.append(block)
        return block is not None

    def setting(self, name: str) -> Known | None:
        """The setting of that name, one of a family included; None: there is none.

        GPU models are compared without case, so `rates.mi300x` is `rates.MI300X`.
        """
        if name.startswith("rates."):
            rates = {known.name.lower(): known.name for known in GENERAL if known.name.startswith("rates.")}
            name = rates.get(name.lower(), "rates." + name.removeprefix("rates.").upper())
        found = next((known for known in self.known if known.name == name), None)
        if found is not None:
            return None if found.unused else found
        for family in FAMILIES:
            if family.names.fullmatch(name):
                return Known(name=name, help=family.help, parse=family.parse)
        prefix, dot, _ = name.partition(".")
        return self.setting(name) if dot and self.add(prefix) else None

    def _provider(self, name: str) -> str:
        if all(block.provider != name for block in self.blocks) and self._blocks.named(name) is None:
            raise ValueError(f"one of {', '.join(self._blocks.names())}")
        return name

    def _with_variables(self, known: Known) -> Known:
        more = [variable for block in self.blocks for variable in block.variables.get(known.name, ())]
        return msgspec.structs.replace(known, variables=(*known.variables, *more)) if more else known
