"""The one table of targets: every row that a benchmark reports, the script that measures it, and what it must reach."""

from typing import NamedTuple


class Target(NamedTuple):
    """A row. Without `limit` it is measured for comparison only."""

    script: str
    name: str
    what: str
    unit: str
    limit: float | None = None
    least: bool = False
    """The limit is the least that is allowed, not the most."""
    than: str = ""
    """The other side of a ratio, measured in the same run."""
    full: bool = False
    """Only `--full` measures it."""

    def met(self, value: float) -> bool | None:
        """True if the value is within the limit; None without a limit."""
        return None if self.limit is None else (value >= self.limit if self.least else value <= self.limit)

    def share(self, value: float) -> float | None:
        """The value over its limit, inverted where the limit is the least: up to 1 meets it. None without a limit."""
        if self.limit is None:
            return None
        return self.limit / value if self.least else value / self.limit

    @property
    def text(self) -> str:
        """The limit with its unit, and what it is compared with."""
        words = "–" if self.limit is None else f"{'≥' if self.least else '≤'} {self.limit:g} {self.unit}"
        return f"{words} of {self.than}" if self.than else words


def _growth(store: str, title: str) -> tuple[Target, ...]:
    """A long record on one store."""
    rows = (
        Target("growth", "append", "append in batches, CPU an event", "µs"),
        Target("growth", "append-last", "… last tenth", "×", 1.5, than="the first tenth"),
        Target("growth", "size", "size an event, indexes in", "B"),
        Target("growth", "fold", "replay of all of it", "k/cpu-s"),
        Target("growth", "open", "opened to read", "ms", 1000),
        Target("growth", "start", "engine started from its snapshot", "ms", 1000),
        Target("growth", "decide", "a round's decisions with a budget, CPU", "ms"),
        Target("growth", "rebuild", "read models rebuilt", "k/cpu-s"),
        Target("growth", "diff", "rules diff where nothing differs, CPU", "ms", 1000),
        Target("growth", "diff-run", "rules diff where one run differs, CPU", "ms"),
        Target("growth", "verify", "verify of all of it", "k/cpu-s"),
        Target("growth", "verify-tail", "verify --after, the last events", "k/cpu-s"),
    )
    return tuple(
        row._replace(name=f"growth-{store}-{row.name}", what=f"long record, {title}: {row.what}") for row in rows
    )


