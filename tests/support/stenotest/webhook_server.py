"""A webhook on this machine that takes, refuses, redirects, hangs or hangs up, for tests of what is told."""

import socket
import threading
from typing import Literal, Self

from stenotest.http_server import Handler, LocalServer
from stenotest.waiting import LIMIT_S

Behaviour = int | Literal["hang", "close"]
"""The status it answers, or what it does instead."""


class WebhookServer:
    """Gives these answers in turn, then 200. `taken` has (headers, body) of every request that came.

    It listens inside its `with` block, at `url`; a redirect leads to `elsewhere`, at the same server.
    """

    def __init__(self, answers: list[Behaviour] | None = None) -> None:
        self.answers: list[Behaviour] = answers if answers is not None else []
        self.taken: list[tuple[dict[str, str], bytes]] = []
        self.paths: list[str] = []
        """The path of every request that came."""
        self.elsewhere = 0
        """How many requests came to where a redirect leads."""
        self.free = threading.Event()
        """Set: what hangs goes on."""

    def __enter__(self) -> Self:
        self._server = LocalServer(_handler(self), waits=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.free.set()
        self._server.close()

    @property
    def url(self) -> str:
        """Its address, which is a key to itself."""
        return f"{self._server.url}/services/T0/secret-path"


def _handler(hook: WebhookServer) -> type[Handler]:
    class Answer(Handler):
        timeout = LIMIT_S  # of a client that was killed and whose request never comes

        def answer(self, body: bytes) -> None:
            if self.path == "/elsewhere":
                hook.elsewhere += 1
            answer = hook.answers.pop(0) if hook.answers else 200
            hook.taken.append((dict(self.headers), body))
            hook.paths.append(self.path)
            if answer == "hang":
                hook.free.wait(LIMIT_S)
                self.close_connection = True
            elif answer == "close":
                self.connection.shutdown(socket.SHUT_RDWR)
                self.close_connection = True
            else:
                self.reply(answer, b"", {"Location": "/elsewhere"} if 300 <= answer < 400 else {})

    return Answer
