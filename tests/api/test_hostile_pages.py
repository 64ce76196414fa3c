"""A page of another site in a real browser, and strings that would be scripts if a page of ours let them."""

from __future__ import annotations

import http.server
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from engine.readings.shapes import shape_of
from events.clock import SystemClock
from events.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conftest import Serve, Served
    from stenolab.browser import See

pytestmark = pytest.mark.slow

EVIL = """<!doctype html><meta charset=utf-8><title>evil</title><body><script>
const base = new URLSearchParams(location.search).get("at"), told = window.told = {};
const run = JSON.stringify({configuration: {type: "task", commands: ["touch /tmp/owned"]}});
const attempt = async (name, act) => { try { told[name] = await act(); } catch (error) { told[name] = "failed"; } };
const loads = (tag, more) => new Promise((done) => {
  const one = Object.assign(document.createElement(tag), more);
  one.onload = () => done("loaded"); one.onerror = () => done("failed");
  document.body.append(one);
});
const stream = () => new Promise((done) => {
  const source = new EventSource(base + "/api/stream?after=0");
  source.onopen = () => done("opened"); source.onmessage = () => done("read"); source.onerror = () => done("failed");
});
const socket = () => new Promise((done) => {
  const one = new WebSocket(base.replace("http", "ws") + "/api/stream");
  one.onopen = () => done("opened"); one.onerror = () => done("failed");
});
const form = (type, name) => new Promise((done) => {
  const frame = Object.assign(document.createElement("iframe"), {name: type}), one = document.createElement("form");
  Object.assign(one, {method: "post", action: base + "/api/runs", enctype: type, target: type});
  one.append(Object.assign(document.createElement("input"), {name: run.slice(0, -1) + ',"x":"', value: '"}'}));
  frame.onload = () => setTimeout(() => done("sent"), 200);
  document.body.append(frame, one); one.submit();
});
(async () => {
  for (const path of ["/api/runs", "/api/overview", "/metrics", "/openapi.json"]) {
    await attempt("cors " + path, async () => (await fetch(base + path)).status);
    await attempt("opaque " + path, async () => (await fetch(base + path, {mode: "no-cors"})).type);
    await attempt("script " + path, () => loads("script", {src: base + path}));
    await attempt("image " + path, () => loads("img", {src: base + path}));
    await attempt("style " + path, () => loads("link", {rel: "stylesheet", href: base + path}));
  }
  for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/json"]) {
    for (const mode of ["no-cors", "cors"]) {
      await attempt(`post ${type} ${mode}`, async () =>
        (await fetch(base + "/api/runs", {method: "POST", mode, body: run, headers: {"Content-Type": type}})).type);
    }
  }
  await attempt("beacon", async () => { navigator.sendBeacon(base + "/api/runs", run); return "sent"; });
  for (const type of ["text/plain", "multipart/form-data", "application/x-www-form-urlencoded"]) {
    await attempt("form " + type, () => form(type));
  }
  await attempt("stream", stream);
  await attempt("socket", socket);
  told.done = true;
})();
</script>"""


@contextmanager
def another_site() -> Iterator[str]:
    """A web server that is not Steno's, on a port of its own."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = EVIL.encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f":{server.server_port}"
        server.shutdown()


def requests(service: Served) -> int:
    """How many runs were asked for."""
    with Record.open(service.record, shapes=shape_of, clock=SystemClock()) as record:
        return sum(1 for _ in record.read(types=frozenset({"RunRequested"})))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_page_of_another_site_reads_nothing_and_changes_nothing(
    served: Serve, town: Path, see: See, host: str
) -> None:
    """By fetch, form, beacon, script, image, style sheet, stream and socket; from the same host name and another."""
    service = served(town)
    before = requests(service)
    with another_site() as port:
        seen = see(f"http://{host}{port}")
        seen.page.goto(f"http://{host}{port}/?at={service.url}")
        seen.until("window.told && window.told.done")
        told = seen.page.evaluate("window.told")
    assert len(told) >= 32
    assert told.pop("done")
    assert {name: said for name, said in told.items() if said not in {"failed", "sent"}} == {}
    assert requests(service) == before
