"""Cancels a job on proof: one script on the cluster lists the job, compares, and cancels only what matched.

Slurm has no compare-and-cancel, so milliseconds remain between its `squeue` and its `scancel`. A job id is no proof:
ids come again.
"""

import re
from typing import Final

import msgspec

from engine.providers.base import StopTarget
from engine.providers.slurm.rows import time
from engine.providers.slurm.spec import MARK
from engine.providers.slurm.words import LIVE
from events.clock import SECOND

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
    """What the script gets. A job of ours keeps its mark, and a requeue moves its Submit forward; a foreign one is the
    one shown if user and Submit are equal.
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
    found = (_LINE.fullmatch(line) for line in text.splitlines())
    return [
        Listed(
            job=one[2],
            user=one[3],
            submitted=time(one[4]),
            name=one[5].rpartition("|")[2],
            over=one[1] == "over",
            proven=one[1] == "yes",
        )
        for one in found
        if one is not None
    ]
