"""Every setting with its value and where the value comes from; and the policy that they describe for one provider.

Later wins: defaults, a provider's own files, `steno.toml` of the user's configuration folder, `steno.toml` of the
current folder, `.env` of the current folder, the environment, flags.
"""

import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from steno.engine.errors import NotConfigured
from steno.engine.settings.table import PROFILES, Table
from steno.engine.settings.values import Block, Known, Values
from steno.engine.state.policy import Billing, OwnerLimit, Policy, Rate
from steno.events.errors import StenoError

SITE = "default of the AMD_ variables"
_LIMITS = "budget, daily, gpu_hours, machines or runs"
_NONE = Block(provider="")
_SHOWN = 60  # characters of a wrong value that a message repeats


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    value: str | None  # the text, as it was given
    parsed: Any = None  # what the text means (`Known.parse`); without a parser, the text
    source: str  # `default`, `SITE`, `flag`, a variable's name (`STENO_RECORD`, `STENO_RECORD in .env`) or a file
    secret: bool = False

    @property
    def given(self) -> bool:
        return self.source not in {"default", SITE, "not set"}

    @property
    def shown(self) -> str | None:
        """The value as it may be printed: a secret says only that it is set."""
        return "set" if self.secret and self.value is not None else self.value

    def __repr__(self) -> str:
        return f"Setting(name={self.name!r}, value={self.shown!r}, source={self.source!r})"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    entries: tuple[Setting, ...]
    variables: dict[str, tuple[str, ...]] = {}
    """Setting name → the environment variables that set it, the strongest first."""
    blocks: tuple[Block, ...] = ()
    problems: dict[str, StenoError] = {}
    """Provider → why its own files could not be read: raised only if a value from them is needed."""

    def find(self, name: str) -> Setting:
        """The setting of that name; KeyError is a mistake of ours, not of the user."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise KeyError(name)

    def value(self, name: str) -> str | None:
        return self.find(name).value

    def parsed(self, name: str) -> Any:
        return self.find(name).parsed

    @property
    def record(self) -> str:
        """The record's address: an SQLAlchemy URL, or a bare path for SQLite."""
        return self.value("record") or ""

    @property
    def provider(self) -> str:
        return self.value("provider") or "local"

    def block(self, provider: str | None) -> Block:
        """The settings of that provider; an empty block if there is none."""
        return next((block for block in self.blocks if block.provider == provider), _NONE)

    def hourly(self, provider: str | None) -> int | None:
        """Micro-dollars an hour that each machine of that provider costs (0: free); None: each has its own price."""
        named = self.block(provider).hourly
        return None if named is None else self.parsed(named)

    def unpriced(self, provider: str | None) -> str | None:
        """The variable that must be set for machines of that provider to have a price; None: none."""
        block = self.block(provider)
        if block.rates is None or self.value(block.rates) is not None:
            return None
        return next(known.variables[0] for known in block.known if known.name == block.rates)


def load_settings(
    table: Table,
    *,
    flags: Mapping[str, str | None],
    environ: Mapping[str, str],
    cwd: Path,
    home: Path,
    config: Path,
    data: Path,
) -> Settings:
    """The settings of one call of Steno.

    Args:
        flags: settings given on the command line, by name (`record`, `api.port`); None: not given.
        cwd: for `steno.toml` and `.env`.
        home: for files of the providers.
        config: the user's configuration folder of Steno.
        data: the user's data folder of Steno, where the record is by default.

    Raises:
        NotConfigured: a file cannot be read, or a value is not valid for its setting.
    """

    def read() -> Values:
        values: Values = {"record": (str(data / "record.db"), "default")}
        for known in table.known:
            if known.default is not None:
                values[known.name] = (known.default, "default")
        for file in (config / "steno.toml", cwd / "steno.toml"):
            values.update(_toml(file, table))
        values.update(_dotenv(cwd / ".env", table))
        values.update(_variables(environ, table))
        values.update((name, (value, "flag")) for name, value in flags.items() if value is not None)
        if any(source.startswith("AMD_") for _, source in values.values()):
            for known in table.known:
                if known.site_default is not None:
                    values.setdefault(known.name, (known.site_default, SITE))
        return values

    built_in, values = len(table.blocks), read()
    table.add(values["provider"][0])
    if len(table.blocks) > built_in:
        values = read()  # a provider of another package has defaults and variables of its own
    failures = ((block.provider, block.own_files(values, home)) for block in table.blocks)
    problems = {provider: error for provider, error in failures if error is not None}
    profile, _ = values.get("profile", ("", ""))
    if profile in PROFILES and values["vms.idle_timeout"][1] == "default":
        values["vms.idle_timeout"] = (PROFILES[profile].idle_duration, f"profile {profile}")
    others = sorted(values.keys() - {known.name for known in table.known})
    own = (known for name in others if (known := table.setting(name)) is not None)
    return Settings(
        entries=tuple(_checked(known, values.get(known.name)) for known in (*table.known, *own)),
        variables={known.name: known.variables for known in table.known},
        blocks=tuple(table.blocks),
        problems=problems,
    )


def _checked(known: Known, given: tuple[str, str] | None) -> Setting:
    if given is None:
        return Setting(name=known.name, value=None, source="not set", secret=known.secret)
    # only the presence of a backend's cloud key concerns us: drop its value here
    value, source = ("set", given[1]) if known.presence_only else given
    try:
        parsed = value if known.parse is None else known.parse(value)
    except ValueError as error:
        text = "set" if known.secret else repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")
        raise NotConfigured(f"{known.name} is {text} ({source}); it must be {error}") from None
    return Setting(name=known.name, value=value, parsed=parsed, source=source, secret=known.secret)


