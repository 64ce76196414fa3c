"""Slurm's own words, and ours for them (22.05 to 25.x)."""

import re
from functools import lru_cache
from typing import Final

from engine.facts import Waits
from engine.states import Reason, State

LIVE: Final = {  # a job's state → its state before its end; COMPLETING is neither running nor over
    "PENDING": State.QUEUED,
    "REQUEUE_HOLD": State.QUEUED,
    "REQUEUE_FED": State.QUEUED,
    "SPECIAL_EXIT": State.QUEUED,
    "RESV_DEL_HOLD": State.QUEUED,
    "CONFIGURING": State.PROVISIONING,
    "POWER_UP_NODE": State.PROVISIONING,
    "RUNNING": State.RUNNING,
    "RESIZING": State.RUNNING,
    "SIGNALING": State.RUNNING,
    "STAGE_OUT": State.FINISHING,
    "STOPPED": State.RUNNING,
    "SUSPENDED": State.RUNNING,
    "COMPLETING": State.FINISHING,
}

ENDED: Final = {  # the state of an attempt that is over → why
    "COMPLETED": Reason.EXIT_ZERO,
    "FAILED": Reason.EXIT_NONZERO,
    "CANCELLED": Reason.STOPPED_BY_USER,
    "TIMEOUT": Reason.TIMED_OUT,
    "DEADLINE": Reason.TIMED_OUT,
    "OUT_OF_MEMORY": Reason.OUT_OF_MEMORY,
    "NODE_FAIL": Reason.NODE_FAILED,
    "BOOT_FAIL": Reason.NODE_FAILED,
    "PREEMPTED": Reason.INTERRUPTED,
    "REQUEUED": Reason.INTERRUPTED,
    "DUPLICATE": Reason.DUPLICATE,  # our own script's word
    "REVOKED": Reason.STOPPED_BY_USER,
    "LAUNCH_FAILED": Reason.PROVIDER_ERROR,
    "RECONFIG_FAIL": Reason.PROVIDER_ERROR,
}

REQUEUED: Final = frozenset({"PREEMPTED", "REQUEUED", "NODE_FAIL", "BOOT_FAIL"})
"""Ends of an attempt after which the controller may have the job in its queue again."""

EXITS: Final = frozenset({"COMPLETED", "FAILED"})
"""States whose exit code is the script's own; that of any other is 0, or a signal of Slurm's."""

_NOTHING: Final = frozenset({"", "None", "none", "(null)", "N/A", "None assigned"})
_OUT_OF_MEMORY: Final = "0:125"
DUPLICATE: Final = 16
"""The signal by which our script ends a duplicate: SIGSTKFLT, which Linux never sends. Accounting keeps it, and no exit
status of a command reads so.
"""
_EXIT: Final = re.compile(r"(\d+):(\d+)")


def state_word(text: str) -> str:
    """`CANCELLED by 5` → `CANCELLED`; `CANCELLED+` (cut by a narrow column) likewise."""
    return text.strip().partition(" ")[0].rstrip("+").upper()


def said(text: str | None) -> str | None:
    """The value of a column; None for Slurm's empty values."""
    return None if text is None or text.strip() in _NOTHING else text.strip()


def exit_status(state: str, code: str | None) -> int | None:
    """The exit status in accounting or `scontrol`: before the colon, else 128 + signal; None: not the script's."""
    found = _EXIT.fullmatch(code or "")
    if state == "COMPLETED" and found is None:
        return 0
    if found is None or state not in EXITS:
        return None
    status, signal = int(found[1]), int(found[2])
    if signal == DUPLICATE:
        return None
    return 128 + signal if signal and not status else status


def cause(state: str, derived: str | None, code: str | None = None) -> Reason | None:
    """Why an attempt in that state and with that exit code ended; None: it has not, or an unknown word.

    A job is FAILED even if only one of its steps ran out of memory: DerivedExitCode shows it.
    """
    if state == "FAILED" and derived == _OUT_OF_MEMORY:
        return Reason.OUT_OF_MEMORY
    if state == "FAILED" and code == f"0:{DUPLICATE}":
        return Reason.DUPLICATE
    return ENDED.get(state)


