"""Slurm's settings, and where the cluster is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

from engine.errors import NotConfigured
from engine.settings.known import Block, Known
from engine.settings.values import one_of, positive_duration
from events.clock import SECOND, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.settings.settings import Settings

_MICRO = 1_000_000
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+@)?[A-Za-z0-9][A-Za-z0-9._-]*")


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster, and how Steno reaches and uses it."""

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


def _rates(text: str) -> dict[str, float]:
    """`a6000=100, h200=816.67, usd=0.01` → a number each."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, given, number = part.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = -1.0
        if not given or not name.strip() or not 0 <= value < 1e9:
            raise ValueError("name=units with commas between: a6000=100, h200=816.67, cpu=1, usd=0.01")
        found[name.strip()] = value
    return found


def _prices(value: Callable[[str], str | None]) -> dict[str, int]:
    """The price of each thing with a rate, in micro-dollars an hour."""
    rates = _rates(value("slurm.rates") or "usd=0")
    unit = rates.pop("usd", 1.0)
    return {name: round(units * unit * _MICRO) for name, units in rates.items()}


def _aliases(text: str) -> dict[str, tuple[str, ...]]:
    """`a100=a100_80, big=h200+a100_80` → the types of each."""
    found: dict[str, tuple[str, ...]] = {}
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, given, types = part.partition("=")
        if not given or not name.strip() or not types.strip():
            raise ValueError("name=type+type with commas between: a100=a100_80, big=h200+a100_80")
        found[name.strip().lower()] = tuple(one.strip() for one in types.split("+"))
    return found


def _host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise ValueError("a host as ssh knows it: [USER@]HOST")
    return text


BLOCK = Block(
    provider="slurm",
    schedules=True,
    rates="slurm.rates",
    prices=_prices,
    known=(
        Known(
            name="slurm.host",
            variables=("STENO_SLURM_HOST",),
            help="Login node for ssh: [USER@]HOST. Not set: run Slurm's commands on this machine.",
            question="The login node, [USER@]HOST; empty: Slurm's commands are on this machine",
            parse=_host,
        ),
        Known(
            name="slurm.cluster",
            variables=("STENO_SLURM_CLUSTER",),
            default="default",
            help="Name of the cluster in sources: slurm/NAME.",
        ),
        Known(
            name="slurm.folder",
            variables=("STENO_SLURM_FOLDER",),
            default="~/steno",
            help="Folder on the cluster for output, synced files and environments; use scratch if there is one.",
        ),
        Known(name="slurm.partition", variables=("STENO_SLURM_PARTITION",), help="Default partition."),
        Known(name="slurm.account", variables=("STENO_SLURM_ACCOUNT",), help="Default account."),
        Known(
            name="slurm.timeout",
            variables=("STENO_SLURM_TIMEOUT",),
            default="30s",
            parse=positive_duration,
            help="Timeout of each Slurm command.",
        ),
        Known(
            name="slurm.accounting",
            variables=("STENO_SLURM_ACCOUNTING",),
            default="auto",
            parse=one_of("auto", "none"),
            help="auto, or none: do not use sacct. Runs are then followed by squeue, scontrol and their exit status.",
        ),
        Known(
            name="slurm.rates",
            variables=("STENO_SLURM_RATES",),
            parse=_rates,
            help="Service units per hour of each GPU type and CPU, and dollars per unit: a6000=100, cpu=1, usd=0.01.",
        ),
        Known(
            name="slurm.quota",
            variables=("STENO_SLURM_QUOTA",),
            help="Command that prints your quota, such as hdquota. Not set: quota.",
        ),
        Known(
            name="slurm.aliases",
            variables=("STENO_SLURM_ALIASES",),
            default="a100=a100_80",
            parse=_aliases,
            help="Aliases of GPU types: a100=a100_80, big=h200+a100_80.",
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
