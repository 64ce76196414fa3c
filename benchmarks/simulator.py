"""dstack's REST with many active runs, in a process of its own: a run of a genuine recording under other ids.

All runs move at every look (`cost`, `last_processed_at`), and two more end.
"""

import json
import subprocess
import sys
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PAGE = 100
RECORDING = Path(__file__).resolve().parents[1] / "tests" / "traces" / "dstack-0.22.5" / "success.jsonl.zst"


@contextmanager
def simulator(runs):
    """Its URL."""
    command = [sys.executable, __file__, str(runs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.terminate()


def a_running_run():
    """A run of the recording while it runs."""
    from steno.engine.replay.replay import open_trace

    for _, poll in open_trace(RECORDING):
        if poll is not None and poll.path == "/api/runs/list" and poll.body:
            for run in json.loads(poll.body):
                if run["status"] == "running" and run["jobs"][0]["job_submissions"][0]["exit_status"] is None:
                    return run
    raise SystemExit("the recording shows no running run")


class Server(BaseHTTPRequestHandler):
    """`runs/list` in pages, everything else empty; two more runs end at each look."""

    protocol_version = "HTTP/1.1"
    template = ""
    runs = 0
    polls = 0

    def log_message(self, *args):
        pass

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.path == "/api/runs/list":
            body = self.page(request)
        elif self.path == "/api/events/list":
            return self.answer(405, b"{}")
        elif self.path.endswith("/get"):
            body = b'{"project_id": "p"}'
        else:
            body = b"[]"
        return self.answer(200, body)

    def page(self, request):
        first = int(request["prev_run_id"].rsplit("-", 1)[1]) + 1 if request.get("prev_run_id") else 0
        if first == 0:
            Server.polls += 1
        moved = f"2026-11-20T14:{Server.polls // 60:02}:{Server.polls % 60:02}.000000Z"
        listed = []
        for number in range(first, min(first + PAGE, Server.runs)):
            ended = number < 2 * (Server.polls - 1)
            text = Server.template.replace("@N@", f"{number:012}").replace("@MOVED@", moved)
            text = text.replace('"@COST@"', f"{Server.polls * 0.0011 + number * 0.0001:.4f}")
            listed.append(text.replace('"exit_status": null', '"exit_status": 0') if ended else text)
        return ("[" + ",".join(listed) + "]").encode()

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def serve(runs):
    Server.runs = runs
    run = a_running_run()
    run.update(id="00000000-0000-4000-8000-@N@", last_processed_at="@MOVED@", cost="@COST@")
    run["project_name"] = "main"
    run["run_spec"]["run_name"] = "run-@N@"
    for submission in (*run["jobs"][0]["job_submissions"], run["latest_job_submission"]):
        submission.update(id="00000000-0000-4000-8001-@N@", last_processed_at="@MOVED@")
    Server.template = json.dumps(run)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(int(sys.argv[1]))
