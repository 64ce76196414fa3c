"""A total time for one HTTP call: httpx limits each read, and a peer that drips a byte at a time passes each read."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

_CONNECTED = frozenset({"connection.connect_tcp.complete", "connection.start_tls.complete"})


class Deadline:
    """Shuts the connection of a call that still runs after `seconds`, whether it sends, waits for headers, reads
    endless `100 Continue` or the body. The call then fails as if the peer had closed, and `passed` is True.
    """

    def __init__(self, seconds: float, connection: Any = None) -> None:
        """`connection`: the open connection that the call may reuse; None: the call opens one."""
        self.connection = connection
        self.passed = False
        self._lock = threading.Lock()
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    @property
    def extensions(self) -> dict[str, Any]:
        """Extensions of the request that tell the deadline its connection."""
        return {"trace": self._trace}

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if event in _CONNECTED:
            with self._lock:
                self.connection = info["return_value"]
                late = self.passed
            if late:
                self._shut()

    def _cut(self) -> None:
        with self._lock:
            self.passed = True
        self._shut()

    def _shut(self) -> None:
        connection = None if self.connection is None else self.connection.get_extra_info("socket")
        if isinstance(connection, socket.socket):
            with suppress(OSError):
                # Not SSLSocket's own method: another thread is reading through its TLS state.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
