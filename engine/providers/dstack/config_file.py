"""dstack's own configuration file of this user: which projects there are, at which server, with which token."""

from pathlib import Path

import msgspec

from engine.errors import NotConfigured


class KnownProject(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of `projects:`; its token is good for its own server only."""

    name: str
    url: str
    token: str
    default: bool = False

    def __repr__(self) -> str:
        return f"KnownProject(name={self.name!r}, url={self.url!r}, default={self.default})"


def read_dstack_config(path: Path) -> tuple[KnownProject, ...]:
    """The projects of the file, in its order; none if there is no file.

    Entries and keys we do not know are passed over, as dstack does with a file of another version.

    Raises:
        NotConfigured: the file is there but cannot be read as YAML with a list of projects.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return ()
    except (OSError, UnicodeDecodeError) as error:
        raise NotConfigured(f"cannot read dstack's configuration {path}: {_reason(error)}") from None
    import yaml

    try:
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise NotConfigured(f"dstack's configuration {path} is not valid YAML (line {line}: {error.problem})") from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise NotConfigured(
            f"dstack's configuration {path} is not valid YAML; run `dstack project add` to write it"
        ) from None
    if content is None:
        return ()
    projects = content.get("projects") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(projects, list | None):
        raise NotConfigured(f"dstack's configuration {path} has no list `projects:`; run `dstack project add`")
    return tuple(entry for entry in map(_entry, projects or ()) if entry is not None)


def choose_project(projects: tuple[KnownProject, ...], name: str | None) -> KnownProject | None:
    """The entry of that name; without a name the default one, or the only one."""
    if name is not None:
        return next((entry for entry in projects if entry.name == name), None)
    chosen = next((entry for entry in projects if entry.default), None)
    return projects[0] if chosen is None and len(projects) == 1 else chosen


def _entry(value: object) -> KnownProject | None:
    if not isinstance(value, dict):
        return None
    name, url, token = value.get("name"), value.get("url"), value.get("token")
    if not (isinstance(name, str) and isinstance(url, str) and isinstance(token, str)):
        return None
    return KnownProject(name=name, url=url, token=token, default=value.get("default") is True)


def _reason(error: OSError | UnicodeDecodeError) -> str:
    return error.strerror or "unreadable" if isinstance(error, OSError) else "not UTF-8"
