"""How this Steno was installed: its version, and the command that adds an extra to it."""

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

DISTRIBUTION: Final = "steno-gpu"
"""What package indexes call Steno: `steno` is another project there."""


def version() -> str:
    from importlib import metadata

    return metadata.version(DISTRIBUTION)


def installing(extra: str) -> str:
    """The shell command that adds an extra: by make in the .venv of a clone, else by this Python's pip, else by uv."""
    clone = Path(__file__).resolve().parents[1]
    if Path(sys.prefix).resolve() == clone / ".venv":
        return f"make -C {clone} setup EXTRAS={extra}"
    pip = f"{sys.executable} -m pip install" if find_spec("pip") else f"uv pip install --python {sys.prefix}"
    return f"{pip} '{DISTRIBUTION}[{extra}]'"
