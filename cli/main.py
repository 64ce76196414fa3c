"""The command `steno`: where the process starts; click is imported only if there is more to do than to print a page."""

import os
import sys

from cli.colour import colour_wanted
from cli.front import page


def main() -> None:
    """Run one command and leave with its exit code."""
    _fill_closed_streams()
    if sys.argv[1:] in (["--help"], ["-h"]) and _printed(page(colour_wanted(sys.stdout.isatty()))):
        return
    from cli.program import run

    sys.exit(run(sys.argv[1:]))


def _printed(text: str) -> bool:
    """Whether the text went out; where not, click is loaded after all, and it is told as every other trouble is."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True


def _fill_closed_streams() -> None:
    """Nothing instead of streams that were closed (`>&-`): else the record could be opened in their place."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        nothing = os.open(os.devnull, os.O_RDONLY if number == 0 else os.O_WRONLY)
        if nothing != number:
            os.dup2(nothing, number)
            os.close(nothing)
        setattr(sys, name, open(number, "r" if number == 0 else "w", encoding="utf-8"))  # noqa: SIM115, PTH123


if __name__ == "__main__":
    main()
