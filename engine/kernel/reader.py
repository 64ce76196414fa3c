"""Reads the output of one attempt of one run, in a thread of its own: a log that hangs holds up nothing else."""

import logging
import threading
from collections.abc import Callable, Iterator
from queue import Empty, SimpleQueue
from typing import Final

from engine.fold.run import Said
from engine.fold.task_reports import heard
from engine.kernel.output import Lines

MOST_FRAMES: Final = 2_000
MOST_BYTES: Final = 64 * 1024 * 1024
"""Of one output; what is beyond is not read."""
_log = logging.getLogger(__name__)

Logs = Callable[[], Iterator[bytes]]


class OutputReader:
    """One pass over an output, from its beginning."""

    def __init__(self, logs: Logs, said: Said, key_hash: str) -> None:
        """
        Args:
            logs: the output, piece by piece.
            said: what is in the record already; that much of the output is read and not given again.
        """
        self._logs = logs
        self._said = Said(mark=said.mark)
        self._known = said.frames
        self._lines = Lines(key_hash)
        self._found: SimpleQueue[tuple[int, bytes]] = SimpleQueue()
        self._stopped = False
        self.trouble: str | None = None
        """Why the output could not be read to its end."""
        # A daemon: a process that ends does not wait for a log that hangs; the rest is read by the next.
        self._thread = threading.Thread(target=self._run, name="steno-task-output", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        """The pass has come to its end."""
        return not self._thread.is_alive()

    def frames(self, most: int) -> list[tuple[int, bytes]]:
        """(number in the output, frame) of what was read since the last look."""
        found: list[tuple[int, bytes]] = []
        while len(found) < most:
            try:
                found.append(self._found.get_nowait())
            except Empty:
                break
        return found

    def stop(self) -> None:
        """Read no further; the thread ends with the next piece."""
        self._stopped = True

    def join(self, seconds: float) -> None:
        """Wait that long for the thread to end."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            self._read()
        except Exception as error:  # noqa: BLE001 - whatever a log does, the recorder goes on
            self.trouble = f"{type(error).__name__}: {error}"
            _log.debug("the output of a task cannot be read", exc_info=True)

    def _read(self) -> None:
        size = seq = 0
        for piece in self._logs():
            size += len(piece)
            for frame in self._lines.feed(piece):
                seq += 1
                self._said = heard(self._said, seq, frame, last=False, position=0, at=0)
                if seq > self._known:
                    self._found.put((seq, frame))
                if self._said.ended or seq >= MOST_FRAMES:
                    return
            if self._stopped or size > MOST_BYTES:
                return
