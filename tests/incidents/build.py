"""Writes the incidents of December 2025 as traces, from what the documents of that time say happened.

`python tests/incidents/build.py` writes them again; a test holds the files to it. A poller asks every five seconds.
The long run is the documents' own: 426.83 s from the run's submission to its end, of which dstack billed the 426.2 s
from the job's submission on, at $1.99 an hour.
"""

import json
from collections.abc import Callable
from pathlib import Path

import zstandard
from stenotest.dstack_history import DstackHistory, Item, job, run_item, submission
from stenotest.machines import machine_item

TRACES = Path(__file__).parent / "traces"
LONG_RUN = 426.83
"""Seconds from submission to end of the documents' run."""
JOB_LAG = 0.63
"""Seconds of these before its job was submitted: dstack bills from there, and only so do both their figures hold."""
PRICE = 1.99
IDLE_TIMEOUT = 600
"""`AMD_VM_IDLE_TIMEOUT`."""
TEAR_DOWN = 12


def cost(seconds: float) -> float:
    """dstack's own rounding: price × seconds, four places."""
    return round(PRICE * seconds / 3600, 4)


def task(
    name: str,
    run: str,
    status: str,
    *,
    now: float,
    submitted: float = 0,
    reason: str | None = None,
    why: str | None = None,
    exit_status: int | None = None,
    finished: float | None = None,
    label: str | None = None,
    lag: float = 0,
) -> Item:
    """A run of one job as a poll at `now` shows it; the job was submitted `lag` after the run."""
    end = now if finished is None else finished
    attempt = submission(
        status,
        reason=why,
        exit_status=exit_status,
        submitted=submitted + lag,
        finished=finished,
        hostname="10.0.0.1",
        price=PRICE,
    )
    return run_item(
        name,
        run,
        job(attempt),
        reason=reason,
        submitted=submitted,
        cost=cost(max(0, end - submitted - lag)),
        label=label,
    )


def follow(story: DstackHistory, until: float, item: Callable[[float], Item], every: float = 5) -> None:
    """Poll the full list, the active list and the run by name until `until`."""
    while story.now < until:
        rows = item(story.now)
        story.listed(rows)
        story.active(*([rows] if rows["status"] not in ("done", "failed", "terminated") else []))
        story.got(rows)
        story.wait(every)


def started(story: DstackHistory, name: str, running_until: float, lag: float = 0) -> None:
    """A cold start: queued, provisioning, pulling, then the commands."""
    follow(story, 10, lambda now: task(name, "submitted", "submitted", now=now, lag=lag))
    follow(story, 120, lambda now: task(name, "provisioning", "provisioning", now=now, lag=lag))
    follow(story, 150, lambda now: task(name, "provisioning", "pulling", now=now, lag=lag))
    follow(story, running_until, lambda now: task(name, "running", "running", now=now, lag=lag))


def ending(story: DstackHistory, name: str, end: float, exit_status: int, lag: float = 0) -> None:
    """The commands have exited: seen while the run still runs, then terminating, then final."""
    good = exit_status == 0
    why = "done_by_runner" if good else "container_exited_with_error"
    reason = "all_jobs_done" if good else "job_failed"
    over = "done" if good else "failed"

    def at(run: str, status: str, reported: str | None, finished: float | None) -> Callable[[float], Item]:
        return lambda now: task(
            name, run, status, now=now, reason=reported, why=why, exit_status=exit_status, finished=finished, lag=lag
        )

    follow(story, end, at("running", "terminating", None, None))
    follow(story, end + 10, at("terminating", over, reason, end))
    follow(story, end + 30, at(over, over, reason, end))


def enum_str() -> DstackHistory:
    """Bug 1. A run that succeeds after 426.83 s, polled on for ten minutes: `runstatus.done` never equals `done`."""
    story = DstackHistory()
    started(story, "leaky-relu", 420, JOB_LAG)
    ending(story, "leaky-relu", LONG_RUN, 0, JOB_LAG)
    done = task(
        "leaky-relu",
        "done",
        "done",
        now=LONG_RUN,
        reason="all_jobs_done",
        why="done_by_runner",
        exit_status=0,
        finished=LONG_RUN,
        lag=JOB_LAG,
    )
    while story.now < 660:
        story.listed(done).wait(5)
    return story


