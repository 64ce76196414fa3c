"""Providers by name: those built in, and those that other packages register; their readings, and all rule sets.

A package registers one with an entry point in the group `steno.providers`. Scanning the installed packages is slow, so
it happens only for a name that is not built in. A built-in provider is imported when its answers are met: a command
that reads a record needs one or two.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

from steno.engine.errors import NotConfigured
from steno.engine.providers.kind import ProviderKind
from steno.engine.providers.rule_files import SUFFIX, rule_files, texts_of
from steno.engine.rules.rule_file import rules_of
from steno.engine.rules.sets import ADOPTED, CURRENT, RuleSet
from steno.engine.settings.settings import Settings
from steno.engine.settings.settings import load_settings as _load_settings
from steno.engine.settings.table import Table
from steno.engine.state.reading import Reading, Readings
from steno.events.errors import StenoError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "steno.providers"
BUILT_IN: Final = {name: f"steno.engine.providers.{name}.kind" for name in ("local", "dstack", "slurm")} | {
    "kernels": "steno.engine.kernel.warm_provider.kind"
}


@cache
def kind(name: str) -> ProviderKind:
    """The provider of that name. Raises NotConfigured if there is none, or its package cannot be loaded."""
    provider: object
    if name in BUILT_IN:
        provider = import_module(BUILT_IN[name]).KIND
    elif name in _installed():
        try:
            provider = _installed()[name].load()
        except Exception as error:
            raise NotConfigured(f"provider {name} cannot be loaded: {type(error).__name__}: {error}") from error
    else:
        raise NotConfigured(f"there is no provider {name!r}; use one of: {', '.join(names())}")
    if not isinstance(provider, ProviderKind):
        raise NotConfigured(f"provider {name} cannot be used: its entry point is not a ProviderKind")
    return provider


def built_in() -> Iterator[ProviderKind]:
    """The providers that come with Steno, without a scan of installed packages."""
    return map(kind, BUILT_IN)


def commands_of(name: str) -> str | None:
    """Where a provider's own commands are; None: no such provider, or no commands."""
    return kind(name).commands or None if knows(name) else None


def knows(name: str) -> bool:
    return name in BUILT_IN or name in _installed()


def names() -> tuple[str, ...]:
    """Every provider: first those built in, then those of other packages."""
    return (*BUILT_IN, *sorted(name for name in _installed() if name not in BUILT_IN))


def task_language() -> ProviderKind:
    """The provider whose form of task files is the others' default."""
    return next(provider for provider in built_in() if provider.task_files)


def load_settings(
    *, flags: Mapping[str, str | None], environ: Mapping[str, str], cwd: Path, home: Path, config: Path, data: Path
) -> Settings:
    """The settings of one call, with the providers': see `steno.engine.settings.settings.load_settings`."""
    table = settings_table()
    return _load_settings(table, flags=flags, environ=environ, cwd=cwd, home=home, config=config, data=data)


def settings_here(flags: Mapping[str, str | None]) -> Settings:
    """The settings of this process in this folder; see `load_settings`."""
    from platformdirs import user_config_path, user_data_path

    folders = {"cwd": Path.cwd(), "home": Path.home(), "config": user_config_path("steno")}
    return load_settings(flags=flags, environ=os.environ, data=user_data_path("steno"), **folders)


def settings_table() -> Table:
    """All settings, except those of other packages."""
    blocks = (provider.settings for provider in built_in())
    return Table(blocks, names, lambda name: kind(name).settings if knows(name) else None)


@cache
def _installed() -> "dict[str, EntryPoint]":
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=GROUP)}


@cache
def _reading(name: str) -> Reading:
    return kind(name).reading()


READINGS: Final = Readings(BUILT_IN, lambda name: _reading(name) if knows(name) else None)
"""In the order in which they are asked whose a path is."""


class UnknownRules(StenoError):
    """There is no rule set of that name."""


def every_rule_set() -> dict[str, RuleSet]:
    """Every rule set by name: ours, then each provider's, those of other packages too."""
    own = (rules for provider in map(kind, names()) for rules in provider.rule_sets())
    return {rules.name: rules for rules in (CURRENT, *own)}


def rules_named(name: str, folders: Sequence[Path] = (), *, files: bool = False) -> RuleSet:
    """The rule set of that name: ours, a provider's, `adopted`, or a rule file of these folders. `files`: also a rule
    file (`*.toml`) by its path; never for a name that came over HTTP.

    Raises:
        UnknownRules: there is none; the message lists all names.
        UnreadableInput: the file is not understood; the message begins with `FILE:LINE`.
    """
    if name in (CURRENT.name, ADOPTED.name):
        return CURRENT if name == CURRENT.name else ADOPTED
    path = Path(name) if files and name.endswith(SUFFIX) else rule_files(folders).get(name)
    if path is not None:
        return rules_of(texts_of(path))
    every = every_rule_set()
    if name not in every:
        names = dict.fromkeys((*every, ADOPTED.name, *rule_files(folders)))
        raise UnknownRules(f"No rule set {name!r}. Use one of: {', '.join(names)}, or a rule file (FILE{SUFFIX}).")
    return every[name]
