"""A Docker engine for tests: that of DOCKER_HOST if it has the image, else our own (`engine.sh`), stopped by the last
process that used it.
"""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

IMAGE = "steno-lab/kernel:1"
HERE = Path(__file__).parent
FOLDER = (HERE.parents[2] / ".lab").resolve() / "containers"  # runc takes no links
_NEEDS = "these tests need a Docker engine: `apt-get install docker.io tini mmdebstrap`, as root"
_PROGRAMS = ("dockerd", "docker", "docker-init", "mmdebstrap")


@pytest.fixture(scope="session")
def engine() -> Iterator[str]:
    """The engine's address; it has the image."""
    given = os.environ.get("DOCKER_HOST", "")
    if given and _has_image(given):
        yield given
        return
    if os.geteuid() != 0 or not all(map(shutil.which, _PROGRAMS)):
        pytest.fail(_NEEDS) if os.environ.get("STENO_REQUIRE_LAB") == "1" else pytest.skip(_NEEDS)
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "users").open("w") as users, (FOLDER / "changing").open("w") as changing:
        fcntl.flock(changing, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        subprocess.run([HERE / "engine.sh", "up", FOLDER], check=True, stdin=subprocess.DEVNULL)
        fcntl.flock(changing, fcntl.LOCK_UN)
        yield f"unix://{FOLDER}/docker.sock"
        fcntl.flock(changing, fcntl.LOCK_EX)
        with suppress(BlockingIOError):  # another process uses it
            fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            subprocess.run([HERE / "engine.sh", "down", FOLDER], check=True, stdin=subprocess.DEVNULL)


def _has_image(url: str) -> bool:
    from engine.listener.sandbox import ContainerLimits, Containers

    sandbox = Containers(ContainerLimits(image=IMAGE), url=url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the SDK leaks the socket of an engine that is not there
        well = not sandbox.health().problems
        sandbox.close()
        gc.collect()
    return well
