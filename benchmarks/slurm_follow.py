"""What following a Slurm cluster costs: `steno record` over 1,000 jobs at a 5 s poll, as CPU time by wall time, and the
bytes by which its record grows.

No test machine has 1,000 jobs, so programs called squeue, sacct and sinfo stand before the real ones on PATH. They
print what those of Slurm 22.05 print, of jobs that wait, run, complete and end; each job that leaves the queue is
followed by a new one. Accounting knows a job a second later than the controller, and an end a second after squeue has
dropped it. Every 30 s the scheduler predicts other starts for all jobs that wait, which changes their lines.
"""

import os
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
WAITS, RUNS, COMPLETES, LAGS = 100, 150, 4, 1
"""Seconds of each state, and of accounting's delay: four jobs start and four end in a second."""
PREDICTS = 30
TICKS = os.sysconf("SC_CLK_TCK")
ROOT = Path(__file__).resolve().parents[1]


def clock(seconds):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def life(number, began):
    """When job `number` is submitted, starts, completes and leaves the queue: the first thousand are under way."""
    submitted = began - (WAITS + RUNS) + (number - 1) * (WAITS + RUNS) / JOBS
    started = submitted + WAITS
    return submitted, started, started + RUNS, started + RUNS + COMPLETES


def jobs(began, now, since):
    """The numbers of jobs submitted by now that had not left the queue `since` seconds ago."""
    rate = JOBS / (WAITS + RUNS)
    first = max(1, int((now - since - began - COMPLETES) * rate) - 5)
    last = int((now - began + WAITS + RUNS) * rate) + 1
    return range(first, last + 1)


def squeue(began, now):
    for number in jobs(began, now, 0):
        submitted, started, completes, gone = life(number, began)
        if submitted > now or gone <= now:
            continue
        node = f"udc-an{number % 40}-{number % 37}"
        state, reason, at = "PENDING", "(Priority)", clock(started + (now // PREDICTS * 61) % 3600)
        if started <= now:
            state, reason, at = "RUNNING" if now < completes else "COMPLETING", "None", clock(started)
        else:
            node = ""
        reason = reason.strip("()")
        yield f"{number}|{state}|{reason}|gpu-a6000|mst3k|{clock(submitted)}|{at}|{node}|(null)|train-{number}"


def sacct(began, now, wanted):
    now -= LAGS
    for number in sorted(wanted):
        submitted, started, completes, _ = life(number, began)
        if submitted > now:
            continue
        node, tres = (
            f"udc-an{number % 40}-{number % 37}",
            "billing=101,cpu=4,gres/gpu:a6000=1,gres/gpu=1,mem=54G,node=1",
        )
        state, code, start, end = "RUNNING", "0:0", clock(started), "Unknown"
        if started > now:
            state, start, node, tres = "PENDING", "Unknown", "None assigned", ""
        elif completes <= now:
            state, code, end = (
                ("FAILED", "1:0", clock(completes)) if number % 7 == 0 else ("COMPLETED", "0:0", clock(completes))
            )
        yield (
            f"{number}|{state}|{code}|0:0|{clock(submitted)}|{start}|{end}|{tres}|{node}|gpu-a6000|mst3k|None||train-{number}"
        )


def answer(tool, words):
    """What one of the programs prints."""
    began, now = float(os.environ["STENO_BENCHMARK_BEGAN"]), time.time()
    lines = ["udc-an1-1|mixed|gpu-a6000|4/28/0/32|512000|gpu:a6000:8|gpu-a6000"]
    if tool == "squeue":
        lines = squeue(began, now)
    elif tool == "sacct":
        ids = words[words.index("-j") + 1].split(",") if "-j" in words else map(str, jobs(began, now, 0))
        lines = sacct(began, now, {int(one) for one in ids if one.isdecimal()})
    print("\n".join(lines))


def cpu(process):
    """Seconds of CPU time of a process, without its children."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def size(record):
    """Bytes of the record's tables; its log file is as long as it ever was."""
    with closing(sqlite3.connect(f"file:{record}?mode=ro", uri=True)) as tables:
        return tables.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]


def follow(folder, rounds):
    tools = folder / "bin"
    tools.mkdir()
    for tool in ("squeue", "sacct", "sinfo"):
        (tools / tool).write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {__file__} answer {tool} "$@"\n')
        (tools / tool).chmod(0o755)
    record = folder / "record" / "record.steno"
    environment = {
        "PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(folder), "STENO_PROVIDER": "slurm",
        "STENO_SLURM_RATES": "a6000=100,usd=0.01", "STENO_BENCHMARK_BEGAN": str(int(time.time())),
    }  # fmt: skip
    command = [*PROFILE, *STENO, "record", "--record", str(record), "--interval", f"{EVERY:g}s"]
    with (folder / "out").open("wb") as out:
        steno = subprocess.Popen(command, env=environment, stdout=out, stderr=out)
        try:
            time.sleep(3 * EVERY if rounds > 1 else EVERY)
            shares, grown = [], []
            for _ in range(rounds):
                spent, wall, bytes_ = cpu(steno.pid), time.monotonic(), size(record)
                time.sleep(EVERY)
                shares.append(100 * (cpu(steno.pid) - spent) / (time.monotonic() - wall))
                grown.append(size(record) - bytes_)
        finally:
            steno.send_signal(signal.SIGINT)
            steno.wait(60)
    if "-v" in sys.argv:
        print((folder / "out").read_text()[-3000:], " ".join(f"{one:.1f}" for one in shares), grown, sep="\n")
    return shares, [one / 1024 for one in grown]


STENO = [sys.executable, "-m", "cli.main"]
PROFILE = []
"""`--profile FILE` puts a profiler before the command."""


def main():
    from benchmarks.support import SIZE, measured

    if "--profile" in sys.argv:
        PROFILE[:] = [sys.executable, "-m", "cProfile", "-o", sys.argv[sys.argv.index("--profile") + 1]]
    with tempfile.TemporaryDirectory() as folder:
        shares, grown = follow(Path(folder), SIZE.pick(1, 12, 18))
    of = f"{JOBS:,} jobs, {len(shares)} rounds"
    mean = sum(shares) / len(shares)
    yield measured("slurm-cpu", of, shares, value=mean)
    yield measured("slurm-cpu-worst", of, shares, value=max(shares))
    yield measured("slurm-growth", of, grown, value=sum(grown) / len(grown))


if __name__ == "__main__":
    if sys.argv[1:2] == ["answer"]:  # started for every poll, without the site's packages
        answer(sys.argv[2], sys.argv[3:])
    else:
        from benchmarks.support import report

        report(main())
