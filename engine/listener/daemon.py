"""The Docker engine as the listener uses it: one connection, and every failure as a sentence."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

from events.errors import StenoError
from events.installation import installing

from .attachment import Attachment

_USUAL = "unix:///var/run/docker.sock"
_START = "apt-get install docker.io, systemctl start docker."


class SandboxUnavailable(StenoError):
    """The container engine cannot be used."""


class ContainerGone(SandboxUnavailable):
    """The container stopped or was removed by someone else."""


class StartedContainer(NamedTuple):
    """A container that runs, and the streams of its first program."""

    container: str  # its id
    streams: Attachment
    pid: int  # of its init, on the engine's machine


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
            self._expect_answer()
            with self._lock:
                if self._client is None:
                    settings = docker.utils.kwargs_from_env() | {"base_url": self._url}
                    self._client = docker.DockerClient(**settings, version="auto")
                    self._client.api.trust_env = False  # no proxy leads to it; each request would read the environment
            yield self._client
        except docker.errors.ImageNotFound as error:
            raise SandboxUnavailable(f"{error.explanation}: docker pull it, or build it.") from error
        except docker.errors.APIError as error:
            error.response.close()  # the SDK leaves the socket of a refused exec open
            gone = error.status_code in (404, 409)
            raise (ContainerGone if gone else SandboxUnavailable)(
                f"The Docker engine refused: {error.explanation or error}. See its log."
            ) from error
        except (docker.errors.DockerException, OSError) as error:  # OSError is the root of requests' errors
            raise SandboxUnavailable(
                f"No Docker engine answers at {self._url} ({getattr(error, 'strerror', None) or error}): {_START}"
            ) from error

    def _expect_answer(self) -> None:
        """Raises OSError if nobody listens at a socket of this machine: the SDK would leave one of its own open."""
        if self._url.startswith("unix://"):
            with socket.socket(socket.AF_UNIX) as tried:
                tried.connect("/" + self._url.removeprefix("unix://").lstrip("/"))

    def start(self, arguments: dict[str, Any]) -> StartedContainer:
        with self.client() as client:
            made = client.containers.create(**arguments)
            try:
                wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
                streams = Attachment(client.api.attach_socket(made.id, params=wanted))
                try:
                    made.start()
                    pid = int(client.api.inspect_container(made.id)["State"]["Pid"])
                except BaseException:
                    streams.close()
                    raise
            except BaseException:
                made.remove(force=True, v=True)
                raise
            return StartedContainer(str(made.id), streams, pid)

    def execute(self, container: str, argv: Sequence[str]) -> None:
        """Start a program in a container, as the container's user, and do not wait for it."""
        with self.client() as client:
            created = client.api.exec_create(container, list(argv), stdout=False, stderr=False)["Id"]
            client.api.exec_start(created, detach=True)

    def state(self, container: str) -> dict[str, Any]:
        with self.client() as client:
            return dict(client.api.inspect_container(container)["State"])

    def kill(self, container: str) -> None:
        """Kill every process of the container at once; nothing to do if it is gone."""
        with suppress(ContainerGone), self.client() as client:
            client.api.kill(container)

    def remove(self, container: str) -> None:
        """Kill and remove. The engine refuses to kill a container that just ended by itself: then once more."""
        try:
            self._remove(container)
        except SandboxUnavailable:
            self._remove(container)

    def _remove(self, container: str) -> None:
        with suppress(ContainerGone), self.client() as client:
            client.api.remove_container(container, force=True, v=True)

    def pull(self, image: str) -> None:
        with self.client() as client:
            name, _, tag = image.rpartition(":")
            client.api.pull(name or image, tag=tag if name else "latest")

    def labelled(self, *labels: str) -> list[tuple[str, dict[str, str]]]:
        """The containers with these labels, stopped ones too: id and labels."""
        with self.client() as client:
            found = client.api.containers(all=True, filters={"label": list(labels)})
            return [(one["Id"], dict(one["Labels"])) for one in found]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
