"""Files and code of a job, unpacked as dstack's runner does it."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any


class SetUpFailed(Exception):
    """The job's files cannot be put in place; the message goes into the job's termination message."""


def place(path: str, *, root: Path, working: Path) -> Path:
    """Where in the sandbox `root` a path of the container lies.

    `~` is the container user's home; relative paths start from the working directory; absolute paths are kept inside
    the sandbox, since there is no container around the job: its own commands cannot see those by their absolute name.

    Raises:
        SetUpFailed: the path leaves the sandbox.
    """
    if path == "~" or path.startswith("~/"):
        target = root / "root" / path[2:]
    elif PurePosixPath(path).is_absolute():
        target = root / path.lstrip("/")
    else:
        target = working / path
    target = Path(*_resolved(target.parts))
    if not target.is_relative_to(root):
        raise SetUpFailed(f"{path} leaves the container")
    return target


def _resolved(parts: tuple[str, ...]) -> list[str]:
    kept: list[str] = []
    for part in parts:
        if part == "..":
            kept.pop()
        elif part != ".":
            kept.append(part)
    return kept


def archive_of(content_type: str, body: bytes) -> tuple[str, bytes]:
    """(id, tar) of the one part of a `multipart/form-data` upload.

    Raises:
        ValueError: it is not one.
    """
    boundary = re.search(r'boundary="?([^";]+)', content_type)
    if boundary is None:
        raise ValueError("no boundary")
    mark = b"--" + boundary.group(1).encode()
    head, _, rest = body.partition(mark)[2].partition(b"\r\n\r\n")
    name = re.search(rb'filename="([^"]+)"', head)
    if name is None:
        raise ValueError("no file name")
    return name.group(1).decode(), rest.rpartition(b"\r\n" + mark)[0]


def unpack_archive(tar: bytes, target: Path) -> None:
    """Unpacks a `files:` archive: its one top entry takes the name and place of `target`, replacing what is there."""
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    target.unlink(missing_ok=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        for member in archive:
            _, *below = PurePosixPath(member.name).parts
            member.name = str(PurePosixPath(target.name, *below))
            archive.extract(member, target.parent, filter="tar")


def unpack_code(code: bytes, repository: dict[str, Any], target: Path, origins: dict[str, str]) -> None:
    """Fills the repository folder: a tar for a `local` or `virtual` repository, a clone and a diff for a `remote` one.

    `origins` says which folder plays which repository URL: the lab reaches no network.

    Raises:
        SetUpFailed: no folder plays the repository, or git refuses.
    """
    target.mkdir(parents=True, exist_ok=True)
    if repository.get("repo_type") != "remote":
        if code:
            with tarfile.open(fileobj=io.BytesIO(code)) as archive:
                archive.extractall(target, filter="tar")
        return
    url = repository.get("clone_url") or repository.get("repo_url") or ""
    origin = origins.get(url) or origins.get(repository.get("repo_name") or "")
    if origin is None:
        raise SetUpFailed(f"cannot clone {url}: no such repository in this cloud")
    _git("clone", "--quiet", origin, str(target))
    if repository.get("repo_hash"):
        _git("-C", str(target), "checkout", "--quiet", repository["repo_hash"])
    if code.strip():
        _git("-C", str(target), "apply", "--whitespace=nowarn", "-", feed=code)


def _git(*arguments: str, feed: bytes | None = None) -> None:
    result = subprocess.run(["git", *arguments], input=feed, capture_output=True, check=False)
    if result.returncode:
        raise SetUpFailed(f"git {arguments[0]}: {result.stderr.decode(errors='replace').strip()}")
