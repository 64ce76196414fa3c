"""The files that go to the machine, as one text that fits into a variable of its environment."""

import base64
import io
import zipfile
from functools import cache
from pathlib import Path

import msgspec

PACKAGE = "steno_kernel"
"""What the files are called on the machine."""
_FOLDER = Path(__file__).parent / "machine"
_SENT = frozenset({".py", ".hpp", ".h"})
_LONG_AGO = (1980, 1, 1, 0, 0, 0)
"""The same files are the same bytes."""


def bundled(job: dict[str, object]) -> str:
    """A zip file of the program and its job, in base64."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, data in (*_program(), ("job.json", msgspec.json.encode(job))):
            file.writestr(zipfile.ZipInfo(name, _LONG_AGO), data, zipfile.ZIP_DEFLATED, 9)
    return base64.b64encode(packed.getvalue()).decode("ascii")


@cache
def _program() -> tuple[tuple[str, bytes], ...]:
    paths = sorted(path for path in _FOLDER.rglob("*") if path.suffix in _SENT)
    return tuple((f"{PACKAGE}/{path.relative_to(_FOLDER).as_posix()}", path.read_bytes()) for path in paths)