# -- the places settings come from, each read into setting name → (value, place)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise NotConfigured(f"cannot read {path}: {reason}") from None


def _toml(path: Path, table: Table) -> Values:
    """The settings of a `steno.toml`; none if the file does not exist. NotConfigured: not valid TOML, an unknown or
    repeated key, or a value that is neither text, a number nor a list of them (true, false: where text is checked).
    """
    try:
        with _readable(path):
            text = path.read_text(encoding="utf-8") if path.exists() else ""
        content = tomllib.loads(text, parse_float=str)  # 1.99 stays what was written
    except tomllib.TOMLDecodeError as error:
        raise NotConfigured(f"{path} is not valid TOML: {error}") from None
    values: Values = {}
    for name, value in _flat(content, ""):
        known = table.setting(name)
        if known is None:
            known_names = "`steno config` lists them all"
            if name.startswith("limits."):
                known_names = "limits are [limits.user.NAME], or project, gpu or label, with " + _LIMITS
            raise NotConfigured(f"{path} has an unknown setting {name}; {known_names}")
        parts = value if isinstance(value, list) else [value]
        if any(not isinstance(part, str | int) or (isinstance(part, bool) and known.parse is None) for part in parts):
            raise NotConfigured(f"{path}: {name} must be text or a number")
        if known.name in values:
            raise NotConfigured(f"{path} has {known.name} twice; GPU models are compared without case")
        values[known.name] = (
            ", ".join(str(part).lower() if isinstance(part, bool) else str(part) for part in parts),
            str(path),
        )
    return values


def _flat(table: Mapping[str, object], prefix: str) -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _dotenv(path: Path, table: Table) -> Values:
    """The settings of a `.env` file; ignores other variables."""
    if not path.is_file():
        return {}
    from dotenv import dotenv_values

    with _readable(path):
        variables = dotenv_values(path, interpolate=False, encoding="utf-8")
    return _variables(variables, table, suffix=" in .env")


def _variables(environ: Mapping[str, str | None], table: Table, suffix: str = "") -> Values:
    """The settings that variables give; an empty variable counts as not set."""
    names = ((known.name, name) for known in table.known for name in reversed(known.variables))
    return {setting: (text, name + suffix) for setting, name in names if (text := environ.get(name))}


def policy_from(settings: Settings, provider: str | None = None) -> Policy:
    """The policy in force for that provider; rates in micro-dollars, times in microseconds. Without a provider: for one
    whose machines have prices. If a provider gives all its machines one price, estimates assume that. A user's rate is
    an override; the shipped rate of the MI300X is what estimates assume without a recorded price.

    Raises:
        NotConfigured: `vms.share = user` without `vms.mode = pool`: a provider chooses among its idle machines without
            asking who used them.
    """
    mode, share, text = settings.parsed("vms.mode"), settings.find("vms.share"), settings.parsed
    if share.value == "user" and mode != "pool":
        raise NotConfigured(
            f"vms.share is user ({share.source}), and only Steno's own pool can see to that: set vms.mode to pool"
        )
    block = settings.block(provider)
    if block.hosted:
        return Policy(
            mode="pool",
            max_vms=None,
            idle_timeout=text("vms.idle_timeout"),
            share=share.parsed,
            queue_patience=text("queue.patience"),
            assumed=(),
            budget_total=None,
        )
    rates: dict[bool, tuple[Rate, ...]] = {True: (), False: ()}
    for entry in settings.entries:
        if entry.name.startswith("rates.") and entry.value is not None:
            rates[entry.given] += (Rate(gpu=entry.name.removeprefix("rates."), hourly=entry.parsed),)
    rates[False] += tuple(Rate(gpu=gpu, hourly=price) for gpu, price in block.prices(settings.value).items())
    hourly = settings.hourly(provider)
    if hourly is not None:
        rates[False] = (Rate(gpu="", hourly=hourly),) if hourly else ()
    return Policy(
        mode=mode,
        max_vms=None if block.schedules else text("vms.max"),
        idle_timeout=text("vms.idle_timeout"),
        busy_idle_timeout=text("vms.busy_idle_timeout"),
        share=share.parsed,
        queue_patience=text("queue.patience"),
        rates=rates[True],
        assumed=rates[False],
        billing=_billing(settings),
        budget_total=text("budget.total"),
        thresholds=text("budget.alerts"),
        assumed_duration=text("budget.assumed_duration"),
        limits=_limits(settings),
        free=hourly == 0,
    )


def _limits(settings: Settings) -> tuple[OwnerLimit, ...]:
    amounts: dict[str, dict[str, int]] = {}
    for entry in settings.entries:
        if entry.name.startswith("limits.") and entry.parsed is not None:
            kind, _, rest = entry.name.removeprefix("limits.").partition(".")
            owner, _, key = rest.rpartition(".")
            amounts.setdefault(f"{kind}/{owner}", {})[key] = entry.parsed
    return tuple(OwnerLimit(owner=owner, **of_owner) for owner, of_owner in sorted(amounts.items()))


def _billing(settings: Settings) -> tuple[Billing, ...]:
    spans: dict[str, dict[str, int]] = {}
    for entry in settings.entries:
        if entry.name.startswith("billing.") and entry.value is not None:
            backend, _, key = entry.name.removeprefix("billing.").rpartition(".")
            spans.setdefault(backend, {})[key] = entry.parsed
    return tuple(Billing(backend=backend, **times) for backend, times in spans.items())
