"""Cancels a job on proof: one script on the cluster lists the job, compares, and cancels only what matched.

Slurm has no compare-and-cancel, so milliseconds remain between its `squeue` and its `scancel`. A job id proves nothing:
ids come again.
"""

import re
from typing import Final

import msgspec

from steno.engine.providers.base import StopTarget
from steno.engine.providers.slurm.rows import time
from steno.engine.providers.slurm.spec import MARK
from steno.engine.providers.slurm.words import LIVE
from steno.events.clock import SECOND

_NEVER: Final = ("1", "0")  # no time lies between them
_ANY: Final = ("0", "9999999999")
_LINE: Final = re.compile(r"(yes|no|over)\|([^|]+)\|([^|]*)\|(\d*)\|(.*)")

# A site may rewrite comments; the script of a job, which the controller keeps, names the run too. With `--user` scancel
# looks for the jobs itself, and for a task that still waits it cancels the whole array: such a task goes without.
SCRIPT: Final = rf"""
job=$1 mark=$2 user=${{3:-$(id -un)}} from=$4 to=$5 abort=$6 live=$7
rows=$(SLURM_BITSTR_LEN=0 SLURM_TIME_FORMAT=%s squeue -h -t all -j "$job" -o "%A|%F|%i|%u|%V|%T|%k|%j") || exit
script= whole=yes split= waiting=
while IFS="|" read -r id array name owner submit state text; do
    case $id in ""|*[!0-9]*) echo "$id"; continue;; esac
    case " $live " in *" $state "*) ;; *) echo "over|$name|$owner|$submit|$text"; continue;; esac
    proof=no
    if [ "$owner" = "$user" ] && [ "$submit" -ge "$from" ] && [ "$submit" -le "$to" ]; then
        case $text in
            "{MARK}$mark|"*) proof=yes;;
            *) [ -n "$mark$script" ] || script=1
                [ -n "$script" ] || script=$(scontrol write batch_script "$array" - | grep -c "^steno_run=$mark ")
                [ "$script" = 0 ] || proof=yes;;
        esac
    fi
    echo "$proof|$name|$owner|$submit|$text"
    [ $proof = yes ] || {{ whole=; continue; }}
    case $name in *%*) name="${{name%\%*}}]";; esac
    case $id/$name in "$array"/*_*) waiting="$waiting $name";; *) split="$split $name";; esac
done <<END
$rows
END
case $job in *_*) ;; *) [ -z "$whole" ] || [ -z "$split$waiting" ] || {{ split=$job waiting=; }};; esac
cancel() {{
    [ -z "$split" ] || scancel "$@" --user="$user" $split || return
    [ -z "$waiting" ] || scancel "$@" $waiting
}}
# Of a task that waits in its array's record nothing would be left: held, it has a record of its own.
for task in $waiting; do case $task in *_*[!0-9]*) ;; *_*) scontrol hold "$task" >&2;; esac; done
[ -z "$abort" ] || cancel --signal=KILL --full
cancel
"""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """A job, or tasks of an array, as the script found it."""

    job: str
    user: str
    submitted: int | None  # microseconds, UTC
    name: str
    over: bool
    proven: bool  # and cancelled


def arguments(stop: StopTarget) -> tuple[str, ...]:
    """The script's arguments. A job of ours keeps its mark, and a requeue moves its Submit forward; a foreign job is
    the run to stop if user and Submit are equal.
    """
    at = None if stop.submitted_at is None else str(stop.submitted_at // SECOND)
    if stop.mark is not None:
        since, until = at or _ANY[0], _ANY[1]
    else:
        since, until = _NEVER if at is None else (at, at)
    abort = "yes" if stop.abort else ""
    return stop.provider_id, stop.mark or "", stop.user or "", since, until, abort, " ".join(LIVE)


def read(text: str) -> list[Listed]:
    """The jobs in the script's answer; other lines are a site's notices."""
    matches = (_LINE.fullmatch(line) for line in text.splitlines())
    return [
        Listed(
            job=match[2],
            user=match[3],
            submitted=time(match[4]),
            name=match[5].rpartition("|")[2],
            over=match[1] == "over",
            proven=match[1] == "yes",
        )
        for match in matches
        if match is not None
    ]
