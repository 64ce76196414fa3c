"""The lab by hand: a genuine dstack server with a simulated cloud, on this machine, for nothing.

eval "$(python tests/lab/lab.py up)"     and then `steno submit --wait -- …` in the same shell
python tests/lab/lab.py down
"""

import argparse
import sys

from stenolab import lab_process
from stenolab.environment import EnvironmentUnavailable
from stenolab.versions import NEWEST, VERSIONS
from stenotest.waiting import StillWaiting


def main() -> int:
    """0, or 1 with one line that says why not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("up", "down", "keep"), help="`keep` is `up` in the foreground")
    parser.add_argument("version", nargs="?", choices=VERSIONS, default=NEWEST)
    parser.add_argument("--real-time", action="store_true", help="dstack's own pauses: over a minute for a cold run")
    given = parser.parse_args()
    try:
        match given.command:
            case "up":
                kept = lab_process.up(given.version, real_time=given.real_time)
                print(f"dstack {kept.version} at {kept.url}, token {kept.token}", file=sys.stderr)
                print(
                    f"project {lab_process.PROJECT}, fleet {lab_process.FLEET}; its cloud at {kept.cloud}",
                    file=sys.stderr,
                )
                print(kept.exports())
            case "down":
                print("down" if lab_process.down(given.version) else "was not up", file=sys.stderr)
            case _:
                lab_process.keep(given.version, real_time=given.real_time)
    except (EnvironmentUnavailable, StillWaiting) as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