# Why a job waits → meaning and advice. `{}` is the rest of Slurm's own reason.
PENDING: Final = {
    "None": ("Slurm has not looked at it yet", ""),
    "Priority": ("other jobs are before it", ""),
    "Resources": ("the nodes it asks for are in use", ""),
    "BeginTime": ("it may not start yet", "it was requeued, or asked to begin later"),
    "Dependency": ("it waits for another job", ""),
    "DependencyNeverSatisfied": ("the job it waits for cannot end as it asks", "cancel it"),
    "JobHeldUser": ("its owner holds it", "scontrol release {job}"),
    "JobHeldAdmin": ("an administrator holds it", "ask the site"),
    "JobArrayTaskLimit": ("its array runs as many tasks at once as it may", ""),
    "ReqNodeNotAvail": ("a node it needs is not available", "ask for less time, or for other nodes"),
    "Reservation": ("it waits for its reservation", ""),
    "Licenses": ("a licence it needs is in use", ""),
    "PartitionDown": ("its partition is down", "use another partition"),
    "PartitionInactive": ("its partition is inactive", "use another partition"),
    "PartitionNodeLimit": ("it asks for more nodes than its partition has or allows", "ask for fewer nodes"),
    "PartitionTimeLimit": ("it asks for more time than its partition allows", "ask for less time"),
    "PartitionConfig": ("its partition has no node of that size", "ask for fewer CPUs or GPUs a node"),
    "BadConstraints": ("no node has what it asks for", "ask for other features"),
    "NodeDown": ("a node it needs is down", "use other nodes"),
    "AccountNotAllowed": ("its account may not use this partition", "use another account or partition"),
    "InvalidAccount": ("there is no such account", "use another account"),
    "InvalidQOS": ("there is no such QOS", "use another QOS"),
    "QOSNotAllowed": ("its QOS may not be used here", "use another QOS or partition"),
}
_LIMITS: Final = (
    (re.compile(r"(QOS|Assoc)(Max|Grp)Cpu"), "CPUs", "--cpus-per-task"),
    (re.compile(r"(QOS|Assoc)(Max|Grp)(GRES|Gres|TRES)"), "GPUs", "--gpu"),
    (re.compile(r"(QOS|Assoc)(Max|Grp)(Mem|Memory)"), "memory", "--mem"),
    (re.compile(r"(QOS|Assoc)(Max|Grp)Node"), "nodes", "fewer nodes"),
    (re.compile(r"(QOS|Assoc)MaxWall"), "time", "--time"),
    (re.compile(r"(QOS|Assoc)(Max|Grp)(Jobs|Submit)"), "jobs at once", ""),
)
NEVER: Final = frozenset(  # the job never runs as asked; nor with a limit of one job (`…PerJobLimit`)
    {
        "DependencyNeverSatisfied", "PartitionNodeLimit", "PartitionTimeLimit", "PartitionConfig", "BadConstraints",
        "AccountNotAllowed", "InvalidAccount", "InvalidQOS", "QOSNotAllowed",
    }
)  # fmt: skip


def never_runs(reason: str) -> bool:
    """Whether a job that waits for that reason never runs unless the job or the cluster changes."""
    word = reason.partition(",")[0].strip("() ")
    return word in NEVER or word.endswith(("PerJobLimit", "PerJob")) or "MaxWallDuration" in word


@lru_cache(maxsize=1024)
def waits(reason: str | None, job: str = "JOB", closed: str = "") -> Waits:
    """Why a job waits and what to do: `it asks for more time than its partition allows`, `ask for less time`.

    An unknown reason comes back unchanged. `closed`: the next maintenance, as `rows.maintenance` gives it.
    """
    if closed and "maint" in (reason or "").lower():
        start, _, end = closed.replace("T", " ").partition("/")
        remedy = f"ask for less time: it has to end before {start[:16]}Z" if start else "wait, or use other nodes"
        return Waits(why=f"down for maintenance until {end[:16]}Z", remedy=remedy)
    word, _, rest = (reason or "None").strip("() ").partition(",")
    known, never = PENDING.get(word.strip()), never_runs(word)
    if known is None:
        for pattern, what, option in _LIMITS:
            if pattern.match(word):
                known = f"it asks for more {what} than {'one job' if never else 'you'} may have", ""
                if never:
                    known = known[0], f"ask for less ({option})" if option else ""
                break
        else:
            return Waits(why=reason or word, never=never)
    means, remedy = known
    detail = rest.replace("_", " ").strip()
    why = f"{means} ({detail})" if detail else means
    return Waits(why=why, remedy=remedy.format(job=job) or None, never=never)
