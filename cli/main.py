"""The entry point of `steno`; imports click only if there is more to do than to print the help page."""

import sys

from cli.catalogue import page
from cli.wiring.terminal import colour_wanted, fill_closed_streams


def main() -> None:
    """Run one command and exit with its code."""
    fill_closed_streams()
    if sys.argv[1:] in (["--help"], ["-h"]) and _printed(page(colour_wanted(sys.stdout.isatty()))):
        return
    from cli.program import run

    sys.exit(run(sys.argv[1:]))


def _printed(text: str) -> bool:
    """Whether the text was written; if not, `cli.program` reports the error like any other."""
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
