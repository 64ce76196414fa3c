"""The framed lines: `::steno:: {"seq": 1, "status": "COMPILING", …}`, one JSON object a line. The output of other
programs stands behind a bar, so that none of it is a frame.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

MARK = "::steno:: "
_PRINT = partial(print, flush=True)
MAX_TEXT = 8_000  # characters of one text in a frame; of a longer text the end is kept


class Teller:
    def __init__(self, tell: Callable[[str], None] = _PRINT) -> None:
        """`tell` gets each line, without its end."""
        self._tell = tell
        self._seq = 0

    def say(self, status: str, **facts: object) -> None:
        self._seq += 1
        self._line(MARK + json.dumps({"seq": self._seq, "status": status, **facts}, allow_nan=False))

    def show(self, text: str) -> None:
        """Tell foreign output, line by line behind a bar."""
        for line in text.splitlines():
            self._line("| " + line)

    def _line(self, line: str) -> None:
        self._tell(line.encode("utf-8", "replace").decode("utf-8"))


def tail(text: str) -> str:
    return text if len(text) <= MAX_TEXT else "…" + text[-MAX_TEXT:]
