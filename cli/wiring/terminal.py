"""Abilities of the terminal: colours and width. Imports nothing heavy: `steno --help` needs it."""

import contextlib
import os
import sys


def colour_wanted(terminal: bool) -> bool:
    """Never with NO_COLOR, always with FORCE_COLOR, else on a terminal that supports colour."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return terminal and os.environ.get("TERM") != "dumb"


def columns() -> int:
    """COLUMNS if set, else the width of the terminal, else 100; at least 40."""
    with contextlib.suppress(ValueError):
        if "COLUMNS" in os.environ:
            return max(40, int(os.environ["COLUMNS"]))
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            if stream.isatty():
                return max(40, os.get_terminal_size(stream.fileno()).columns)
    return 100


def fill_closed_streams() -> None:
    """Open the null device for closed standard streams (`>&-`), or the record could get their descriptor."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        null = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
        if null != number:
            os.dup2(null, number)
            os.close(null)
        setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8"))  # noqa: SIM115, PTH123
