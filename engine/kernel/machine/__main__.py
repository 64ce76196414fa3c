"""`python3 -m <this package> FOLDER`: judge the job in `FOLDER/job.json`; the folder is removed."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from .frames import Teller
from .here import Here
from .judge import Judge


def main(folder: Path) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # told to stop: clean up first
    path = folder / "job.json"
    job = json.loads(path.read_text("utf-8"))
    path.unlink()
    try:
        with tempfile.TemporaryDirectory(prefix="steno-kernel-") as work:
            return Judge(job, Here(Path(work)), Teller(job["key"])).run()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
