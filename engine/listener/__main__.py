"""`python3 -m steno.engine.listener FOLDER`: a listener that was sent here; its options are in `FOLDER/listener.json`.
The folder is removed at its end. Without FOLDER: one job of the user's own code, which the environment holds, in
processes.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from steno.engine.kernel.machine.framing import Teller
from steno.events.errors import StenoError


class PackageMissing(StenoError):
    """A package that kernels need is not there."""

    def __init__(self, name: str | None) -> None:
        word = (name or "a package").partition(".")[0]
        super().__init__(
            f"{word} is not installed for {sys.executable}: `apt-get install python3-{word}`, or `{sys.executable} -m "
            f"pip install {word}`"
        )


def main(folder: Path) -> int:
    # To the engine this status (`FORGOTTEN`) is a stop by policy.
    why, status = "the engine has been silent for too long: stopping this machine", os.EX_TEMPFAIL
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # until it listens
        logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
        path = folder / "listener.json"
        options = json.loads(path.read_text("utf-8"))
        path.unlink()
        try:
            from .service import listen
        except ModuleNotFoundError as error:
            raise PackageMissing(error.name) from None
        if not listen(folder=folder / "tasks", **options):
            return 0
    except StenoError as error:
        why, status = str(error), 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    logging.getLogger("steno.listener").error(why)
    return status


def judge_here(job: str) -> int:
    """Judge a job in processes of this host; the frames are its output."""
    stops = list[int]()  # signals: an exception would be lost where a library suppresses all, with half-made cells
    signal.signal(signal.SIGTERM, lambda number, _: stops.append(number))
    try:
        from steno.engine.kernel.machine.cells import Stopped
        from steno.engine.kernel.machine.judge import Judge
        from steno.engine.kernel.machine.local_cells import LocalCells
    except ModuleNotFoundError as error:
        Teller().say("ERROR", message=str(PackageMissing(error.name)))
        return 2  # `batches.BROKEN`
    with tempfile.TemporaryDirectory(prefix="steno-kernel-") as work:
        cells, code = LocalCells(Path(work)), 0
        cells.stops = lambda: bool(stops)

        def stop(number: int, _: object) -> None:
            stops.append(number)
            cells.interrupt()

        signal.signal(signal.SIGTERM, stop)
        with suppress(Stopped):
            code = Judge(json.loads(job), cells, Teller()).run()
    return 128 + signal.SIGTERM if stops else code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) if sys.argv[1:] else judge_here(os.environ.pop("STENO_KERNEL")))
