"""Every setting with its value and where the value comes from.

Later wins: defaults, dstack's own `~/.dstack/config.yml` (server, token and project), `steno.toml` of the user's
configuration folder, `steno.toml` of the current folder, `.env` of the current folder, the environment, flags.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from engine.errors import NotConfigured, ProjectNotFound
from engine.providers.dstack.address import Address, address
from engine.providers.dstack.config_file import choose_project, read_dstack_config
from engine.settings.profiles import PROFILES
from engine.settings.sources import Layer, read_dotenv, read_environment, read_toml
from engine.settings.table import TABLE, Known, setting
from engine.settings.values import is_off

_SHOWN = 60
"""Characters of a wrong value that a message repeats."""
_TABLED = frozenset(known.name for known in TABLE)


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
    """All settings; `dstack_problem` is why dstack's own file could not be read, told only to who needs it."""

    entries: tuple[Setting, ...]
    dstack_problem: NotConfigured | ProjectNotFound | None = None

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
        """`local` or `dstack`."""
        return self.value("provider") or "local"

    @property
    def fleet_nodes(self) -> int | None:
        """The most machines a fleet that Steno makes may hold: as many as the cap where nothing else is said; None: no
        limit.
        """
        most = self.value("dstack.fleet_nodes") or self.value("vms.max") or ""
        return None if is_off(most) else int(most)

    @property
    def default_gpu(self) -> str | None:
        """The GPU of a command for dstack that names none; None: dstack's own choice."""
        gpu = self.value("dstack.gpu") or ""
        return None if is_off(gpu) else gpu

    def dstack_address(self) -> Address:
        """Server, token and project of dstack, checked.

        Raises:
            NotConfigured: one of them is missing, or cannot be one.
            ProjectNotFound: dstack's file has other projects, and nothing else says where this one is.
        """
        missing = [name for name in ("dstack.url", "dstack.token", "project") if not self.value(name)]
        if missing and self.dstack_problem:
            raise self.dstack_problem
        if missing:
            known = {entry.name: entry for entry in TABLE}
            hints = " and ".join(f"{name} ({known[name].variables[0]})" for name in missing)
            raise NotConfigured(
                f"dstack is not configured: set {hints}, or run "
                "`dstack project add --name NAME --url URL --token TOKEN` once"
            )
        return address(self.value("dstack.url") or "", self.value("dstack.token") or "", self.value("project") or "")


def load_settings(
    *, flags: Mapping[str, str | None], environ: Mapping[str, str], cwd: Path, home: Path, config: Path, data: Path
) -> Settings:
    """The settings of one call of Steno.

    Args:
        flags: settings given on the command line, by name (`record`, `dstack.url`); None: not given.
        environ: the process environment.
        cwd: the current folder, for `steno.toml` and `.env`.
        home: the user's home, for `~/.dstack/config.yml`.
        config: the user's configuration folder of Steno.
        data: the user's data folder of Steno, where the record is by default.

    Raises:
        NotConfigured: a file cannot be read, or a value cannot be one of its setting.
    """
    defaults = Layer(
        values={
            **{
                known.name: (known.default, "default")
                for known in TABLE
                if known.default is not None and not known.unused
            },
            "record": (str(data / "record.db"), "default"),
            "dstack.config": (str(home / ".dstack" / "config.yml"), "default"),
        }
    )
    given = Layer(values={name: (value, "flag") for name, value in flags.items() if value is not None})
    layers = [
        defaults,
        read_toml(config / "steno.toml"),
        read_toml(cwd / "steno.toml"),
        read_dotenv(cwd / ".env"),
        read_environment(environ),
        given,
    ]
    values: dict[str, tuple[str, str]] = {}
    for layer in layers:
        values.update(layer.values)
    problem = _from_dstack(values)
    own = [found for name in values if name not in _TABLED and (found := setting(name)) is not None]
    listed = [known for known in TABLE if not known.unused or known.name in values]
    entries = tuple(
        _checked(known, values.get(known.name)) for known in (*listed, *sorted(own, key=lambda one: one.name))
    )
    return _by_profile(Settings(entries=entries, dstack_problem=problem))


def _from_dstack(values: dict[str, tuple[str, str]]) -> NotConfigured | ProjectNotFound | None:
    """Fill server, token and project from dstack's file where nothing stronger gives them; say why if that fails.

    A token of that file goes to the server it stands beside and to no other, whatever a `.env` says.
    """
    path, given = Path(values["dstack.config"][0]).expanduser(), values["dstack.config"][1]
    try:
        projects = read_dstack_config(path)
    except NotConfigured as error:
        return error
    if not projects and given != "default" and not path.exists():
        return NotConfigured(f"there is no {path}, which {given} names as dstack's configuration")
    wanted = values["project"][0] if "project" in values else None
    entry = choose_project(projects, wanted)
    if entry is None:
        if wanted is None and len(projects) > 1:
            return NotConfigured(f"{path} has several projects and no default one; say which: --project NAME")
        if wanted is not None and projects:
            names = ", ".join(known.name for known in projects)
            return ProjectNotFound(f"project {wanted} is not in {path} (there are: {names}); `dstack project add` it")
        return None
    source = str(path)
    url = values.setdefault("dstack.url", (entry.url, source))[0]
    if url.rstrip("/") == entry.url.rstrip("/"):
        values.setdefault("dstack.token", (entry.token, source))
        values.setdefault("project", (entry.name, source))
    return None


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
    return Settings(entries=entries, dstack_problem=settings.dstack_problem)
