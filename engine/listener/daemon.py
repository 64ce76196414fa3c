"""The Docker engine as the listener uses it: one connection, every failure as a sentence, and its health."""

from __future__ import annotations

import os
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from steno.engine.kernel.machine.exchange import SHARED
from steno.events.errors import StenoError
from steno.events.installation import installing

from . import groups

_USUAL = "unix:///var/run/docker.sock"
_START = "apt-get install docker.io, systemctl start docker."
_LITTLE_DISK = 5 << 30  # bytes
_LITTLE_MEMORY = 2 << 30  # bytes of `SHARED`


class SandboxUnavailable(StenoError):
    """The container engine cannot be used."""


class ContainerGone(SandboxUnavailable):
    """The container stopped or was removed by someone else."""


class EngineHealth(NamedTuple):
    engine: str | None = None  # the version; None: not reachable
    runc: str | None = None
    free_bytes: int | None = None  # on the disk of the engine's images; None: cannot be seen from here
    problems: tuple[str, ...] = ()  # programs cannot run
    warnings: tuple[str, ...] = ()

    @property
    def starting(self) -> bool:
        """It does not answer yet, and nothing else is missing."""
        return self.engine is None and len(self.problems) == 1 and find_spec("docker") is not None


class Daemon:
    """Connects at the first use; the SDK is optional and imported then."""

    def __init__(self, url: str | None = None) -> None:
        """`url`: such as unix:///var/run/docker.sock; None: DOCKER_HOST and its companions."""
        self._url = url or os.environ.get("DOCKER_HOST") or _USUAL
        self._client: Any = None
        self._lock = threading.Lock()

    @contextmanager
    def client(self) -> Iterator[Any]:
        """The SDK's client. Every error of the SDK or the connection becomes `SandboxUnavailable`."""
        try:
            import docker
        except ImportError:
            raise SandboxUnavailable(f"The Docker SDK is not installed: `{installing('listener')}`.") from None
        try:
            self._connect()  # the SDK would leave a socket open where nobody listens
            with self._lock:
                if self._client is None:
                    settings = docker.utils.kwargs_from_env() | {"base_url": self._url}
                    self._client = docker.DockerClient(**settings, version="auto")
                    self._client.api.trust_env = False  # no proxy leads to it; each request would read the environment
            yield self._client
        except docker.errors.ImageNotFound as error:
            raise SandboxUnavailable(f"{error.explanation}: docker pull it, or build it.") from error
        except docker.errors.APIError as error:
            gone = error.status_code in (404, 409)
            raise (ContainerGone if gone else SandboxUnavailable)(
                f"The Docker engine refused: {error.explanation or error}. See its log."
            ) from error
        except (docker.errors.DockerException, OSError) as error:  # OSError is the root of requests' errors
            raise SandboxUnavailable(
                f"No Docker engine answers at {self._url} ({getattr(error, 'strerror', None) or error}): {_START}"
            ) from error

    def answers(self) -> bool:
        """True if a server listens at its socket of this machine, or if it is on another machine."""
        with suppress(OSError):
            self._connect()
            return True
        return False

    def _connect(self) -> None:
        if self._url.startswith("unix://"):
            with socket.socket(socket.AF_UNIX) as tried:
                tried.connect("/" + self._url.removeprefix("unix://").lstrip("/"))

    def start(self, name: str, arguments: dict[str, Any]) -> tuple[str, int]:
        """A new container's id, and the pid of its init on the engine's machine."""
        with self.client() as client:
            made = client.containers.create(name=name, **arguments)
            made.start()
            return str(made.id), int(self.state(name)["Pid"])

    def state(self, container: str) -> dict[str, Any]:
        with self.client() as client:
            return dict(client.api.inspect_container(container)["State"])

    def pause(self, container: str, *, paused: bool) -> None:
        """Freeze or thaw a container through the engine; nothing to do if it is so already."""
        with suppress(ContainerGone), self.client() as client:
            (client.api.pause if paused else client.api.unpause)(container)

    def kill(self, container: str) -> None:
        """Kill every process of the container at once; nothing to do if it is gone."""
        with suppress(ContainerGone), self.client() as client:
            self._thaw(container)
            client.api.kill(container)

    def remove(self, container: str) -> None:
        """Kill and remove. The engine refuses to kill a container that just ended by itself: then once more."""
        for refusal in (SandboxUnavailable, ContainerGone):
            with suppress(refusal), self.client() as client:
                self._thaw(container)
                client.api.remove_container(container, force=True, v=True)
                return
        with suppress(ContainerGone):  # else the engine is busy with it, and may fail
            self.state(container)
            raise SandboxUnavailable(f"The Docker engine still has the container {container}.")

    def _thaw(self, container: str) -> None:
        """A frozen process does not die."""
        with self.client() as client:
            facts = client.api.inspect_container(container)
        groups.thaw(int(facts["State"]["Pid"]), facts["Id"])
        if facts["State"]["Paused"]:
            self.pause(container, paused=False)

    def pull(self, image: str) -> None:
        with self.client() as client:
            name, _, tag = image.rpartition(":")
            client.api.pull(name or image, tag=tag if name else "latest")

    def labelled(self, *labels: str) -> list[tuple[str, dict[str, str]]]:
        """Id and labels of the containers with these labels, stopped containers too."""
        with self.client() as client:
            containers = client.api.containers(all=True, filters={"label": list(labels)})
            return [(container["Id"], dict(container["Labels"])) for container in containers]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def health(self, image: str, devices: tuple[str, ...]) -> EngineHealth:
        """Ask the engine and look at the devices of this machine."""
        missing = [
            f"{path} is missing: load its driver, or give it to this machine."
            for path in devices
            if not Path(path).exists()
        ]
        if find_spec("numpy") is None:
            missing.append(f"numpy is not installed: `{installing('listener')}`.")
        try:
            with self.client() as client:
                version, root = client.version(), Path(client.info()["DockerRootDir"])
        except SandboxUnavailable as error:
            return EngineHealth(problems=(str(error), *missing))
        try:
            with self.client() as client:
                client.images.get(image)
        except SandboxUnavailable:
            missing.insert(0, f"The image {image} is not on this machine: docker pull {image}, or build it.")
        runc = next((part["Version"] for part in version.get("Components", ()) if part["Name"] == "runc"), None)
        free = shutil.disk_usage(root).free if root.exists() else None
        warnings = []
        if runc is not None and escapes(runc):
            warnings.append(
                f"runc {runc} may have known escapes (CVE-2025-31133): update it to 1.2.8, 1.3.3 or later, or check "
                "that the distribution's package has the fix."
            )
        if free is not None and free < _LITTLE_DISK:
            warnings.append(f"Only {free >> 20} MiB are free at {root}: docker system prune.")
        room = shutil.disk_usage(SHARED).total if SHARED.is_dir() else 0
        if room < _LITTLE_MEMORY:
            warnings.append(
                f"{SHARED} has {room >> 20} MiB, and a batch may need more: mount -o remount,size=4G {SHARED}."
            )
        return EngineHealth(version["Version"], runc, free, tuple(missing), tuple(warnings))


def escapes(runc: str) -> bool:
    """True if a runc of this version lacks the fixes of CVE-2025-31133 and its siblings: before 1.2.8, or 1.3.0–1.3.2.
    A version that cannot be read has them.
    """
    version = re.match(r"(\d+)\.(\d+)\.(\d+)", runc)
    numbers = tuple(map(int, version.groups())) if version else (1 << 30,)
    return numbers < (1, 2, 8) or (1, 3, 0) <= numbers < (1, 3, 3)
