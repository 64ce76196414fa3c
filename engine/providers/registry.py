"""Providers by name: the built-in ones, and those that other packages register.

A package registers one with an entry point in the group `steno.providers`. Scanning the installed packages is slow, so
it happens only for a name that is not built in.
"""

from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine.errors import NotConfigured
from engine.providers.kind import ProviderKind
from engine.settings.settings import Settings
from engine.settings.settings import load_settings as _load_settings
from engine.settings.table import Table

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "steno.providers"
BUILT_IN: Final = {name: f"engine.providers.{name}.kind" for name in ("local", "dstack", "slurm")} | {
    "kernels": "engine.kernel.warm.kind"
}


@cache
def kind(name: str) -> ProviderKind:
    """The provider of that name. Raises NotConfigured if there is none, or its package cannot be loaded."""
    found: object
    if name in BUILT_IN:
        found = import_module(BUILT_IN[name]).KIND
    elif name in _installed():
        try:
            found = _installed()[name].load()
        except Exception as error:
            raise NotConfigured(f"provider {name} cannot be loaded: {type(error).__name__}: {error}") from error
    else:
        raise NotConfigured(f"there is no provider {name!r}; use one of: {', '.join(names())}")
    if not isinstance(found, ProviderKind):
        raise NotConfigured(f"provider {name} cannot be used: its entry point is not a ProviderKind")
    return found


def built_in() -> Iterator[ProviderKind]:
    """The providers that come with Steno, without a scan of installed packages."""
    return map(kind, BUILT_IN)


def commands_of(name: str) -> str | None:
    """Where a provider's own commands are; None: no such provider, or no commands."""
    return kind(name).commands or None if knows(name) else None


def knows(name: str) -> bool:
    return name in BUILT_IN or name in _installed()


def names() -> tuple[str, ...]:
    """Every provider: the built-in ones first, then those of other packages."""
    return (*BUILT_IN, *sorted(name for name in _installed() if name not in BUILT_IN))


def task_language() -> ProviderKind:
    """The provider whose form of task files is the others' default."""
    return next(one for one in built_in() if one.task_files)


def load_settings(
    *, flags: Mapping[str, str | None], environ: Mapping[str, str], cwd: Path, home: Path, config: Path, data: Path
) -> Settings:
    """The settings of one call, with the providers': see `engine.settings.settings.load_settings`."""
    table = settings_table()
    return _load_settings(table, flags=flags, environ=environ, cwd=cwd, home=home, config=config, data=data)


def settings_table() -> Table:
    """All settings, except those of other packages."""
    return Table((one.settings for one in built_in()), names, lambda name: kind(name).settings if knows(name) else None)


@cache
def _installed() -> "dict[str, EntryPoint]":
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}
