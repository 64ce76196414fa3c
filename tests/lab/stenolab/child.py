"""The child's half of the rule that nothing the lab started outlives who started it.

Every process of the lab has a pipe from its parent as standard input. The kernel closes it however the parent ends,
`kill -9` included, so end of file on it means: clean up and go. (PR_SET_PDEATHSIG would be Linux only, and looks at
the thread that started the child, not at the process.)
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable


def leave_with_parent(clean_up: Callable[[], None]) -> None:
    """From now on: `clean_up()` and exit, on end of standard input."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        leave(clean_up)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def leave(clean_up: Callable[[], None]) -> None:
    """Exits now, whatever other threads are doing."""
    try:
        clean_up()
    finally:
        os._exit(0)
