"""`python3 -m engine.listener FOLDER`: a listener that was sent here; its options are in `FOLDER/listener.json`."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

from events.errors import StenoError

from .service import ListenerOptions, listen


def main(folder: Path) -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    path = folder / "listener.json"
    options = json.loads(path.read_text("utf-8"))
    path.unlink()
    why = ""
    try:
        if listen(ListenerOptions(folder=folder / "tasks", **options)):
            why = "the engine has been silent for too long: stopping this machine"
    except StenoError as error:
        why = str(error)
    if why:
        logging.getLogger("steno.listener").error(why)
    return 1 if why else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
