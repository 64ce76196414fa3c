"""Providers by name: the two that come with Steno, and those that other packages register.

A package registers a provider with an entry point in the group `steno.providers`. Looking through the installed
packages takes longer than the start of the command line, so it happens only for a name that is not built in.
"""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Final

from engine.errors import NotConfigured
from engine.providers.kind import ProviderKind
from engine.settings.known import Block
from engine.settings.settings import Settings
from engine.settings.settings import load_settings as _load_settings
from engine.settings.table import Table

GROUP: Final = "steno.providers"
_BUILT_IN: Final = {"local": "engine.providers.local.kind", "dstack": "engine.providers.dstack.kind"}


@cache
def kind(name: str) -> ProviderKind:
    """The provider of that name.

    Raises:
        NotConfigured: there is no such provider (the message lists those there are), or its package cannot be loaded.
    """
    module = _BUILT_IN.get(name)
    if module is not None:
        found: object = import_module(module).KIND
    elif name in _installed():
        found = _loaded(name)
    else:
        raise NotConfigured(f"there is no provider {name!r}; use one of: {', '.join(names())}")
    if not isinstance(found, ProviderKind):
        raise NotConfigured(f"provider {name} cannot be used: its entry point is not a ProviderKind")
    return found


def built_in() -> tuple[ProviderKind, ...]:
    """The providers that come with Steno, without a look at installed packages."""
    return tuple(kind(name) for name in _BUILT_IN)


def names() -> tuple[str, ...]:
    """Every provider there is: the built-in ones first, then those of other packages."""
    return (*_BUILT_IN, *sorted(name for name in _installed() if name not in _BUILT_IN))


def task_language() -> ProviderKind:
    """The provider whose form of task files the others take too, unless they have one of their own."""
    return next(one for one in built_in() if one.task_files)


def load_settings(
    *, flags: Mapping[str, str | None], environ: Mapping[str, str], cwd: Path, home: Path, config: Path, data: Path
) -> Settings:
    """The settings of one call, the providers' included: see `engine.settings.settings.load_settings`."""
    table = settings_table()
    return _load_settings(table, flags=flags, environ=environ, cwd=cwd, home=home, config=config, data=data)


def settings_table() -> Table:
    """The settings there are, without those of other packages."""
    return Table((one.settings for one in built_in()), names, _block)


def _block(provider: str) -> Block | None:
    return kind(provider).settings if provider in names() else None


@cache
def _installed() -> dict[str, str]:
    """Entry points of the group: name → `module:attribute`."""
    from importlib.metadata import entry_points

    return {point.name: point.value for point in entry_points(group=GROUP)}


def _loaded(name: str) -> object:
    from importlib.metadata import EntryPoint

    try:
        found: object = EntryPoint(name, _installed()[name], GROUP).load()
    except Exception as error:
        raise NotConfigured(f"provider {name} cannot be loaded: {type(error).__name__}: {error}") from error
    return found
