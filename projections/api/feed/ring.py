"""The newest frames, bounded in number and bytes; clients have a place in it and nothing of their own."""

from collections.abc import Iterable
from typing import Final

from projections.api.feed.frames import Frame

FRAMES: Final = 8192
BYTES: Final = 32 << 20


class Ring:
    """Frames by a running number; those of every position behind `after` that has any, up to `position`.

    Used by the event loop's thread alone.
    """

    def __init__(self, position: int, *, frames: int = FRAMES, size: int = BYTES) -> None:
        self.after = position
        """The ring has everything behind it."""
        self.position = position
        """The last position it has been given."""
        self.end = 0
        """The number the next frame gets."""
        self.size = 0
        """Bytes of all frames."""
        self._begin = 0
        self._frames: dict[int, Frame] = {}
        self._most = frames
        self._bytes = size

    def __len__(self) -> int:
        return self.end - self._begin

    def add(self, frames: Iterable[Frame], position: int) -> None:
        """Take the frames up to `position`, and let go of the oldest."""
        for frame in frames:
            self._frames[self.end] = frame
            self.end += 1
            self.size += len(frame.data)
        self.position = position
        while self.end - self._begin > self._most or (self.size > self._bytes and self.end - self._begin > 1):
            oldest = self._frames.pop(self._begin)
            self._begin += 1
            self.size -= len(oldest.data)
            self.after = oldest.position

    def has(self, number: int) -> bool:
        """Whether no frame from that number on has been let go of."""
        return number >= self._begin

    def find(self, position: int) -> int:
        """The number of the first frame behind `position`."""
        low, high = self._begin, self.end
        while low < high:
            middle = (low + high) // 2
            if self._frames[middle].position <= position:
                low = middle + 1
            else:
                high = middle
        return low

    def get(self, number: int) -> Frame:
        """The frame of that number, from `_begin` up to `end`."""
        return self._frames[number]
