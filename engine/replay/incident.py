"""The shipped incident: a task that exited 0 on a real dstack server and that the first poller called failed."""

from pathlib import Path


def incident_path() -> Path:
    """The recording, a trace: whole, as dstack 0.22.5 gave it (the machine was a simulated MI300X at $1.99/h)."""
    return Path(__file__).with_name("incident.jsonl.zst")
