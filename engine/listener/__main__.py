"""`python3 -m engine.listener FOLDER`: a listener that was sent here; its options are in `FOLDER/listener.json`.
The folder is removed at its end."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
from pathlib import Path

from events.errors import StenoError

from .service import ListenerOptions, listen


def main(folder: Path) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # told to stop before it listens: clean up first
    path = folder / "listener.json"
    options = json.loads(path.read_text("utf-8"))
    path.unlink()
    # To the engine this status (`FORGOTTEN`) is a stop by policy.
    why, status = "the engine has been silent for too long: stopping this machine", os.EX_TEMPFAIL
    try:
        if not listen(ListenerOptions(folder=folder / "tasks", **options)):
            return 0
    except StenoError as error:
        why, status = str(error), 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    logging.getLogger("steno.listener").error(why)
    return status


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
