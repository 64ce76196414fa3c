"""The lab: genuine dstack servers against a simulated cloud, everything on loopback and without root.

`environment` makes the servers' own virtual environments, `server` runs a genuine dstack server in one of them, `cloud`
plays DigitalOcean and its machines, `lab` starts and stops the two together, `steno` runs our own command against
them, `plugin` offers it all as pytest fixtures. README.md beside this package says how to use it by hand.

Not a part of the product and not installed: `tests/conftest.py` loads it by file location under this name.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "support"))  # `stenotest`: the lab runs in processes of its own too
