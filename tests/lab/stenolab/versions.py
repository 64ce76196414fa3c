"""The versions of the lab's servers, and where their environments live."""

from __future__ import annotations

from pathlib import Path

NEWEST = "0.22.5"  # the version Steno itself is pinned to
OLDEST = "0.19.37"  # the oldest server Steno promises to read
VERSIONS = (NEWEST, OLDEST)

LAB = Path(__file__).resolve().parent.parent
REPOSITORY = LAB.parent.parent


def lock_file(version: str) -> Path:
    """The committed lock, with hashes, of that server's environment."""
    return LAB / f"requirements-{version}.lock"


def environment(version: str) -> Path:
    """The virtual environment of that server; git-ignored, made by `setup.py`."""
    return REPOSITORY / ".lab" / f"venv-{version}"


def baked(version: str) -> Path:
    """A server folder with an empty, migrated database: what every new server of that version starts from."""
    return environment(version) / "stenolab-baked"


def interpreter(version: str) -> Path:
    """The Python that runs that server."""
    return environment(version) / "bin" / "python"
