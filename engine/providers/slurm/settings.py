"""Slurm's settings, and where the cluster is."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from steno.engine.errors import NotConfigured
from steno.engine.settings.settings import Settings
from steno.engine.settings.values import Block, Known, one_of, positive_duration
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND, parse_duration

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9][A-Za-z0-9._-]*")


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster, and how Steno reaches and uses it."""

    cluster: str  # the name in `slurm/<cluster>`
    host: str | None = None  # `[USER@]HOST` of a login node, for ssh; None: the commands are on this machine
    folder: str = "~/steno"  # on the cluster: job output, synced files, environments
    partition: str | None = None
    account: str | None = None
    timeout: float = 30.0  # seconds for one command
    accounting: bool | None = None  # None: asked of the cluster
    rates: dict[str, float] | None = None  # units an hour by GPU type or `cpu`; `usd`: dollars a unit
    quota: str | None = None  # a shell line that prints the user's quota
    aliases: dict[str, tuple[str, ...]] = {}  # names people type → types of the cluster

    @property
    def source(self) -> str:
        """The name of its polls' source."""
        return f"slurm/{self.cluster}"


def _rates(text: str) -> dict[str, float]:
    """`a6000=100, h200=816.67, usd=0.01` → a number each."""
    rates: dict[str, float] = {}
    for part in text.split(","):
        name, given, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not given or not name.strip() or not 0 <= value < 1e9:
            raise ValueError("name=units with commas between: a6000=100, h200=816.67, cpu=1, usd=0.01")
        rates[name.strip()] = value
    return rates


def _prices(value: Callable[[str], str | None]) -> dict[str, int]:
    """The price of each thing with a rate, in micro-dollars an hour."""
    rates = _rates(value("slurm.rates") or "usd=0")
    unit = rates.pop("usd", 1.0)
    return {name: round(units * unit * DOLLAR) for name, units in rates.items()}


def _aliases(text: str) -> dict[str, tuple[str, ...]]:
    """`a100=a100_80, big=h200+a100_80` → the types of each."""
    aliases: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (item.strip() for item in text.split(","))):
        name, given, types = part.partition("=")
        if not given or not name.strip() or not types.strip():
            raise ValueError("name=type+type with commas between: a100=a100_80, big=h200+a100_80")
        aliases[name.strip().lower()] = tuple(kind.strip() for kind in types.split("+"))
    return aliases


def _host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise ValueError("a host as ssh knows it: [USER@]HOST")
    return text


def _known(name: str, help: str, **more: Any) -> Known:  # noqa: A002 - as `Known` has it
    return Known(name=f"slurm.{name}", variables=(f"STENO_SLURM_{name.upper()}",), help=help, **more)


BLOCK = Block(
    provider="slurm",
    schedules=True,
    rates="slurm.rates",
    prices=_prices,
    known=(
        _known(
            "host",
            "Login node for ssh: [USER@]HOST. Not set: run Slurm's commands on this machine.",
            question="The login node, [USER@]HOST; empty: Slurm's commands are on this machine",
            parse=_host,
        ),
        _known("cluster", "Name of the cluster in sources: slurm/NAME.", default="default"),
        _known(
            "folder",
            "Folder on the cluster for output, synced files and environments; use scratch if there is one.",
            default="~/steno",
        ),
        _known("partition", "Default partition."),
        _known("account", "Default account."),
        _known("timeout", "Timeout of each Slurm command.", default="30s", parse=positive_duration),
        _known(
            "accounting",
            "auto, or none: do not use sacct. Runs are then followed by squeue, scontrol and their exit status.",
            default="auto",
            parse=one_of("auto", "none"),
        ),
        _known(
            "rates",
            "Service units per hour of each GPU type and CPU, and dollars per unit: a6000=100, cpu=1, usd=0.01.",
            parse=_rates,
        ),
        _known("quota", "Command that prints your quota, such as hdquota. Not set: quota."),
        _known(
            "aliases",
            "Aliases of GPU types: a100=a100_80, big=h200+a100_80.",
            default="a100=a100_80",
            parse=_aliases,
        ),
    ),
)


def site_of(settings: Settings) -> Site:
    """The cluster of the settings. Raises NotConfigured if a setting is malformed."""
    cluster = settings.value("project") or settings.value("slurm.cluster") or "default"
    host = settings.value("slurm.host")
    if not _NAME.fullmatch(cluster):
        raise NotConfigured(f"slurm.cluster is {cluster!r}; use letters, digits, '.', '_' and '-'")
    rates = settings.value("slurm.rates")
    return Site(
        cluster=cluster,
        host=host,
        folder=settings.value("slurm.folder") or "~/steno",
        partition=settings.value("slurm.partition"),
        account=settings.value("slurm.account"),
        timeout=parse_duration(settings.value("slurm.timeout") or "30s") / SECOND,
        accounting=False if settings.value("slurm.accounting") == "none" else None,
        rates=None if rates is None else _rates(rates),
        quota=settings.value("slurm.quota"),
        aliases=_aliases(settings.value("slurm.aliases") or ""),
    )
