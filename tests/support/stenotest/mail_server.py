"""A mail server on this machine that takes messages, refuses them or hangs up, for tests of notices by mail."""

import socketserver
import threading
from email import message_from_bytes
from email.message import Message
from email.policy import default
from typing import Self


class MailServer:
    """Gives these replies to messages in turn, then accepts; `taken` has every message that it accepted, `tries` counts
    connections.

    It listens inside its `with` block, at `port`; a reply `hang` waits until `free` is set, and then closes.
    """

    def __init__(self, port: int = 0) -> None:
        self.replies: list[str] = []
        self.taken: list[Message] = []
        self.tries = 0
        self.free = threading.Event()
        self._port = port

    def __enter__(self) -> Self:
        socketserver.ThreadingTCPServer.allow_reuse_address = True
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", self._port), _handler(self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.free.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def port(self) -> int:
        """Its port, also after its `with` block."""
        self._port = self._server.server_address[1]
        return self._port

    def url(self, to: str) -> str:
        """The address of a route that sends mail to somebody through it."""
        return f"mailto://127.0.0.1:{self.port}?mode=insecure&from=steno@example.org&to={to}"


def _handler(server: MailServer) -> type[socketserver.StreamRequestHandler]:
    class Session(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            server.tries += 1
            self._say("220 here")
            while line := self.rfile.readline():
                match line[:4].upper():
                    case b"DATA":
                        self._say("354 go on")
                        if not self._message():
                            return
                    case b"QUIT":
                        self._say("221 bye")
                        return
                    case _:
                        self._say("250 ok")

        def _message(self) -> bool:
            lines = list(iter(self.rfile.readline, b".\r\n"))
            reply = server.replies.pop(0) if server.replies else "250 taken"
            if reply == "hang":
                server.free.wait(600)
                return False
            if reply.startswith("2"):
                server.taken.append(message_from_bytes(b"".join(lines), policy=default))
            self._say(reply)
            return True

        def _say(self, reply: str) -> None:
            self.wfile.write(f"{reply}\r\n".encode())

    return Session
