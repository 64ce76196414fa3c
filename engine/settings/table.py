"""All settings: names, variables, defaults, and valid values."""

import re
from collections.abc import Callable, Iterable

import msgspec

from steno.engine.settings import values
from steno.engine.settings.values import Block, Known, setting
from steno.events.clock import parse_duration


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Defaults of a kind of task, in the words of a task file."""

    idle_duration: str
    creation_policy: str | None = None
    help: str


PROFILES: dict[str, Profile] = {
    "development": Profile(idle_duration="5m", help="you run it again within minutes"),
    "batch": Profile(idle_duration="15m", help="jobs that come every ten to fifteen minutes"),
    "infrequent": Profile(idle_duration="2m", help="now and then"),
    "one-off": Profile(idle_duration="1m", help="once"),
    "no-reuse": Profile(idle_duration="0m", creation_policy="create", help="a new machine, given back at once"),
}  # kinds of work, and how long their machines are kept warm


GENERAL: tuple[Known, ...] = (
    setting("record", "STENO_RECORD")(help="Place of the record: a path (SQLite) or an SQLAlchemy URL."),
    setting("profile", "STENO_PROFILE", parse=values.one_of(*PROFILES))(
        help="Idle timeout by kind of work: development, batch, infrequent, one-off, no-reuse."
    ),
    setting("vms.mode", "STENO_VMS_MODE", default="provider", parse=values.one_of("provider", "pool"))(
        help="Who assigns runs to machines: provider, or pool (Steno assigns them to the machines it keeps)."
    ),
    setting("vms.max", "STENO_MAX_VMS", "AMD_VM_MAX_CONCURRENT", default="3", parse=values.machines)(
        help="Maximum number of machines that Steno creates. Further runs wait in the queue. off: no limit."
    ),
    setting("vms.idle_timeout", "STENO_IDLE_TIMEOUT", "AMD_VM_IDLE_TIMEOUT", default="600", parse=values.timeout)(
        help="Stop a machine after it was idle for this long: seconds, 10m, 0, off. A task may ask for less."
    ),
    setting("vms.busy_idle_timeout", "STENO_BUSY_IDLE_TIMEOUT", default="off", parse=values.busy_timeout)(
        help="Stop a run after its GPUs were idle for this long: 2h. off: never. STENO_KEEP_IDLE in its env keeps it."
    ),
    setting("vms.share", "STENO_VMS_SHARE", default="any", parse=values.one_of("any", "user"))(
        help="Who shares a machine: any, or user (only runs of the same user; needs vms.mode = pool)."
    ),
    setting("queue.patience", "STENO_QUEUE_PATIENCE", default="30m", parse=parse_duration)(
        help="Without capacity or an offer, go on trying a run for this long. 0: it fails at once."
    ),
    setting("samples.every", "STENO_SAMPLES_EVERY", default="10m", parse=parse_duration)(
        help="How often the samples of a run's GPUs are fetched. 0: never."
    ),
    setting("budget.total", "STENO_BUDGET", "AMD_GRANT_CREDITS_TOTAL", site_default="1400.00", parse=values.budget)(
        help="Total budget in dollars. A submission that could exceed it is refused. off: no budget. Not set: none, or "
        "1400.00 where an AMD_ variable sets any setting."
    ),
    setting("budget.alerts", "STENO_BUDGET_ALERTS", "AMD_COST_ALERT_THRESHOLD", default="0.8", parse=values.thresholds)(
        help="Shares of the budget that raise an alert, separated by commas: 0.5, 0.8. off: no alerts."
    ),
    setting("budget.assumed_duration", "STENO_ASSUMED_DURATION", default="24h", parse=values.positive_duration)(
        help="Worst-case duration of a run without max_duration."
    ),
    setting("rates.MI300X", "AMD_MI300X_HOURLY_RATE", default="1.99", parse=values.rate)(
        help="Dollars per hour of one MI300X. If set, it replaces the price that is reported for on-demand machines."
    ),
    setting("alerts.webhook", "STENO_WEBHOOK", secret=True, parse=values.webhook)(
        help="URL that receives notices. It is never shown: a URL can contain a key."
    ),
    setting("alerts.secret", "STENO_WEBHOOK_SECRET", secret=True)(help="Key that signs notices (HMAC-SHA256)."),
    setting("alerts.on", "STENO_ALERTS_ON", default="run_end,anomaly,budget,orphan", parse=values.alerts)(
        help="Notices to send, separated by commas: run_end, anomaly, budget, orphan, start, stuck, wait, vanished. "
        "off: none."
    ),
    setting("alerts.wait", "STENO_ALERTS_WAIT", default="1h", parse=values.busy_timeout)(
        help="A run that waits for longer than this is a notice of the kind wait. off: never."
    ),
    setting("causes.rules", "STENO_CAUSES")(
        help="A TOML file with rules of your own for `steno causes`, read before Steno's."
    ),
    setting("output.keep", "STENO_OUTPUT_KEEP", default="90", parse=values.days)(
        help="Days for which the output of runs is kept in the record. 0, off: none is kept."
    ),
    setting("output.head", "STENO_OUTPUT_HEAD", default="8MB", parse=values.size)(
        help="Bytes kept of the beginning of each output: 8MB, 1GiB, 0."
    ),
    setting("output.tail", "STENO_OUTPUT_TAIL", default="24MB", parse=values.size)(
        help="Bytes kept of the end of each output, besides its beginning."
    ),
    setting("otlp.endpoint", "STENO_OTLP_ENDPOINT", secret=True, parse=values.webhook)(
        help="OTLP/HTTP endpoint that receives traces of runs, and metrics: http://localhost:4318. It is never shown."
    ),
    setting("api.url", "STENO_API_URL", parse=values.webhook)(
        help="Public address of the HTTP service, for links in notices."
    ),
    setting("api.host", "STENO_API_HOST", default="127.0.0.1", parse=values.host)(
        help="Address that the HTTP service listens on. Other than loopback requires a token (steno token create)."
    ),
    setting("api.loopback", "STENO_API_LOOPBACK", default="open", parse=values.one_of("open", "token"))(
        help="Access from this machine: open (every local user, without a token), or token. On local, root must choose."
    ),
    setting("api.port", "STENO_API_PORT", default="8642", parse=values.port)(
        help="Port of the HTTP service. 0: any free port."
    ),
    setting("api.cors", "STENO_API_CORS", parse=values.origins)(
        help="Origins whose pages may call the HTTP service, separated by commas. Not set: only its own."
    ),
    setting("api.submit_rate", "STENO_API_SUBMIT_RATE", default="30/m", parse=values.submit_rate)(
        help="Maximum rate of submissions per caller over HTTP: 1/s, 30/m, 100/h. off: no limit."
    ),
    setting("kernel.image", "STENO_KERNEL_IMAGE", default="rocm/dev-ubuntu-24.04:6.4-complete")(
        help="Container image for kernels; it must have Python 3, numpy and hipcc."
    ),
    setting(
        "kernel.compiler",
        "STENO_KERNEL_COMPILER",
        default="auto",
        parse=values.one_of("auto", "hipcc", "clang++-19", "g++", "clang++"),
    )(
        help="HIP compiler: hipcc, clang++-19 (Debian's, without ROCm), g++ or clang++ (both for the CPU), or auto: "
        "hipcc if installed, else one for the CPU."
    ),
    setting("kernel.max_duration", "STENO_KERNEL_MAX_DURATION", default="10m", parse=values.positive_duration)(
        help="Longest duration of a kernel's task."
    ),
    setting("kernel.batch_memory", "STENO_KERNEL_BATCH_MEMORY", default="1GiB", parse=values.memory)(
        help="Most memory for the tensors of the calls that are timed together."
    ),
    setting("kernel.cancel_on_close", "STENO_KERNEL_CANCEL_ON_CLOSE", default="false", parse=values.flag)(
        help="true: stop a kernel when its submitter closes the stream."
    ),
    setting("kernel.warm", "STENO_KERNEL_WARM", default="auto", parse=values.one_of("on", "off", "auto"))(
        help="on, auto: run kernels in containers on machines that stay warm. off: refuse kernels, except with "
        "kernel.unsafe_local."
    ),
    setting("kernel.machines", "STENO_KERNEL_MACHINES", default="1", parse=values.whole)(
        help="Maximum number of warm machines for kernels, per GPU model."
    ),
    setting("kernel.unsafe_local", "STENO_KERNEL_UNSAFE_LOCAL", default="false", parse=values.flag)(
        help="true: kernels on this machine run as the service's user, without isolation. For your own code only."
    ),
    setting("listener.token", "STENO_LISTENER_TOKEN", secret=True)(
        help="Token that the engine sends to a listener; at least 32 characters."
    ),
    setting("container.isolation", "AMD_CONTAINER_ISOLATION", default="true", parse=values.isolation)(
        help="Each program of a kernel has a container of its own. Only true is allowed."
    ),
    setting("container.memory_limit", "AMD_CONTAINER_MEMORY_LIMIT", default="16GB", parse=values.memory)(
        help="Memory limit of a kernel's container, including files in its /tmp."
    ),
    setting("container.cpu_limit", "AMD_CONTAINER_CPU_LIMIT", default="4.0", parse=values.cpus)(
        help="Processors of a kernel's container, rounded to a whole number."
    ),
)

_FAMILIES = (
    (re.compile(r"rates\.[A-Za-z0-9][A-Za-z0-9_-]*"), values.rate),
    (re.compile(r"billing\.[a-z][a-z0-9_-]*\.(minimum|granularity)"), parse_duration),
    (re.compile(r"limits\.(user|project|gpu|label)\..+\.(budget|daily)"), values.limit_usd),
    (re.compile(r"limits\.(user|project|gpu|label)\..+\.gpu_hours"), values.limit_hours),
    (re.compile(r"limits\.(user|project|gpu|label)\..+\.(machines|runs)"), values.limit_count),
    (re.compile(r"notify\.[A-Za-z0-9_@.-]+\.url"), values.route_url),
    (re.compile(r"notify\.[A-Za-z0-9_@.-]+\.on"), values.alerts),
    (re.compile(r"notify\.[A-Za-z0-9_@.-]+\.mine"), values.flag),
    (re.compile(r"notify\.[A-Za-z0-9_@.-]+\.quiet"), values.quiet_hours),
    (re.compile(r"notify\.[A-Za-z0-9_@.-]+\.(owner|secret)"), str.strip),
)
"""Settings of `steno.toml` whose names the user chooses, and their parsers: dollars an hour of one GPU; the least time
that a backend charges for a machine, and the time of which it charges whole multiples; what an owner of runs may have;
routes of notices.
"""
_SECRETS = re.compile(r"notify\..*\.(url|secret)")


class Table:
    """The settings of one call: general settings, and those of the providers that matter to it.

    Args:
        built_in: the settings of the providers that come with Steno.
        names: gives the name of every provider; it searches the installed packages.
        named: the settings of one provider; None if there is none. NotConfigured: its package cannot be loaded.
    """

    def __init__(
        self,
        built_in: Iterable[Block],
        names: Callable[[], tuple[str, ...]],
        named: Callable[[str], Block | None],
    ) -> None:
        self._built_in = tuple(built_in)
        self._names = names
        self._named = named
        self.blocks = list(self._built_in)
        """Blocks in the table; one of another package joins when its name first appears."""

    @property
    def known(self) -> tuple[Known, ...]:
        """All of them, in the order of `steno config`."""
        built_in = ", ".join(block.provider for block in self._built_in if not block.hosted)
        provider = setting("provider", "STENO_PROVIDER", default="local", parse=self._provider)(
            help=f"Where tasks run: {built_in}, or a provider of another package."
        )
        project = setting("project", "STENO_PROJECT")(help="Project at the provider.")
        table = [GENERAL[0], provider, project, GENERAL[1], *(known for block in self.blocks for known in block.known)]
        return tuple(map(self._with_variables, (*table, *GENERAL[2:])))

    def add(self, provider: str) -> bool:
        """Add the settings of a provider; False: they were there, or there is none of that name. NotConfigured: its
        package cannot be loaded.
        """
        block = None if any(block.provider == provider for block in self.blocks) else self._named(provider)
        self.blocks += [] if block is None else [block]
        return block is not None

    def setting(self, name: str) -> Known | None:
        """The setting of that name, one of a family included; None: none. GPU models ignore case: `rates.mi300x` is
        `rates.MI300X`.
        """
        if name.startswith("rates."):
            rates = {known.name.lower(): known.name for known in GENERAL if known.name.startswith("rates.")}
            name = rates.get(name.lower(), "rates." + name.removeprefix("rates.").upper())
        if name.startswith("limits.gpu."):
            model, dot, key = name.removeprefix("limits.gpu.").rpartition(".")
            name = f"limits.gpu.{model.upper()}{dot}{key}"
        setting = next((known for known in self.known if known.name == name), None)
        if setting is not None:
            return setting
        for names, parse in _FAMILIES:
            if names.fullmatch(name):
                return Known(name=name, help="", parse=parse, secret=_SECRETS.fullmatch(name) is not None)
        prefix, dot, _ = name.partition(".")
        return self.setting(name) if dot and self.add(prefix) else None

    def _provider(self, name: str) -> str:
        if all(block.provider != name for block in self.blocks) and self._named(name) is None:
            raise ValueError(f"one of {', '.join(self._names())}")
        return name

    def _with_variables(self, known: Known) -> Known:
        more = [variable for block in self.blocks for variable in block.variables.get(known.name, ())]
        return msgspec.structs.replace(known, variables=(*known.variables, *more)) if more else known
