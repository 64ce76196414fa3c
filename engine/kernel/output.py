"""Frames out of a task's output: whole lines of it, genuine ones only, however it comes in pieces."""

from typing import Final

from engine.kernel.machine.frames import MARK
from engine.kernel.mark import is_genuine, read_frame

LONGEST: Final = 256 * 1024
"""Bytes of one line; a longer one is no frame."""
_MARK: Final = MARK.encode()


class Lines:
    """The genuine frames of one output."""

    def __init__(self, key_hash: str) -> None:
        self._key_hash = key_hash
        self._begun = b""
        self._too_long = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The frames that this piece of the output completes."""
        found = []
        *whole, rest = (self._begun + piece).split(b"\n")
        for line in whole:
            if not self._too_long and (frame := self._frame(line)) is not None:
                found.append(frame)
            self._too_long = False
        self._too_long = self._too_long or len(rest) > LONGEST
        self._begun = b"" if self._too_long else rest
        return found

    def _frame(self, line: bytes) -> bytes | None:
        line = line.strip(b"\r")
        if not line.startswith(_MARK) or len(line) > LONGEST:
            return None
        text = line[len(_MARK) :].strip()
        frame = read_frame(text)
        return text if frame is not None and is_genuine(frame, self._key_hash) else None
