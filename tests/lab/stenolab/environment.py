"""Making the servers' virtual environments from their locks."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from stenolab.versions import LAB, REPOSITORY, VERSIONS, baked, environment, interpreter, lock_file


class EnvironmentUnavailable(Exception):
    """A server's environment is not there and could not be made."""


def stamp(version: str) -> str:
    """The hash of the lock that the environment was made from."""
    return hashlib.sha256(lock_file(version).read_bytes()).hexdigest()


def is_ready(version: str) -> bool:
    """True if the environment exists and comes from the present lock."""
    made = environment(version) / "stenolab-stamp"
    return interpreter(version).exists() and made.exists() and made.read_text() == stamp(version)


def ensure(version: str) -> bool:
    """Makes the environment unless it is ready; true if there was something to do.

    Several processes may ask at once: the first makes it, the others wait.

    Raises:
        EnvironmentUnavailable: uv is missing, or it could not fetch a package.
    """
    if is_ready(version):
        return False
    folder = environment(version)
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f"{folder.name}.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if is_ready(version):
            return False
        uv = find_uv()
        # A virtual environment holds its own path, so it is made in place; stamped last, so a half-made one is redone.
        _run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, str(folder))
        _run(uv, "pip", "sync", "--quiet", "--require-hashes", "--python", str(folder), str(lock_file(version)))
        if version in VERSIONS:
            _run(interpreter(version), "-m", "stenolab.server.bake", DSTACK_SERVER_DIR=str(baked(version)), **_PATH)
        (folder / "stenolab-stamp").write_text(stamp(version))
    return True


def find_uv() -> Path:
    """uv as `make setup` installs it, else the one on PATH.

    Raises:
        EnvironmentUnavailable: there is none.
    """
    for candidate in (REPOSITORY / ".tools" / "bin" / "uv", Path(sys.executable).with_name("uv")):
        if candidate.exists():
            return candidate
    program = shutil.which("uv")
    if program is None:
        raise EnvironmentUnavailable("uv is not installed: run `make setup`")
    return Path(program)


_PATH = {"PYTHONPATH": str(LAB)}


def _run(*command: str | Path, **environment: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    if result.returncode:
        last = (result.stderr.strip() or "no output").splitlines()[-1]
        raise EnvironmentUnavailable(f"`{Path(command[0]).name} {command[1]}` failed: {last}")
