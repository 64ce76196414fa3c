"""Every setting with its value and where the value comes from.

Later wins: defaults, a provider's own files, `steno.toml` of the user's configuration folder, `steno.toml` of the
current folder, `.env` of the current folder, the environment, flags.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from engine.errors import NotConfigured
from engine.settings.known import Block, Known, Values
from engine.settings.profiles import PROFILES
from engine.settings.sources import read_dotenv, read_environment, read_toml
from engine.settings.table import Blocks, Table
from events.errors import StenoError

_SHOWN = 60
"""Characters of a wrong value that a message repeats."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One setting as it stands."""

    name: str
    value: str | None
    source: str
    """`default`, `flag`, a variable's name (`STENO_RECORD`, `STENO_RECORD in .env`) or a file."""
    secret: bool = False
    unused: bool = False
    """Somebody sets it and nothing of Steno reads it."""

    @property
    def given(self) -> bool:
        """Whether somebody set it."""
        return self.source not in {"default", "not set"}

    @property
    def shown(self) -> str | None:
        """The value as it may be printed: a secret says only that it is set."""
        return "set" if self.secret and self.value is not None else self.value

    def __repr__(self) -> str:
        return f"Setting(name={self.name!r}, value={self.shown!r}, source={self.source!r})"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """All settings."""

    entries: tuple[Setting, ...]
    variables: dict[str, tuple[str, ...]] = {}
    """Setting name → the environment variables that set it, the strongest first."""
    blocks: tuple[Block, ...] = ()
    problems: dict[str, StenoError] = {}
    """Provider → why its own files could not be read: raised only where a value from them is needed."""

    def find(self, name: str) -> Setting:
        """The setting of that name; KeyError is a mistake of ours, not of the user."""
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise KeyError(name)

    def value(self, name: str) -> str | None:
        """The value of that setting."""
        return self.find(name).value

    @property
    def record(self) -> str:
        """The record's address: an SQLAlchemy URL, or a bare path for SQLite."""
        return self.value("record") or ""

    @property
    def provider(self) -> str:
        """Where tasks run."""
        return self.value("provider") or "local"

    def hourly(self, provider: str | None) -> int | None:
        """Micro-dollars an hour that each machine of that provider costs (0: free); None: each has its own price."""
        return next((block.hourly(self) for block in self.blocks if block.provider == provider), None)


def load_settings(
    *,
    blocks: Blocks,
    flags: Mapping[str, str | None],
    environ: Mapping[str, str],
    cwd: Path,
    home: Path,
    config: Path,
    data: Path,
) -> Settings:
    """The settings of one call of Steno.

    Args:
        blocks: the providers' settings.
        flags: settings given on the command line, by name (`record`, `api.port`); None: not given.
        environ: the process environment.
        cwd: the current folder, for `steno.toml` and `.env`.
        home: the user's home, for files of the providers.
        config: the user's configuration folder of Steno.
        data: the user's data folder of Steno, where the record is by default.

    Raises:
        NotConfigured: a file cannot be read, or a value cannot be one of its setting.
    """
    table = Table(blocks)

    def read() -> Values:
        values: Values = {"record": (str(data / "record.db"), "default")}
        defaults = ((known.name, known.default) for known in table.known if not known.unused)
        values.update((name, (default, "default")) for name, default in defaults if default is not None)
        for file in (config / "steno.toml", cwd / "steno.toml"):
            values.update(read_toml(file, table))
        values.update(read_dotenv(cwd / ".env", table))
        values.update(read_environment(environ, table))
        values.update((name, (value, "flag")) for name, value in flags.items() if value is not None)
        return values

    values, count = read(), len(blocks.built_in())
    table.add(values["provider"][0])
    if len(table.blocks) > count:
        values = read()  # a provider of another package has defaults and variables of its own
    found = ((block.provider, block.own_files(values, home)) for block in table.blocks)
    problems = {provider: error for provider, error in found if error is not None}
    tabled = {known.name: known for known in table.known}
    own = [known for name in values if name not in tabled and (known := table.setting(name)) is not None]
    listed = [known for known in table.known if not known.unused or known.name in values]
    return _by_profile(
        Settings(
            entries=tuple(
                _checked(known, values.get(known.name)) for known in (*listed, *sorted(own, key=lambda one: one.name))
            ),
            variables={known.name: known.variables for known in table.known},
            blocks=tuple(table.blocks),
            problems=problems,
        )
    )


def _checked(known: Known, found: tuple[str, str] | None) -> Setting:
    if found is None:
        return Setting(name=known.name, value=None, source="not set", secret=known.secret)
    value, source = found
    if known.parse is not None:
        try:
            known.parse(value)
        except ValueError as error:
            said = "set" if known.secret else repr(value if len(value) <= _SHOWN else value[:_SHOWN] + "…")
            raise NotConfigured(f"{known.name} is {said} ({source}); it must be {error}") from None
    return Setting(
        name=known.name,
        # a backend's cloud key is none of our business beyond its presence: its value is dropped here
        value="set" if known.presence_only else value,
        source=f"{source}, not used by Steno: {known.help}" if known.unused else source,
        secret=known.secret,
        unused=known.unused,
    )


def _by_profile(settings: Settings) -> Settings:
    """The settings with the idle timeout of the profile chosen, where no timeout is set itself."""
    name, timeout = settings.value("profile"), settings.find("vms.idle_timeout")
    if name is None or timeout.given:
        return settings
    filled = Setting(name=timeout.name, value=PROFILES[name].idle_duration, source=f"profile {name}")
    entries = tuple(filled if entry.name == timeout.name else entry for entry in settings.entries)
    return msgspec.structs.replace(settings, entries=entries)
