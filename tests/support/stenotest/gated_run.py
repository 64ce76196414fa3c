"""A run that goes on until its test says, for tests that look at it meanwhile: no time a run takes is long enough."""

from pathlib import Path


def holding(gate: Path) -> str:
    """The task of a run that goes on until that file is there."""
    return f"until test -e '{gate}'; do sleep 0.2; done"
