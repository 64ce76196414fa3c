"""Reads the samples of a job from `samples/<job>`, which the sampler of its script writes on the batch node."""

from datetime import UTC, datetime
from typing import Final

from steno.engine.providers.sample_text import BEFORE, samples_of
from steno.engine.providers.slurm.shell import Shell
from steno.engine.state.samples import Sample
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


def samples_of_job(client: Shell, job: str, since: int) -> tuple[str, list[Sample]] | None:
    """The tool and its samples after `since`; None: there is no file."""
    at = max(0, since - BEFORE) // SECOND
    day = f"{datetime.fromtimestamp(at, UTC):%Y/%m/%d %H:%M:%S}"
    return samples_of(
        [client.must("sh", "-c", _FRESH, "sh", f"{client.folder()}/samples/{job}", day, str(at)).raw], since
    )
