"""Reads the samples of a job from `samples/<job>`, which the sampler of its script writes on the batch node; of a job
that has none, accounting's sums.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from steno.engine.providers.sample_text import BEFORE, samples_of
from steno.engine.providers.slurm.rows import time
from steno.engine.providers.slurm.shell import Shell
from steno.engine.providers.slurm.words import duration
from steno.engine.state.samples import TASK, Sample
from steno.events.clock import SECOND

_FRESH: Final = r"""
for part in "$1.old" "$1"; do
    [ ! -e "$part" ] || { head -n 20 "$part"; tail -c 1048576 "$part"; echo ";"; }
done | awk -F, -v day="$2" -v at="$3" '
    !/[^ \r]/ { next }
    /^[0-9]/ { fresh = index($1, "/") ? $1 >= day : $1 + 0 >= at }
    !/^([0-9]|card)/ { if ($0 != head) print; head = $0; next }
    fresh'
"""
"""The lines of some time, and the headers. The last MiB is an hour of 30 GPUs. The `;` spoils a cell that was cut."""
USAGE: Final = ("JobID", "Start", "End", "TRESUsageInTot")
_USED: Final = re.compile(r"\bcpu=(?P<cpu>[\d:-]+).*?\bmem=(?P<memory>\d+(?:\.\d+)?)(?P<unit>[KMGTP]?)")
_KIB: Final = {"": 1 / 1024, "K": 1, "M": 1 << 10, "G": 1 << 20, "T": 1 << 30, "P": 1 << 40}


def samples_of_job(client: Shell, job: str, since: int) -> tuple[str, list[Sample]] | None:
    """The tool and its samples after `since`; None: there is no file."""
    at = max(0, since - BEFORE) // SECOND
    day = f"{datetime.fromtimestamp(at, UTC):%Y/%m/%d %H:%M:%S}"
    return samples_of(
        [client.must("sh", "-c", _FRESH, "sh", f"{client.folder()}/samples/{job}", day, str(at)).raw], since
    )


def usage_of_job(client: Shell, job: str) -> tuple[str, list[Sample]] | None:
    """The sums of accounting of a job that has ended; None: it has none."""
    columns = client.columns(USAGE)
    answer = client.must("sacct", "-P", "-n", "-j", job, "-o", ",".join(columns)).out
    sample = usage_in([dict(zip(columns, line.split("|"), strict=False)) for line in answer.splitlines()], job)
    return None if sample is None else ("sacct", [sample])


def usage_in(rows: Sequence[Mapping[str, str]], job: str) -> Sample | None:
    """A sample at a job's end, of accounting's rows: the memory of the steps that ran at the same time, each with its
    highest, and the mean use of a core. Of GPUs it has zeros where the vendor is AMD (`gres/gpuutil`): not read.
    """
    spans = {row["JobID"]: (time(row.get("Start")), time(row.get("End"))) for row in rows}
    begun, ended = spans.get(job, (None, None))
    if begun is None or ended is None or ended <= begun:
        return None
    cores, steps = 0, list[tuple[int, int, float]]()
    for row in rows:
        used, (start, end) = _USED.search(row.get("TRESUsageInTot", "")), spans[row["JobID"]]
        if row["JobID"].startswith(f"{job}.") and start is not None and used is not None:
            cores += duration(used["cpu"]) or 0
            steps.append((start, end or ended, float(used["memory"]) * _KIB[used["unit"]]))
    if not steps:
        return None
    memory = max(sum(amount for start, end, amount in steps if start <= at <= end) for at, _, _ in steps)
    return Sample(at=ended, device=TASK, use=round(100 * cores / (ended - begun)), memory=round(memory / 1024))
