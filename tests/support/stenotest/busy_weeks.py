"""A record of some weeks: three GPUs, three users, machines that are new for a run and idle before the next."""

from pathlib import Path

from steno.engine.providers.registry import READINGS
from steno.events.clock import SystemClock
from steno.events.store.record import Record
from stenotest.dstack_history import START, DstackHistory, Item, job, run_item, submission
from stenotest.machines import machine_item

GPUS = (("MI300X", 1.99), ("H100", 2.49), ("A100", 1.29))
USERS = ("ada", "grace", "=cmd()")
HOUR, DAY = 3600.0, 86_400.0


def busy_weeks(path: Path, *, days: int = 25, a_day: int = 1, start: int = START) -> Path:
    """A machine for each GPU and day (every fifth day none), with two runs each, `a_day` times a day."""
    story = DstackHistory(start=start)
    for day in range(days):
        if day % 5 == 3:
            continue
        for turn in range(a_day):
            _work(story, day, turn, a_day, start)
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        polls = [poll for _, poll in story.polls() if poll is not None]
        for begun in range(0, len(polls), 200):
            record.append_polls(polls[begun : begun + 200])
    return path


def _work(story: DstackHistory, day: int, turn: int, a_day: int, start: int) -> None:
    runs: list[Item] = []
    machines: list[Item] = []
    for place, (gpu, price) in enumerate(GPUS):
        name, host = f"vm-{day}-{turn}-{place}", f"10.{day}.{turn}.{place + 1}"
        at = day * DAY + turn * (20 * HOUR / a_day) + 600 * place
        length = (0.6 + (day * 7 + place * 3) % 5) * HOUR / a_day
        for which, (begun, lasts) in enumerate(((at, length), (at + length + 900, length / 2))):
            done = submission(
                "done",
                exit_status=0,
                reason="done_by_runner",
                submitted=begun,
                finished=begun + lasts,
                hostname=host,
                price=price,
                start=start,
            )
            item = run_item(
                "train" if which == 0 else f"eval-{day % 3}",
                "done",
                job(done),
                label=f"{name}-{which}",
                submitted=begun,
                cost=1.0,
                start=start,
            )
            running = run_item(
                item["run_spec"]["run_name"],
                "running",
                job(submission("running", submitted=begun, hostname=host, price=price, start=start)),
                label=f"{name}-{which}",
                submitted=begun,
                start=start,
            )
            for listed in (item, running):
                listed["user"] = USERS[(day + place) % 3]
            runs.append(running | {"_begun": begun + 40 + 30 * place, "_done": item})
        until = at + 1.5 * length + 900 + 1800 * (1 + place) / a_day
        machines.append(
            machine_item(
                name,
                "terminated",
                hostname=host,
                price=price,
                created=at + 5,
                finished=until,
                gpu=gpu,
                reason="idle_timeout",
                start=start,
            )
        )
    for listed in sorted(runs, key=lambda run: run["_begun"]):
        story.now = max(story.now, listed["_begun"])
        done = listed.pop("_done")
        listed.pop("_begun")
        story.listed(listed)
        runs[runs.index(listed)] = done
    story.now = max(story.now, day * DAY + (turn + 1) * (20 * HOUR / a_day) + 2 * HOUR / a_day)
    story.listed(*runs).machines(*machines)
