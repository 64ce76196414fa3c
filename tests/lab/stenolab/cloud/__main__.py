"""Runs the cloud: `python -m stenolab.cloud VERSION FOLDER`; its first line of output is `{"port": N}`."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from stenolab.child import leave, leave_with_parent
from stenolab.cloud.behaviour import Manners
from stenolab.cloud.control import Control
from stenolab.cloud.provider import Provider
from stenolab.cloud.wire import Wire


def main(version: str, folder: Path) -> None:
    """Serves until the parent leaves; `folder` is where jobs may remember things (`$LAB_STATE`)."""
    folder.mkdir(parents=True, exist_ok=True)
    manners = Manners()
    provider = Provider(version=version, manners=manners, state_folder=folder)
    leave_with_parent(provider.close)
    signal.signal(signal.SIGTERM, lambda *_: leave(provider.close))
    wire = Wire(0, Control(manners=manners, provider=provider), provider)
    print(json.dumps({"port": wire.server_address[1]}), flush=True)
    wire.serve_forever(poll_interval=0.2)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
