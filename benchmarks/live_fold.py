"""The cost of `steno up` for each answer that changed something, from the answer to the event stream, and its memory.

    python benchmarks/live_fold.py [TREE ...]

Each TREE is a checkout with its own `.venv`: give two of them to compare two commits in a sitting; else this checkout.
Each runs the real `steno up` against a server of this script's own, over a long record, with one listener on the
stream. At every poll one run ends and another begins, so that RUNS are always active.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

from benchmarks.support import ROOT, SIZE, Measured, measured, report, say

RUNS, EVENTS, ROUNDS, WARM = 20, SIZE.pick(2_000, 100_000, 100_000), SIZE.pick(2, 40, 40), SIZE.pick(1, 10, 10)
READY = re.compile(r"serving (http://[\w.:]+) ")
TICK = os.sysconf("SC_CLK_TCK")


class Server(BaseHTTPRequestHandler):
    """A dstack server with RUNS active runs; each `runs/list` shows one more ended."""

    protocol_version = "HTTP/1.1"
    polls = 0

    def log_message(self, *args):
        pass

    def do_POST(self):
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        status, body = 200, b"[]"
        if self.path.endswith("/runs/list"):
            body = b"[]" if question.get("prev_run_id") else self.runs()
        elif self.path.endswith("/events/list"):
            status, body = 405, b"{}"
        elif self.path.endswith("/get"):
            body = b'{"project_id": "p"}'
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def runs(self):
        from stenotest.dstack_history import single

        Server.polls += 1
        newest = Server.polls + RUNS
        items = []
        for number in range(newest, newest - RUNS - 2, -1):
            ended = number <= newest - RUNS
            word = "done" if ended else "running"
            item = single(f"live-{number}", word, word, exit_status=0 if ended else None, submitted=number)
            item["cost"] = round(Server.polls * 0.0011, 4)  # dstack's own figure moves at every answer
            items.append(item)
        return json.dumps(items).encode()


class Listener(threading.Thread):
    """Takes down how late each message about a run came."""

    def __init__(self, url):
        super().__init__(daemon=True)
        while True:
            try:
                self.response = urlopen(f"{url}/api/stream")
                break
            except HTTPError:  # the record is still being read
                time.sleep(1)
        self.late = []

    def run(self):
        for line in self.response:
            if line.startswith(b"data: "):
                message = json.loads(line[6:])
                if message["event"] == "RunObserved":
                    at = datetime.fromisoformat(message["at"]).replace(tzinfo=UTC).timestamp()
                    self.late.append((time.time() - at) * 1000)


def cpu_of(pid):
    """Seconds of CPU a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def memory_of(pid):
    """(resident, of that not shared with files), MB."""
    status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) / 1000, int(status["RssAnon"].split()[0]) / 1000


MAKE = """
import sys
sys.path.insert(0, "tests/support")
from pathlib import Path
from stenotest.big import big_record
from steno.events.clock import SECOND, SystemClock
big_record(Path(sys.argv[1]), events=int(sys.argv[2]), until=SystemClock().now() - 3600 * SECOND)
"""
"""Run by the commit that is measured: records of a later schema are not read by an earlier one."""


def followed(tree, record, url):
    """The figures of one commit."""
    folder = record.parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("STENO_", "DSTACK_"))}
    environment |= {
        "HOME": str(folder),
        "STENO_API_PORT": "0",
        "STENO_RECORD": str(record),
        "DSTACK_SERVER_URL": url,
        "DSTACK_TOKEN": "benchmark-token",
        "DSTACK_PROJECT": "main",
        "STENO_PROVIDER": "dstack",
    }
    python = sys.executable if tree == ROOT else str(tree / ".venv/bin/python")
    subprocess.run([python, "-c", MAKE, str(record), str(EVENTS)], cwd=tree, env=environment, check=True)
    steno = [python, "-m", "steno.cli.main"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run([*steno, "ps"], cwd=tree, env=environment, check=True, **quiet)
    log = folder / "up.log"
    process = subprocess.Popen(
        [*steno, "up"], cwd=tree, env=environment, stdout=log.open("wb"), stderr=subprocess.STDOUT
    )
    try:
        address = until(lambda: READY.search(log.read_text()), log)[1]
        listener = Listener(address)
        listener.start()
        begun = Server.polls + WARM
        until(lambda: Server.polls >= begun, log)
        began, polls = cpu_of(process.pid), Server.polls
        listener.late.clear()
        until(lambda: Server.polls >= begun + ROUNDS, log)
        used, count = cpu_of(process.pid) - began, Server.polls - polls
        resident, own = memory_of(process.pid)
        late = sorted(listener.late)
        say(f"{tree}: {used * 1000 / count:.1f} ms of CPU an answer, {len(late) / count:.1f} messages an answer")
        say(f"{tree}: to the stream p50 {late[len(late) // 2]:.1f} ms, resident {resident:.0f} MB, own {own:.0f} MB")
        return used * 1000 / count, late, resident
    finally:
        process.terminate()
        process.wait()


def until(look, log):
    """The first true value of `look`."""
    for _ in range(6000):
        if there := look():
            return there
        time.sleep(0.05)
    raise SystemExit(log.read_text())


def main() -> Iterator[Measured]:
    """The rows of the last tree."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as name:
        for number, word in enumerate(SIZE.words or [ROOT]):
            folder = Path(name) / str(number)
            folder.mkdir()
            url = f"http://127.0.0.1:{server.server_port}"
            cpu, late, resident = followed(Path(word).resolve(), folder / "record.db", url)
    of = f"{RUNS} runs, {EVENTS:,} events, {ROUNDS} polls of which each changes two runs"
    yield measured("live-cpu", of, [cpu])
    yield measured("live-stream", of, late)
    yield measured("live-memory", of, [resident])


if __name__ == "__main__":
    report(main())
