"""The places settings come from, each read into setting name → (value, place)."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

from engine.errors import NotConfigured
from engine.settings.known import Values
from engine.settings.table import Table


def read_toml(path: Path, table: Table) -> Values:
    """The settings of a `steno.toml`; none if the file does not exist.

    Raises:
        NotConfigured: not valid TOML, an unknown or repeated key, or a value that is neither text, a number nor a list
            of them.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise NotConfigured(f"cannot read {path}: {reason}") from None
    try:
        content = tomllib.loads(text, parse_float=str)  # 1.99 stays what was written
    except tomllib.TOMLDecodeError as error:
        raise NotConfigured(f"{path} is not valid TOML: {error}") from None
    values: Values = {}
    for name, value in _flat(content, ""):
        known = table.setting(name)
        if known is None:
            raise NotConfigured(f"{path} has an unknown setting {name}; `steno config` lists them all")
        parts = value if isinstance(value, list) else [value]
        if any(isinstance(part, bool) or not isinstance(part, str | int) for part in parts):
            raise NotConfigured(f"{path}: {name} must be text or a number")
        if known.name in values:
            raise NotConfigured(f"{path} has {known.name} twice; GPU models are compared without case")
        values[known.name] = (", ".join(map(str, parts)), str(path))
    return values


def read_environment(environ: Mapping[str, str], table: Table, suffix: str = "") -> Values:
    """The settings that variables give; an empty variable counts as not set."""
    values = {}
    for known in table.known:
        variable = next((name for name in known.variables if environ.get(name)), None)
        if variable is not None:
            values[known.name] = (environ[variable], variable + suffix)
    return values


def read_dotenv(path: Path, table: Table) -> Values:
    """The settings of a `.env` file; other variables in it are left alone.

    Raises:
        NotConfigured: the file is there and cannot be read.
    """
    if not path.is_file():
        return {}
    from dotenv import dotenv_values

    try:
        found = dotenv_values(path, interpolate=False, encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise NotConfigured(f"cannot read {path}: {reason}") from None
    return read_environment({name: value for name, value in found.items() if value}, table, suffix=" in .env")


def _flat(table: Mapping[str, object], prefix: str) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{key}.")
        else:
            found.append((f"{prefix}{key}", value))
    return found
