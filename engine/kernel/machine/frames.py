"""The framed lines: `::steno:: {"key": …, "seq": 1, "status": "COMPILING", …}`, one JSON object a line. `key` is a
secret of this run that only this process has: a solution cannot print it.
"""

from __future__ import annotations

import json
from collections.abc import Callable

MARK = "::steno:: "
MAX_TEXT = 8_000  # characters of one text in a frame; of a longer text the end is kept


def printed(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - that is the output


class Teller:
    def __init__(self, key: str, tell: Callable[[str], None] = printed) -> None:
        """`tell` gets each line, without its end."""
        self._key = key
        self._tell = tell
        self._seq = 0

    def say(self, status: str, **facts: object) -> None:
        """Tell one frame at once."""
        self._seq += 1
        frame = {"key": self._key, "seq": self._seq, "status": status, **facts}
        self._line(MARK + json.dumps(frame, allow_nan=False))

    def show(self, text: str) -> None:
        """Tell foreign output line by line behind a bar, so that none of it is a frame."""
        for line in text.splitlines():
            self._line("| " + line)

    def _line(self, line: str) -> None:
        self._tell(line.encode("utf-8", "replace").decode("utf-8"))


def tail(text: str) -> str:
    return text if len(text) <= MAX_TEXT else "…" + text[-MAX_TEXT:]