def terminated_exit_zero() -> DstackHistory:
    """Bug 2. Success, seen as `terminating` on the way: an error at once."""
    story = DstackHistory()
    started(story, "exit-zero", 180)
    ending(story, "exit-zero", 190, 0)
    return story


def terminated_exit_one() -> DstackHistory:
    """Bug 2. A real failure: failed under every rule set, but the first poller cannot say why."""
    story = DstackHistory()
    started(story, "exit-one", 180)
    ending(story, "exit-one", 190, 1)
    return story


def terminated_without_exit_status() -> DstackHistory:
    """Bug 2. The run is terminating and no exit status has come yet: nothing is decided."""
    story = DstackHistory()
    started(story, "no-exit-yet", 180)
    follow(story, 200, lambda now: task("no-exit-yet", "terminating", "terminating", now=now))
    return story


def terminated_all_jobs_done() -> DstackHistory:
    """Bug 2. Ended by `all_jobs_done` with no exit status in the answer."""
    story = DstackHistory()
    started(story, "all-done", 180)
    follow(story, 190, lambda now: task("all-done", "terminating", "terminating", now=now, reason="all_jobs_done"))
    follow(story, 210, lambda now: task("all-done", "done", "done", now=now, reason="all_jobs_done", finished=189))
    return story


def stopped_by_a_user() -> DstackHistory:
    """Bug 2 and its fix. A user stops the run: `terminated` is final, has no exit status, the fix polls for ever."""
    story = DstackHistory()
    started(story, "stopped", 180)

    def at(run: str, status: str, finished: float | None) -> Callable[[float], Item]:
        return lambda now: task(
            "stopped", run, status, now=now, reason="stopped_by_user", why="terminated_by_user", finished=finished
        )

    follow(story, 185, at("terminating", "terminating", None))
    follow(story, 190, at("terminating", "terminated", 184))
    follow(story, 1200, at("terminated", "terminated", 184), every=30)
    return story


def stale_object() -> DstackHistory:
    """Bug 3. The object fetched at submission is asked again and again: `submitted` for ever. The run succeeds."""
    story = DstackHistory()
    started(story, "stale", 180)
    ending(story, "stale", 190, 0)
    return story


def missing_metadata() -> DstackHistory:
    """Bug 4. The public object has no exit status, times or cost; the answer has them all: 426.83 s, $0.2356."""
    story = DstackHistory()
    started(story, "leaky-relu", 420, JOB_LAG)
    ending(story, "leaky-relu", LONG_RUN, 0, JOB_LAG)
    return story


def active_list_drops_finished() -> DstackHistory:
    """The fix. A run ends between two polls while another goes on: the active-only list never shows it again."""
    story = DstackHistory()

    def first(now: float) -> Item:
        return task("first", "running", "running", now=now)

    def second(now: float) -> Item:
        return task("second", "running", "running", now=now, submitted=5)

    while story.now < 60:
        story.active(second(story.now), first(story.now)).wait(5)
    ended = task(
        "first", "done", "done", now=60, reason="all_jobs_done", why="done_by_runner", exit_status=0, finished=58
    )
    story.got(ended, id=ended["id"])
    while story.now < 300:
        story.active(second(story.now)).wait(5)
    return story


def reused_name_takes_the_other_run() -> DstackHistory:
    """The fix. A run that succeeded is looked up by a name used again since: it gets the new run's failure."""
    story = DstackHistory()
    while story.now < 60:
        story.active(task("judge", "running", "running", now=story.now, label="judge one")).wait(5)
    ended = task(
        "judge",
        "done",
        "done",
        now=60,
        reason="all_jobs_done",
        why="done_by_runner",
        exit_status=0,
        finished=58,
        label="judge one",
    )
    story.got(ended, id=ended["id"])
    story.wait(5)
    while story.now < 90:
        story.active(task("judge", "running", "running", now=story.now, submitted=62, label="judge two")).wait(5)
    failed = {
        "reason": "job_failed",
        "why": "container_exited_with_error",
        "exit_status": 1,
        "submitted": 62.0,
        "label": "judge two",
    }
    while story.now < 100:
        story.active(task("judge", "terminating", "failed", now=story.now, finished=89, **failed)).wait(5)  # type: ignore[arg-type]
    while story.now < 120:
        story.listed(
            task("judge", "failed", "failed", now=story.now, finished=89, **failed), {**ended, "deleted": True}
        )  # type: ignore[arg-type]
        story.wait(5)
    return story


