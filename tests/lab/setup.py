"""Makes the environments of the genuine dstack servers (`make lab`); does nothing when they are up to date.

python tests/lab/setup.py
"""

import os
import sys
import time

from stenolab.environment import EnvironmentUnavailable, ensure
from stenolab.versions import VERSIONS


def main() -> int:
    """0, also when an environment cannot be made and nobody insists: the lab's tests then skip and say so."""
    for version in VERSIONS:
        start = time.monotonic()
        try:
            made = ensure(version)
        except EnvironmentUnavailable as error:
            print(f"lab: {version}: {error}", file=sys.stderr)
            return 1 if os.environ.get("STENO_REQUIRE_LAB") else 0
        if made:
            print(f"lab: {version} installed in {time.monotonic() - start:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
