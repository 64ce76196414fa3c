"""Whether to colour, decided in one place and without importing anything heavy."""

import os


def colour_wanted(terminal: bool) -> bool:
    """Never with NO_COLOR, always with FORCE_COLOR, else on a terminal that can."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return terminal and os.environ.get("TERM") != "dumb"
