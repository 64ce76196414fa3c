"""The cost of following a Slurm cluster: `steno record` over 1,000 jobs at a 5 s poll, as CPU time by wall time, its
calls of Slurm's commands, and the bytes by which its record grows.

No test machine has 1,000 jobs, so programs called squeue, sacct, sinfo and scontrol stand before the real
programs on PATH.
They print the columns they are asked for, as Slurm 22.05 does, of jobs that wait, run, complete and end; each job that
leaves the queue is followed by a new one. Accounting is a second behind the controller. Every 30 s the scheduler
predicts other starts for all jobs that wait, two of five, which changes their lines. The CPU time of the programs is
Slurm's, and is not counted.
"""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

JOBS = 1000
EVERY = 5.0
ENDS = {"": 2, "-busy": 50}
"""Rows' suffix → the jobs that end in a poll; as many are submitted, and as many start."""
CALLS = ("squeue", "sacct")
WAITS, COMPLETES, LAGS = 0.4, 4, 1
"""The part of its life that a job waits; seconds that it completes, and of accounting's delay."""
PREDICTS = 30
TICKS = os.sysconf("SC_CLK_TCK")
SACCT = {
    "JobID": "{job}", "State": "{state}", "ExitCode": "{code}", "DerivedExitCode": "0:0", "Submit": "{submitted}",
    "Start": "{started}", "End": "{ended}", "Suspended": "00:00:00", "Timelimit": "08:00:00", "AllocTRES": "{tres}",
    "NodeList": "{node}", "Partition": "gpu-a6000", "User": "mst3k", "Reason": "None", "Comment": "",
    "JobName": "train-{job}", "SubmitLine": "sbatch train-{job}.sh",
}  # fmt: skip
SQUEUE = {
    "i": "{job}", "T": "{state}", "r": "{reason}", "P": "gpu-a6000", "u": "mst3k", "V": "{submitted}",
    "S": "{started}", "N": "{node}", "k": "(null)", "j": "train-{job}",
}  # fmt: skip


def clock(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


class Jobs:
    """Jobs numbered in order of submission, so many a second; the first thousand are under way when it begins."""

    def __init__(self, began, rate):
        self.began, self.rate, self.lasts = began, rate, JOBS / rate

    def life(self, number):
        """When a job is submitted, starts and completes; it leaves the queue `COMPLETES` seconds later."""
        submitted = self.began + number / self.rate - self.lasts
        return submitted, submitted + self.lasts * WAITS, submitted + self.lasts - COMPLETES

    def there(self, now):
        """The numbers of jobs submitted that have not left the queue."""
        first = int((now - self.began) * self.rate) + 1
        return range(first, first + JOBS)

    def squeue(self, now):
        for number in self.there(now):
            submitted, started, completes = self.life(number)
            state, reason, node = "RUNNING" if now < completes else "COMPLETING", "None", f"udc-an{number % 40}"
            if started > now:
                state, reason, node, started = "PENDING", "Priority", "", started + now // PREDICTS * 61 % 3600
            yield {
                "job": number, "state": state, "reason": reason, "submitted": clock(submitted),
                "started": clock(started), "node": node,
            }  # fmt: skip

    def sacct(self, now, wanted):
        now -= LAGS
        for number in sorted(wanted):
            submitted, started, completes = self.life(number)
            state, code, start, end = "RUNNING", "0:0", clock(started), "Unknown"
            node, tres = f"udc-an{number % 40}", "billing=101,cpu=4,gres/gpu:a6000=1,gres/gpu=1,mem=54G,node=1"
            if submitted > now:
                continue
            if started > now:
                state, start, node, tres = "PENDING", "Unknown", "None assigned", ""
            elif completes <= now:
                state, code = ("FAILED", "1:0") if number % 7 == 0 else ("COMPLETED", "0:0")
                end = clock(completes)
            yield {
                "job": number, "state": state, "code": code, "submitted": clock(submitted), "started": start,
                "ended": end, "node": node, "tres": tres,
            }  # fmt: skip


def answer(tool, words):
    """The output of one of the programs; a line of `calls` for each call that shows jobs."""
    jobs, now = Jobs(*map(float, os.environ["STENO_BENCHMARK_JOBS"].split())), time.time()
    columns = words[words.index("-o") + 1] if "-o" in words else ""
    if tool == "scontrol":
        return ["ClusterName             = benchmark"]
    if tool == "sinfo":
        return ["udc-an1|mixed|none|4/28/0/32|512000|gpu:a6000:8|gpu-a6000"]
    if tool == "sacct" and "--helpformat" in words:
        return [" ".join(SACCT)]
    with (Path.home() / "calls").open("a") as calls:
        calls.write(f"{tool}\n")
    if tool == "squeue":
        line = re.sub(r"%(\w)", lambda letter: SQUEUE[letter[1]], columns)
        return [line.format_map(job) for job in jobs.squeue(now)]
    ids = words[words.index("-j") + 1].split(",") if "-j" in words else jobs.there(now)
    line = "|".join(SACCT[name] for name in columns.split(","))
    return [line.format_map(job) for job in jobs.sacct(now, map(int, ids))]


def cpu(process):
    """Seconds of CPU time of a process, without its children."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def size(record):
    """Bytes of the record's tables; its log file is as long as it ever was."""
    with closing(sqlite3.connect(f"file:{record}?mode=ro", uri=True)) as tables:
        return tables.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]


