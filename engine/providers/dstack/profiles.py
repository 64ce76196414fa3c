"""dstack's profiles: fields for tasks that leave them open, from `.dstack/profiles.yml` or `~/.dstack/profiles.yml`.

Found as dstack's own client finds them: the current folder, then the home folder, `.yml` before `.yaml`; by name, else
the one with `default: true`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from engine.errors import TaskInvalid
from engine.providers.dstack.lenient import objects
from engine.providers.dstack.task import expect_package, validated
from engine.providers.kind import TaskProfile
from engine.providers.task import read_task_file

PLACES = "./.dstack/profiles.yml and ~/.dstack/profiles.yml"


def find_profile(name: str | None, environ: Mapping[str, str]) -> TaskProfile | None:
    """The profile; None if no file has it. `environ`: dstack's client also reads `DSTACK_PROFILE` and
    `DSTACK_NO_PROFILE`. Raises UnreadableInput, or TaskInvalid for a profile that dstack would refuse.
    """
    if name is None:
        if environ.get("DSTACK_NO_PROFILE", "").lower() in ("1", "true", "on"):
            return None
        named = environ.get("DSTACK_PROFILE")
        if named is not None:
            found = find_profile(named, environ)
            if found is None:
                raise TaskInvalid(f"DSTACK_PROFILE is {named!r}, and no profile has that name; see {PLACES}")
            return found
    for file in _files():
        for model, given in _profiles(file):
            if model.default if name is None else model.name == name:
                fields = {key: value for key, value in given.items() if key not in ("name", "default")}
                return TaskProfile(name=model.name or "default", file=str(file), fields=fields)
    return None


def _files() -> Iterator[Path]:
    for folder in (Path(), Path.home()):
        found = (folder / ".dstack" / f"profiles{ending}" for ending in (".yml", ".yaml"))
        yield from [file for file in found if file.exists()][:1]


def _profiles(file: Path) -> Iterator[tuple[Any, dict[str, object]]]:
    """Each as dstack reads it, and as it stands in the file, where `2h` is `2h`."""
    expect_package()
    from dstack._internal.core.models.profiles import ProfileParams, ProfilesConfig

    content = read_task_file(file, needs="`profiles:`")
    names = {*ProfileParams.model_fields, "name", "default", "profiles"}
    return zip(validated(ProfilesConfig, content, str(file), names).profiles, objects(content["profiles"]), strict=True)