TARGETS = (
    Target("record_append", "append-batch", "append, batches of 1,000", "%", 80, True, "raw sqlite3"),
    Target("record_append", "append-single", "append, one durable event", "%", 75, True, "raw sqlite3"),
    Target("record_append", "append-eventsourcing", "append, batches of 100", "×", 3, True, "eventsourcing"),
    Target("postgres_append", "postgres-copy", "append, PostgreSQL, batches of 1,000", "%", 40, True, "COPY BINARY"),
    Target(
        "postgres_append",
        "postgres-eventsourcing",
        "append, PostgreSQL, batches of 1,000",
        "×",
        3,
        True,
        "eventsourcing",
    ),
    Target("postgres_append", "postgres-single-copy", "append, PostgreSQL, one event", "%", than="COPY BINARY"),
    Target(
        "postgres_append", "postgres-single-eventsourcing", "append, PostgreSQL, one event", "×", than="eventsourcing"
    ),
    Target("record_polls", "ingest-still", "ingest of an 8.8 KB answer, volatile values only", "µs", 20),
    Target("record_polls", "ingest", "ingest of an 8.8 KB answer, 8 % changes", "µs", 20),
    Target("record_polls", "ingest-single", "… one a transaction", "µs"),
    Target("record_polls", "poll-size", "stored size of a poll of one run, 8 % changes", "B", 150),
    Target("record_polls", "poll-size-still", "stored size of a poll, volatile values only", "B", 150),
    Target("record_polls", "poll-size-day", "stored size of a poll, typical day", "B", 80),
    Target("replay", "replay-trace", "steno replay of a recording of 10 MB", "s", 2),
    Target("replay", "fold-day", "fold of a long day", "k/cpu-s", 500, True),
    Target("replay", "fold-day-eventsourcing", "fold of a long day", "×", 12, True, "eventsourcing's rebuild"),
    Target("replay", "fold-busy", "fold of runs back to back", "k/cpu-s", 500, True),
    Target("replay", "fold-busy-eventsourcing", "fold of runs back to back", "×", 12, True, "eventsourcing's rebuild"),
    Target("replay", "fold-busy-cursor", "… the record's cursor alone", "k/cpu-s"),
    Target("replay", "steps", "steps of the compiled Run machine", "k/cpu-s", 500, True),
    Target("replay", "steps-transitions", "steps of the compiled Run machine", "×", 10, True, "transitions"),
    Target("replay", "bill", "bill of a machine with one run, CPU", "µs", 300),
    Target("replay", "replay-memory", "memory of a replay over its imports", "MB", 10),
    Target("cores", "cores-replay", "replay on all cores, eight projects", "×", than="one process"),
    Target("cores", "cores-replay-cpu", "… CPU of eight pieces", "×", than="one process"),
    Target("cores", "cores-verify", "verify on all cores", "×", than="one process"),
    Target("cores", "cores-verify-cpu", "… CPU of eight pieces", "×", than="one process"),
    Target("read_models", "open-run", "open any one run", "ms", 2),
    Target("read_models", "read-ps", "steno ps over its imports", "ms", 150),
    Target("read_models", "read-show", "steno show over its imports", "ms", 150),
    Target("read_models", "read-timeline", "steno timeline over its imports", "ms", 150),
    Target("read_models", "read-explain", "steno explain over its imports", "ms", 150),
    Target("api_reads", "http-read", "one run over HTTP, requests a second", "%", 60, True, "raw ASGI, our server"),
    Target("api_reads", "http-read-cpu", "one run over HTTP, by CPU", "%", 60, True, "raw ASGI, our server"),
    Target(
        "api_reads", "http-read-uvicorn", "one run over HTTP, requests a second", "%", 60, True, "raw ASGI, uvicorn"
    ),
    Target("sse_clients", "sse-p99", "1,000 clients of the stream at 10 events/s, p99", "ms", 100),
    Target("sse_clients", "sse-cpu", "… CPU of a core", "%"),
    Target("sse_clients", "sse-memory", "… memory of the server at most", "MB"),
    Target("recorder", "recorder-cpu", "1,000 active runs polled every 5 s, CPU of a core", "%", 30),
    Target("recorder", "recorder-requests", "… requests a round", "", 20),
    Target("recorder", "recorder-state", "… answer to the changed state, median", "ms", 50),
    Target("recorder", "recorder-state-worst", "… answer to the changed state, worst", "ms", 50),
    Target("recorder", "recorder-cpu-10000", "10,000 active runs polled every 5 s, CPU of a core", "%", 100, full=True),
    Target("recorder", "recorder-state-10000", "… answer to the changed state, median", "ms", 50, full=True),
    Target(
        "dstack_client",
        "dstack-client",
        "1,000 runs polled, recorded and folded, rounds a CPU-second",
        "×",
        than="dstack's client",
    ),
    Target("cli_start", "help-start", "steno --help over python -c pass", "ms", 80),
    Target("verdict_latency", "verdict-up", "verdict from answer to stream, steno up, p99", "ms", 50),
    Target("verdict_latency", "verdict-apart", "verdict from answer to stream, recorder and API apart, p99", "ms", 250),
    *_growth("sqlite", "SQLite"),
    *_growth("postgres", "PostgreSQL"),
    Target("live_fold", "live-cpu", "steno up, CPU of a changed answer, 20 active runs", "ms", 49),
    Target("live_fold", "live-stream", "… answer to stream, p50", "ms"),
    Target("live_fold", "live-memory", "… resident memory", "MB", 87),
    Target("projections_service", "models-build", "read models built, CPU", "×", 2, than="the fold alone"),
    Target("projections_service", "models-poll", "read models, one poll more, CPU p95", "ms"),
    Target("projections_service", "models-lag", "read models behind the record, p95", "ms", 200),
    Target("projections_service", "models-overview", "overview, CPU p95", "ms", 200),
    Target("projections_service", "models-run", "one run, CPU p95", "ms", 2),
    Target("projections_service", "moment-held", "overview of a moment held, CPU p95", "ms", 200),
    Target("projections_service", "moment-opened", "a past moment opened, CPU p95", "ms", 1000),
    Target("find_runs", "find-page", "a page of runs over HTTP, worst filter, p95", "ms", 100),
    Target("find_runs", "find-search", "a search over HTTP, worst search, p95", "ms", 100),
    Target("find_runs", "find-500", "500 runs over HTTP, p95", "ms", 100),
    Target("find_runs", "find-ps", "steno ps with filters over its imports, worst", "ms", 250),
    Target("charts", "chart-month", "a chart of 30 days, the worst of four, CPU", "ms", 100),
    Target("charts", "chart-all", "a chart of all days, the worst of four, CPU", "ms", 100),
    Target("dashboard_paint", "first-paint", "first paint of the dashboard, p95", "ms", 1000),
    Target("dashboard_paint", "first-content", "… content there, p95", "ms"),
    Target("slurm_follow", "slurm-cpu", "1,000 jobs of Slurm polled every 5 s, 2 end a poll, CPU of a core", "%", 5),
    Target("slurm_follow", "slurm-cpu-worst", "… worst poll", "%", 10),
    Target("slurm_follow", "slurm-growth", "… growth of the record a poll", "KiB", 40),
    Target(
        "slurm_follow", "slurm-cpu-busy", "1,000 jobs of Slurm polled every 5 s, 50 end a poll, CPU of a core", "%", 5
    ),
    Target("slurm_follow", "slurm-cpu-worst-busy", "… worst poll", "%", 10),
    Target("slurm_follow", "slurm-growth-busy", "… growth of the record a poll", "KiB", 100),
    Target("slurm_follow", "slurm-squeue", "1,000 jobs of Slurm, calls of squeue a poll", "", 1),
    Target("slurm_follow", "slurm-sacct", "1,000 jobs of Slurm, calls of sacct a poll", "", 1),
    Target("samples_follow", "samples-cpu", "following the metrics of 1,000 runs, CPU of a core", "%", 3),
    Target("samples_follow", "samples-requests", "… requests a second", "", 2),
    Target("samples_follow", "samples-growth", "… growth of the record a day, 4 GPUs a run", "MB", 120),
    Target("judge", "judge-time", "an honest kernel's time, off a loop timed by hand", "%", 3),
    Target("judge", "judge-agree", "… pairs of runs whose intervals overlap", "%", 95, True),
    Target("judge", "judge-benchmark", "a warm benchmark of the shipped matmul", "s", 15),
    Target("judge", "judge-check", "a warm checker of three tests", "s", 1.5),
    Target("judge", "judge-cancel", "… from a cancel to the end of a task", "s", 1),
    Target("warm_kernels", "warm-kernel", "a warm kernel from request to verdict", "s", 1.5),
    Target("warm_kernels", "warm-listener", "… the listener's and containers' own part", "s", 0.3),
)
