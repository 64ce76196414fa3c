"""An HTTP server in this process, at a free port of this machine, which answers as a test's handler says."""

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """Keeps connections open, logs nothing, and takes it that a client goes away."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.answer(self.rfile.read(int(self.headers["Content-Length"] or 0)))

    def answer(self, body: bytes) -> None:
        """Answer the request to `path`, by `reply`."""
        raise NotImplementedError

    def reply(self, status: int, content: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send an answer; without `headers` it is JSON of now."""
        self.send_response_only(status)
        now = {"Content-Type": "application/json", "Date": self.date_time_string()}
        for name, value in (now if headers is None else headers).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def handle(self) -> None:
        try:
            super().handle()
        except OSError:  # whoever asked has gone
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Nothing."""


class LocalServer:
    """Listens at `url` from now on, until it is closed; if it `waits`, closing waits for every answer."""

    def __init__(self, handler: type[Handler], *, waits: bool = False) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = not waits
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
