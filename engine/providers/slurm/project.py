"""The project of a command: its files, their hashes and its environment, and their copy to the cluster."""

import hashlib
import os
import re
import subprocess
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from steno.engine.errors import ProviderError, TaskInvalid
from steno.engine.providers.slurm.shell import Shell, result_poll
from steno.events.clock import Clock, format_time
from steno.events.poll import Poll

_LOCKS: Final = ("uv.lock", "requirements.txt", "pyproject.toml")
_BESIDE_LOCK: Final = ("pyproject.toml", ".python-version")
_DIGITS: Final = 12


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """The files and the environment of a run; recorded as its manifest."""

    name: str
    root: str  # of the repository, or the current folder without one; absolute, on this machine
    workdir: str  # the current folder, from the root
    files: dict[str, str]  # path from the root → SHA-256 (of a symbolic link: of its target)
    untracked: tuple[str, ...] = ()  # Python files, and folders the command names, untracked: they stay here
    environment: str | None = None  # `<lock file, from the root>@<hash>`; None: no lock file

    @property
    def digest(self) -> str:
        return hashlib.sha256(msgspec.json.encode(sorted(self.files.items()))).hexdigest()[:_DIGITS]


def project_of(folder: Path, named: Iterable[Path], more: Iterable[Path] = (), *, environment: bool = True) -> Project:
    """The project of a folder: what git tracks of it, and what is named.

    `named`: by the command; an untracked folder among these may hold anything, so it stays here. `more`: files, and
    whole folders. `environment`: look for its lock file. Raises TaskInvalid if a file is outside of the project or
    unreadable.
    """
    folder = folder.resolve()
    top = _git(folder, "rev-parse", "--show-toplevel")
    root = folder if top is None else Path(top[0].rstrip("\n")).resolve()
    tracked = _git(root, "ls-files", "-z", "--recurse-submodules") or ()
    others = _git(root, "ls-files", "-z", "--others", "--exclude-standard", "--", "*.py") or ()
    names = {name for name in tracked if os.path.lexists(root / name)}
    if top is None:
        names |= {path.name for path in folder.glob("*.py")}
    left: set[str] = set()
    for path in named:
        name = _inside(path, root)
        if not path.is_dir():
            names.add(name)
        elif name != "." and not any(tracked_name.startswith(f"{name}/") for tracked_name in names):
            left.add(f"{name}/")
    for path in more:
        inside = (inner for inner in path.rglob("*") if not inner.is_dir()) if path.is_dir() else (path,)
        names |= {_inside(inner, root) for inner in inside}
    lock = _lock(folder, root) if environment else None
    if lock is not None:
        names |= {str(path.relative_to(root)) for path in (lock, *_beside(lock))}
    return Project(
        name=re.sub(r"[^A-Za-z0-9._-]+", "-", root.name) or "project",
        root=str(root),
        workdir=str(folder.relative_to(root)),
        files={name: _hash(root / name) for name in sorted(names)},
        untracked=tuple(sorted({*others, *left} - names)),
        environment=None if lock is None else f"{lock.relative_to(root)}@{_lock_hash(lock)}",
    )


def sync(client: Shell, project: Project, now: int) -> tuple[str, str]:
    """Copy it into a new snapshot; returns (`<project>/<time>-<digest>`, its absolute folder there).

    Files unchanged since the last snapshot are hard links to it, so all are read-only. Raises ProviderUnreachable or
    ProviderError if the copy fails.
    """
    home = f"{client.folder()}/projects/{project.name}"
    moment = re.sub(r"[-:]|\..*", "", format_time(now))
    snapshot = f"{moment}-{project.digest[:8]}"
    before = client.run(("sh", "-c", 'mkdir -p "$1" && readlink "$1/latest"; true', "sh", home)).out.strip()
    done = client.copy(project.root, project.files, f"{home}/{snapshot}.part", f"../{before}" if before else None)
    if done.status == 0:
        ready = 'cd "$1" && mkdir -p "$2.part/$3" && mv "$2.part" "$2" && ln -sfn "$2" latest'
        done = client.run(("sh", "-c", ready, "sh", home, snapshot, project.workdir))
    if done.status != 0:
        raise ProviderError(f"the files cannot be copied to {home} on {client.where}: {done.problem}")
    return f"{project.name}/{snapshot}", f"{home}/{snapshot}"


def manifest(client: Shell, project: Project, snapshot: str, clock: Clock) -> Poll:
    now, result = clock.now(), {"snapshot": snapshot, "digest": project.digest, **msgspec.to_builtins(project)}
    return result_poll(client.site, f"manifest {snapshot}", ("manifest", snapshot), now, now, result)


def _git(folder: Path, *words: str) -> Sequence[str] | None:
    """The answer of git about a folder, cut at NUL; None: no repository, or no git."""
    try:
        done = subprocess.run(["git", "-C", folder, *words], capture_output=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return [os.fsdecode(part) for part in done.stdout.split(b"\0") if part] if done.returncode == 0 else None


def _inside(path: Path, root: Path) -> str:
    """Its path from the root, not resolved: a symbolic link is sent as a link."""
    name = os.path.relpath(os.path.normpath(path), root)
    if not os.path.lexists(path):
        raise TaskInvalid(f"there is no {path}")
    if name.startswith(".."):
        raise TaskInvalid(f"{path} is not below {root}, so it is not sent; run from a folder that has it")
    return name


def _hash(path: Path) -> str:
    try:
        if path.is_symlink():
            return hashlib.sha256(os.fsencode(path.readlink())).hexdigest()
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise TaskInvalid(f"{path} cannot be read: {error.strerror}") from None


def _lock(folder: Path, root: Path) -> Path | None:
    """The lock file of the current folder, else of the root."""
    candidates = (place / name for place in (folder, root) for name in _LOCKS)
    return next((path for path in candidates if path.is_file() and _has_dependencies(path)), None)


def _has_dependencies(path: Path) -> bool:
    if path.name != "pyproject.toml":
        return True
    try:
        return bool(tomllib.loads(path.read_text()).get("project", {}).get("dependencies"))
    except (OSError, ValueError) as error:
        raise TaskInvalid(f"{path} cannot be read: {error}") from None


def _beside(lock: Path) -> list[Path]:
    return [path for name in _BESIDE_LOCK if (path := lock.with_name(name)).is_file()]


def _lock_hash(lock: Path) -> str:
    python = lock.with_name(".python-version")
    parts = (lock.name.encode(), lock.read_bytes(), python.read_bytes() if python.is_file() else b"")
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:_DIGITS]
