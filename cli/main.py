"""The entry point of `steno`; imports click only if it has to do more than print the help page."""

import sys

from steno.cli.catalogue import page
from steno.cli.wiring.terminal import colour_wanted, fill_closed_streams

sys.modules["httpx._main"] = None  # type: ignore[assignment] # httpx's own command line, which imports rich and pygments


def main() -> None:
    fill_closed_streams()
    if sys.argv[1:] in (["--help"], ["-h"]):
        try:
            sys.stdout.write(f"{page(colour_wanted(sys.stdout.isatty()))}\n")
            sys.stdout.flush()
        except OSError:
            pass  # `steno.cli.program` reports it like any other error
        else:
            return
    from steno.cli.program import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