def newest_submission_alone() -> DstackHistory:
    """The fix. Two nodes: the first exits 0, the second 1; the first job's newest submission says success."""
    story = DstackHistory()

    def both(run: str, first: tuple[str, int | None], two: tuple[str, int | None], reason: str | None = None) -> Item:
        jobs = [
            job(
                submission(
                    status,
                    exit_status=code,
                    reason=None if code is None else "container_exited_with_error" if code else "done_by_runner",
                    finished=70.0 if status in ("done", "failed") else None,
                ),
                number=number,
            )
            for number, (status, code) in enumerate((first, two))
        ]
        return run_item("two-nodes", run, *jobs, reason=reason)

    for item, polls in (
        (both("provisioning", ("provisioning", None), ("provisioning", None)), 4),
        (both("running", ("running", None), ("running", None)), 6),
        (both("running", ("terminating", 0), ("running", None)), 2),
        (both("terminating", ("done", 0), ("terminating", 1), "job_failed"), 2),
        (both("failed", ("done", 0), ("failed", 1), "job_failed"), 3),
    ):
        for _ in range(polls):
            story.listed(item).wait(5)
    return story


def bill_beyond_the_run() -> DstackHistory:
    """The documents' run and its machine, kept warm for the configured ten minutes: dstack's figure knows the run."""
    story = DstackHistory()

    def run(now: float) -> Item:
        ended = now >= LONG_RUN
        status = "done" if ended else "running" if now >= 150 else "provisioning"
        return task(
            "leaky-relu",
            status,
            status,
            now=now,
            reason="all_jobs_done" if ended else None,
            why="done_by_runner" if ended else None,
            exit_status=0 if ended else None,
            finished=LONG_RUN if ended else None,
            lag=JOB_LAG,
        )

    def machine(now: float) -> Item:
        going = LONG_RUN + IDLE_TIMEOUT
        status = (
            "provisioning"
            if now < 120
            else "busy"
            if now < LONG_RUN
            else "idle"
            if now < going
            else "terminating"
            if now < going + TEAR_DOWN
            else "terminated"
        )
        return machine_item(
            status=status,
            created=1,
            reason="idle_timeout" if now >= going else None,
            finished=going + TEAR_DOWN if status == "terminated" else None,
        )

    while story.now < LONG_RUN + IDLE_TIMEOUT + 60:
        story.listed(run(story.now)).machines(machine(story.now)).wait(5)
    return story


INCIDENTS: dict[str, Callable[[], DstackHistory]] = {
    "enum_str": enum_str,
    "terminated_exit_zero": terminated_exit_zero,
    "terminated_exit_one": terminated_exit_one,
    "terminated_without_exit_status": terminated_without_exit_status,
    "terminated_all_jobs_done": terminated_all_jobs_done,
    "stopped_by_a_user": stopped_by_a_user,
    "stale_object": stale_object,
    "missing_metadata": missing_metadata,
    "active_list_drops_finished": active_list_drops_finished,
    "reused_name_takes_the_other_run": reused_name_takes_the_other_run,
    "newest_submission_alone": newest_submission_alone,
    "bill_beyond_the_run": bill_beyond_the_run,
}


if __name__ == "__main__":
    TRACES.mkdir(exist_ok=True)
    for name, make in INCIDENTS.items():
        text = "".join(f"{json.dumps(line)}\n" for line in make().lines)
        packed = zstandard.ZstdCompressor(level=19).compress(text.encode())
        (TRACES / f"{name}.jsonl.zst").write_bytes(packed)
