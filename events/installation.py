"""How this Steno was installed: its version, and the command that adds an extra to it."""

import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "steno-gpu"
"""The name of Steno on package indexes: `steno` is another project there."""


@cache
def version() -> str:
    from importlib import metadata

    return metadata.version(DISTRIBUTION)


def commit() -> str:
    """The commit of these files, twelve digits, with `+` if some were changed since; "" if unknown."""
    root = Path(__file__).resolve().parents[1]
    if (root / "COMMIT").exists():  # a wheel or an sdist: written by `hatch_build.py`
        return (root / "COMMIT").read_text().strip()
    if not (root / ".git").exists():
        return ""
    import subprocess

    command = ["git", "--no-optional-locks", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"]
    try:
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""  # git is not installed


def installing(extra: str) -> str:
    """The shell command that adds an extra: by make in the .venv of a clone, else by this Python's pip, else by uv."""
    clone = Path(__file__).resolve().parents[1]
    if Path(sys.prefix).resolve() == clone / ".venv":
        return f"make -C {clone} setup EXTRAS={extra}"
    pip = f"{sys.executable} -m pip install" if find_spec("pip") else f"uv pip install --python {sys.prefix}"
    return f"{pip} '{DISTRIBUTION}[{extra}]'"