def follow(folder, ends, polls):
    """For each poll: shares of a core in percent, KiB of growth, and of each of `CALLS` how many."""
    tools = folder / "bin"
    tools.mkdir()
    for tool in ("squeue", "sacct", "sinfo", "scontrol"):
        (tools / tool).write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {__file__} answer {tool} "$@"\n')
        (tools / tool).chmod(0o755)
    record, calls = folder / "record" / "record.steno", folder / "calls"
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(folder), "STENO_PROVIDER": "slurm",
        "STENO_SLURM_RATES": "a6000=100,usd=0.01", "STENO_BENCHMARK_JOBS": f"{time.time()} {ends / EVERY}",
    }  # fmt: skip
    command = [*PROFILE, *STENO, "record", "--record", str(record), "--interval", f"{EVERY:g}s"]

    def sample():
        """The counters half-way between two polls, after one poll more."""
        before, until = made("squeue"), time.monotonic() + 60
        while made("squeue") == before:
            assert time.monotonic() < until, (folder / "out").read_text()
            time.sleep(0.05)
        time.sleep(EVERY / 2)
        return cpu(steno.pid), size(record) / 1024, *map(made, CALLS)

    def made(tool):
        return calls.read_text().split().count(tool) if calls.exists() else 0

    with (folder / "out").open("wb") as out:
        steno = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        try:
            for _ in range(FIRST if polls > 1 else 1):
                before = sample()
            differences = []
            for _ in range(polls):
                after = sample()
                differences.append([later - earlier for earlier, later in zip(before, after, strict=True)])
                before = after
        finally:
            steno.send_signal(signal.SIGINT)
            steno.wait(60)
    check(record)
    shares, *others = zip(*differences, strict=True)
    if "-v" in sys.argv:
        print((folder / "out").read_text()[-3000:], differences, sep="\n")
    return [100 * share / EVERY for share in shares], *others


def check(record):
    """That the jobs were followed: else the figures are of something else."""
    from steno.engine.live.live_world import LiveWorld
    from steno.engine.providers.registry import READINGS
    from steno.events.clock import SystemClock
    from steno.events.store.record import Record

    with Record.open(record, clock=SystemClock(), shapes=READINGS.shape) as opened:
        live = LiveWorld(READINGS, opened)
        live.catch_up()
        jobs, machines = len(live.state.runs.open_ids), len(live.state.vms.open_ids)  # those of accounting
        assert 0.95 * JOBS < jobs < 1.2 * JOBS, f"{jobs} jobs"
        assert machines > JOBS / 2, f"{machines} machines of running jobs"
        assert not live.state.anomalies, list(live.state.anomalies)[:3]


STENO = [sys.executable, "-m", "steno.cli.main"]
FIRST = 3
"""Polls before the first that counts: first contact, and the jobs' ids asked of accounting for the first time."""
PROFILE = []
"""`--profile FILE` puts a profiler before the command."""


def main():
    from benchmarks.support import SIZE, measured

    if "--profile" in sys.argv:
        PROFILE[:] = [sys.executable, "-m", "cProfile", "-o", sys.argv[sys.argv.index("--profile") + 1]]
    made = []
    for suffix, ends in ENDS.items():
        with tempfile.TemporaryDirectory() as folder:
            shares, grown, *calls = follow(Path(folder), ends, SIZE.pick(1, 12, 18))
        of = f"{JOBS:,} jobs, {len(shares)} polls"
        yield measured(f"slurm-cpu{suffix}", of, shares, value=sum(shares) / len(shares))
        yield measured(f"slurm-cpu-worst{suffix}", of, shares, value=max(shares))
        yield measured(f"slurm-growth{suffix}", of, grown, value=sum(grown) / len(grown))
        made.append(calls)
    for tool, *each in zip(CALLS, *made, strict=True):
        calls = [poll for polls in each for poll in polls]
        yield measured(f"slurm-{tool}", f"{JOBS:,} jobs, {len(calls)} polls", calls, value=max(calls))


if __name__ == "__main__":
    if sys.argv[1:2] == ["answer"]:  # started for every poll, without the site's packages
        print("\n".join(answer(sys.argv[2], sys.argv[3:])))
    else:
        from benchmarks.support import report

        report(main())
