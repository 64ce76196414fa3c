"""What a machine lacks to run strangers' programs, in sentences that say what to do."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from .daemon import Daemon, SandboxUnavailable

_LITTLE_DISK = 5 << 30  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineHealth:
    engine: str | None = None  # the version; None: not reachable
    runc: str | None = None
    free_bytes: int | None = None  # on the disk of the engine's images; None: cannot be seen from here
    problems: tuple[str, ...] = ()  # programs cannot run
    warnings: tuple[str, ...] = ()


def examine(daemon: Daemon, image: str, devices: tuple[str, ...]) -> EngineHealth:
    """Ask the engine and look at the devices of this machine."""
    absent = [one for one in devices if not Path(one).exists()]
    missing = [f"{one} is missing: load its driver, or give it to this machine." for one in absent]
    try:
        with daemon.client() as client:
            version, root = client.version(), Path(client.info()["DockerRootDir"])
    except SandboxUnavailable as error:
        return EngineHealth(problems=(str(error), *missing))
    try:
        with daemon.client() as client:
            client.images.get(image)
    except SandboxUnavailable:
        missing.insert(0, f"The image {image} is not on this machine: docker pull {image}, or build it.")
    runc = next((part["Version"] for part in version.get("Components", ()) if part["Name"] == "runc"), None)
    free = shutil.disk_usage(root).free if root.exists() else None
    warnings = []
    if runc is not None and escapes(runc):
        warnings.append(
            f"runc {runc} may have known escapes (CVE-2025-31133): update it to 1.2.8, 1.3.3 or later, or check that "
            "the distribution's package has the fix."
        )
    if free is not None and free < _LITTLE_DISK:
        warnings.append(f"Only {free >> 20} MiB are free at {root}: docker system prune.")
    return EngineHealth(
        engine=version["Version"], runc=runc, free_bytes=free, problems=tuple(missing), warnings=tuple(warnings)
    )


def escapes(runc: str) -> bool:
    """Whether a runc of this version lacks the fixes of CVE-2025-31133 and its siblings: before 1.2.8, or 1.3.0–1.3.2.
    A version that cannot be read has them.
    """
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", runc)
    numbers = tuple(map(int, found.groups())) if found else (1 << 30,)
    return numbers < (1, 2, 8) or (1, 3, 0) <= numbers < (1, 3, 3)
