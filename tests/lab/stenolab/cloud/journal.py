"""The events of the cloud, one JSON object a line on standard output: the first place to look when a test fails."""

from __future__ import annotations

import json
import sys
import threading
import time

_lock = threading.Lock()


def journal(who: str, **what: object) -> None:
    """Writes one line; `who` is cloud, shim or runner."""
    with _lock:
        sys.stdout.write(json.dumps({"t": round(time.time(), 3), "who": who, **what}) + "\n")
        sys.stdout.flush()
