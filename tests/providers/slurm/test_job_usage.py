"""The sums of accounting of a job without samples, from the forms of their text."""

import pytest

from steno.engine.providers.slurm.samples import USAGE, usage_in
from steno.engine.state.samples import TASK, Sample
from steno.events.clock import parse_time

JOB = "7|2026-11-20T12:00:00|2026-11-20T12:10:00|\n"
ENDED = parse_time("2026-11-20T12:10:00Z")


def usage(text: str) -> Sample | None:
    return usage_in([dict(zip(USAGE, line.split("|"), strict=False)) for line in text.splitlines()], "7")


def step(name: str, start: str, end: str, cpu: str, memory: str) -> str:
    """A line of a step of the job, at these minutes after noon."""
    times = "|".join(minute if minute == "Unknown" else f"2026-11-20T12:{minute}:00" for minute in (start, end))
    return f"7.{name}|{times}|cpu={cpu},energy=0,fs/disk=12,mem={memory},pages=0,vmem=0\n"


@pytest.mark.parametrize(
    ("steps", "use", "memory"),
    [
        ([step("batch", "00", "10", "00:05:00", "2048K")], 50, 2),
        ([step("batch", "00", "10", "0", "1G"), step("0", "01", "04", "1-00:00:00", "2G")], 14_400, 3_072),
        ([step("0", "00", "04", "00:10:00", "3.50G"), step("1", "05", "10", "00:10:00", "2G")], 200, 3_584),
        ([step("batch", "00", "Unknown", "00:10:00", "1048576")], 100, 1),  # bytes; its end came late
    ],
)
def test_steps_of_one_time_add_up(steps: list[str], use: int, memory: int) -> None:
    """Their memory; the processor's time of all steps."""
    sample = Sample(at=ENDED, device=TASK, use=use, memory=memory)
    assert usage(JOB + "".join(steps)) == sample


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n|\n7\n",
        JOB,  # no step measured anything
        JOB.replace("7|", "8|") + step("batch", "00", "10", "1", "1K"),
        JOB.replace("2026-11-20T12:10:00", "Unknown") + step("batch", "00", "Unknown", "1", "1K"),  # it runs
        JOB + "7.batch|2026-11-20T12:00:00|2026-11-20T12:10:00|energy=0,gres/gpuutil=0\n",
        JOB + step("batch", "00", "10", "-", "inf"),
    ],
)
def test_nothing_is_measured(text: str) -> None:
    assert usage(text) is None
