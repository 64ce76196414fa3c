"""The Docker engine as the listener uses it: one connection, and every failure as a sentence."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from events.errors import StenoError

from .attachment import Attachment


class SandboxUnavailable(StenoError):
    """The container engine cannot be used."""


class ContainerGone(SandboxUnavailable):
    """The container stopped or was removed by someone else."""


class Daemon:
    """Connects at the first use; the SDK is optional and imported then."""

    def __init__(self, url: str | None = None) -> None:
        """`url`: such as unix:///var/run/docker.sock; None: DOCKER_HOST and its companions."""
        self._url = url
        self._client: Any = None
        self._lock = threading.Lock()

    @contextmanager
    def client(self) -> Iterator[Any]:
        """The SDK's client. Every error of the SDK or the connection becomes `SandboxUnavailable`."""
        try:
            import docker
        except ImportError:
            raise SandboxUnavailable("The Docker SDK is not installed: pip install 'steno[listener]'.") from None
        try:
            with self._lock:
                if self._client is None:
                    settings = {"base_url": self._url} if self._url else docker.utils.kwargs_from_env()
                    self._client = docker.DockerClient(**settings, version="auto")
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
                f"The Docker engine at {self._url or 'DOCKER_HOST'} does not answer ({error}). Start it: "
                "systemctl start docker."
            ) from error

    def create(self, arguments: dict[str, Any]) -> str:
        """Create and start a container; its id."""
        with self.client() as client:
            container = client.containers.create(**arguments)
            try:
                container.start()
            except BaseException:
                container.remove(force=True, v=True)
                raise
            return str(container.id)

    def execute(self, container: str, argv: Sequence[str]) -> tuple[str, Attachment]:
        """Start a program in a container, as the container's user: the id of the exec, and its streams."""
        with self.client() as client:
            created = client.api.exec_create(container, list(argv), stdin=True, stdout=True, stderr=True)["Id"]
            return created, Attachment(client.api.exec_start(created, socket=True))

    def execute_detached(self, container: str, argv: Sequence[str]) -> None:
        with self.client() as client:
            created = client.api.exec_create(container, list(argv), stdout=False, stderr=False)["Id"]
            client.api.exec_start(created, detach=True)

    def exit_status(self, execution: str) -> int | None:
        """The exit status of an exec; None while it runs. runc reports death by signal n as 128 + n, the same as
        `exit(128 + n)`: the two cannot be told apart, so the status stays positive.
        """
        with self.client() as client:
            found = client.api.exec_inspect(execution)
            return None if found["Running"] or found["ExitCode"] is None else int(found["ExitCode"])

    def state(self, container: str) -> dict[str, Any]:
        with self.client() as client:
            return dict(client.api.inspect_container(container)["State"])

    def kill(self, container: str) -> None:
        """Kill every process of the container at once; nothing to do if it is gone."""
        with suppress(ContainerGone), self.client() as client:
            client.api.kill(container)

    def remove(self, container: str) -> None:
        with suppress(ContainerGone), self.client() as client:
            client.api.remove_container(container, force=True, v=True)

    def labelled(self, *labels: str) -> list[tuple[str, dict[str, str]]]:
        """The containers with these labels, stopped ones too: id and labels."""
        with self.client() as client:
            found = client.api.containers(all=True, filters={"label": list(labels)})
            return [(one["Id"], dict(one["Labels"])) for one in found]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None
