"""What a recorder costs: 1,000 active runs polled every 5 s, and the time from an answer to the changed state.

A process of its own answers like a dstack server whose runs all move at every poll (`cost`, `last_processed_at`), with
a run of a genuine recording repeated under other ids; the recorder under test is the real one over a real record. Give
another number of runs as the first argument.
"""

import json
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from record_table import Measured, show

RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
PAGE, ROUNDS, EVERY = 100, 12, 5.0
RECORDING = Path(__file__).parents[1] / "tests" / "traces" / "dstack-0.22.5" / "success.jsonl.zst"


def a_running_run():
    """A run of the recording while it runs."""
    from engine.replay.trace import open_trace

    for _, poll in open_trace(RECORDING):
        if poll is not None and poll.path == "/api/runs/list" and poll.body:
            for run in json.loads(poll.body):
                if run["status"] == "running" and run["jobs"][0]["job_submissions"][0]["exit_status"] is None:
                    return run
    raise SystemExit("the recording shows no running run")


class Server(BaseHTTPRequestHandler):
    """`runs/list` in pages, everything else empty; two runs end at the poll `ENDING`."""

    protocol_version = "HTTP/1.1"
    template = ""
    polls = 0

    def log_message(self, *args):
        pass

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path == "/api/runs/list":
            body = self.page(asked)
        elif self.path == "/api/events/list":
            return self.answer(405, b"{}")
        elif self.path.endswith("/get"):
            body = b'{"project_id": "p"}'
        else:
            body = b"[]"
        return self.answer(200, body)

    def page(self, asked):
        first = int(asked["prev_run_id"].rsplit("-", 1)[1]) + 1 if asked.get("prev_run_id") else 0
        if first == 0:
            Server.polls += 1
        moved = f"2026-11-20T14:{Server.polls // 60:02}:{Server.polls % 60:02}.000000Z"
        runs = []
        for number in range(first, min(first + PAGE, RUNS)):
            ended = number < 2 * (Server.polls - 1)
            text = Server.template.replace("@N@", f"{number:012}").replace("@MOVED@", moved)
            text = text.replace('"@COST@"', f"{Server.polls * 0.0011 + number * 0.0001:.4f}")
            runs.append(text.replace('"exit_status": null', '"exit_status": 0') if ended else text)
        return ("[" + ",".join(runs) + "]").encode()

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve():
    run = a_running_run()
    run.update(id="00000000-0000-0000-0000-@N@", last_processed_at="@MOVED@", cost="@COST@")
    run["project_name"] = "main"
    run["run_spec"]["run_name"] = "run-@N@"
    for submission in (*run["jobs"][0]["job_submissions"], run["latest_job_submission"]):
        submission.update(id="00000000-0000-0000-0001-@N@", last_processed_at="@MOVED@")
    Server.template = json.dumps(run)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


def measure(port, folder):
    from engine.fold.change import Moved
    from engine.live.live_world import LiveWorld
    from engine.providers.dstack.provider import DstackProvider
    from engine.providers.dstack.settings import address
    from engine.providers.readings import READINGS
    from engine.recorder.recorder import Recorder
    from events.clock import RandomIds, SystemClock
    from events.store.record import Record

    clock = SystemClock()
    server = address(f"http://127.0.0.1:{port}", "benchmark-token", "main")
    provider = DstackProvider(server, clock=clock, ids=RandomIds())
    latencies = []

    def time_moves(found):
        """The time from the end of an answer to each state it changed."""
        moves = [c.transition for c in found.changes if isinstance(c, Moved) and c.transition is not None]
        latencies.extend(clock.now() - move.at for move in moves)

    with Record.open(folder / "record.db", write=True, create=True, shapes=READINGS.shape, clock=clock) as record:
        live = LiveWorld(READINGS, record)
        live.subscribe(time_moves)
        recorder = Recorder(live=live, provider=provider, clock=clock)
        recorder.round()
        latencies.clear()
        cpu, requests = [], 0
        for _ in range(ROUNDS):
            began = time.process_time()
            requests += recorder.round().polls
            cpu.append(time.process_time() - began)
        cpu.sort()
    provider.close()
    share = 100 * cpu[len(cpu) // 2] / EVERY
    latencies.sort()
    middle, worst = latencies[len(latencies) // 2] / 1000, latencies[-1] / 1000
    show(
        f"One recorder: {RUNS} active runs, {ROUNDS} rounds of {requests // ROUNDS} requests",
        [
            Measured("CPU of one core, polling every 5 s", share, "%", "< 30 %", share < 30),
            Measured("answer of 100 runs to changed state, median", middle, "ms", "≤ 50 ms", middle <= 50),
            Measured("answer of 100 runs to changed state, worst", worst, "ms", "≤ 50 ms", worst <= 50),
        ],
    )


def main():
    if sys.argv[2:] == ["serve"]:
        return serve()
    with (
        subprocess.Popen([sys.executable, __file__, str(RUNS), "serve"], stdout=subprocess.PIPE, text=True) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        try:
            return measure(int(server.stdout.readline()), Path(folder))
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
