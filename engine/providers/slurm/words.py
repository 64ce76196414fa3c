"""Slurm's own words, and ours for them (22.05 to 25.x). Pure.

Slurm builds the name of a limit from whose it is, on whom and of what: `AssocGrpGRESMinutes`, `QOSMaxCpuPerUserLimit`.
Source: https://slurm.schedmd.com/resource_limits.html and the words of 22.05's library.
"""

import re
from functools import lru_cache
from typing import Final

from msgspec.structs import replace

from steno.engine.rules import reasons
from steno.engine.state.facts import Blame, Finding, Waits
from steno.engine.state.states import Reason, State
from steno.events.clock import SECOND

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

PAUSED: Final = {  # a state of a job that has its nodes and does not work → why
    "SUSPENDED": Waits(why="it is suspended, for another job or by the site"),
    "STOPPED": Waits(why="a signal stopped it", remedy="send it SIGCONT (scancel -s CONT)"),
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
    "REVOKED": Reason.UNKNOWN_REASON,  # a sibling of the federation runs it
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
_NEVER_RAN: Final = "0:53"
"""The node's daemon could not open the output file, or enter the work folder: the script never ran."""
UNKNOWN_JOB: Final = re.compile(r"Invalid job id|^Job \d+\S* not found$", re.MULTILINE)
"""In answers of squeue and scontrol about an unknown job; scontrol's is also about an unknown task of a known array."""
_SPAN: Final = re.compile(r"(?:(\d{1,5})-)?(?:(?:(\d{1,5}):)?(\d{1,7}):)?(\d{1,9})", re.ASCII)
_EXIT: Final = re.compile(r"(\d+):(\d+)")


def state_word(text: str) -> str:
    """`CANCELLED by 5` → `CANCELLED`; `CANCELLED+` (cut by a narrow column) likewise."""
    return text.strip().partition(" ")[0].rstrip("+").upper()


def value_of(text: str | None) -> str | None:
    """The value of a column; None for Slurm's empty values."""
    return None if text is None or text.strip() in _NOTHING else text.strip()


def duration(text: str) -> int | None:
    """Microseconds of `1-02:03:04`, `02:03:04`, `03:04` or `4` (seconds); None: `UNLIMITED`, or another word."""
    match = _SPAN.fullmatch(text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * SECOND


def exit_status(state: str, code: str | None) -> int | None:
    """The exit status in accounting or `scontrol`: before the colon, else 128 + signal; None: not the script's."""
    match = _EXIT.fullmatch(code or "")
    if state == "COMPLETED" and match is None:
        return 0
    if match is None or state not in EXITS or code == _NEVER_RAN:
        return None
    status, signal = int(match[1]), int(match[2])
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
    if state == "FAILED" and code == _NEVER_RAN:
        return Reason.PROVIDER_ERROR
    return ENDED.get(state)


def _ending(blame: Blame, why: str, remedy: str = "") -> Finding:
    return Finding(why=why, remedy=remedy, blame=blame, again=not remedy)


ENDINGS: Final = {  # a state whose words say more than its reason → why, and what to do
    "REVOKED": _ending(
        Blame.SITE,
        "Slurm withdrew it from this cluster: another cluster of its federation runs it",
        "follow it there: `squeue --federation -j {job}`",
    ),
    "FAILED 0:53": _ending(
        Blame.TASK,
        "Its script never ran: Slurm could not open its output file or its work folder",
        "check that both exist on {nodes} and may be written by you",
    ),
    "BOOT_FAIL": _ending(Blame.SITE, "Slurm could not boot {nodes}"),
    "DEADLINE": _ending(
        Blame.TASK, "It had not ended by its deadline, so Slurm ended it", "give it a later one (--deadline)"
    ),
    "CANCELLED by Slurm": _ending(
        Blame.SITE,
        "Slurm itself cancelled it, as it does if the job that it waits for cannot end as it asks",
        "submit it again once that job has",
    ),
    "CANCELLED by root": _ending(
        Blame.SITE, "Root or Slurm itself cancelled it, as Slurm does if a node's prolog fails", "ask the site why"
    ),
    "PREEMPTED": _ending(Blame.SITE, "Slurm gave {nodes} to a job of higher priority"),
    "CANCELLED by another user": _ending(Blame.SITE, "User {by} of the cluster cancelled it", "ask the site why"),
    "LAUNCH_FAILED": _ending(Blame.SITE, "Slurm could not start it on {nodes}"),
    "RECONFIG_FAIL": _ending(
        Blame.SITE, "Slurm could not set up {nodes} as it asks", "ask for other features or nodes"
    ),
}
_SEVEN_BITS: Final = "which Slurm before 25.11 shows as"
SUBTRACTED: Final = {  # exit codes of which sacct may have subtracted 128 → why, and what to do
    "FAILED 127:0": _ending(
        Blame.TASK,
        f"It exited 127: {reasons.EXITS[127].why}; or 255, {_SEVEN_BITS} 127",
        f"{reasons.EXITS[127].remedy}, and {reasons.OUTPUT}",
    ),
    **{
        f"FAILED {code}:0": _ending(
            Blame.TASK,
            f"It exited {code}; or {code + 128}, {_SEVEN_BITS} {code}: {reasons.EXITS[code + 128].why}",
            reasons.OUTPUT,
        )
        for code in (6, 9, 11, 15)  # others are seldom of a signal: 2, 7
    },
}


def ending(state: str, detail: str | None, *, exact: bool, **known: str | None) -> Finding | None:
    """Why an attempt ended and what to do, where Slurm's own words say more than a reason; None: they do not.

    `detail`: its exit code, or who cancelled it. `exact`: the code is the script's. `known`: its `job` and `nodes`, and
    the user id `by` which it was cancelled.
    """
    key = f"{state} {detail}"
    finding = ENDINGS.get(key) or ENDINGS.get(state) or (None if exact else SUBTRACTED.get(key))
    if finding is None:
        return None
    why, remedy = finding.why, finding.remedy
    for name, value in known.items():
        why, remedy = (text.replace(f"{{{name}}}", value or "its node") for text in (why, remedy))
    return replace(finding, why=why, remedy=remedy)


TEXTS: Final = {  # how a text begins that the controller gives instead of its reason → the reason
    "Nodes required for job are DOWN": "NodesUnavailable",  # Slurm has no word for it, this is ours
    "Job's account not permitted": "AccountNotAllowed",
    "Job's QOS not ": "QOSNotAllowed",
    "uid ": "PartitionConfig",  # … not in group permitted to use this partition
    "job requeued in ": "JobHeldUser",  # held state; special exit state
    "launch failed requeued held": "JobHoldMaxRequeue",
    "launch failure limit exceeded": "JobHoldMaxRequeue",
    "user env retrieval failed": "JobHoldMaxRequeue",
    "Reservation ": "ReservationDeleted",  # … was deleted; … is invalid
}
# Why a job waits → meaning and advice.
PENDING: Final = {
    "None": ("Slurm has not looked at it yet", ""),
    "Priority": ("other jobs are before it", ""),
    "Resources": ("the nodes it asks for are in use", ""),
    "BeginTime": ("it may not start yet: it was requeued, or asked to begin later", ""),
    "Dependency": ("it waits for another job", ""),
    "DependencyNeverSatisfied": ("the job it waits for cannot end as it asks", "scancel {job}"),
    "JobHeldUser": ("its owner holds it", "scontrol release {job}"),
    "JobHeldAdmin": ("an administrator holds it", "ask the site"),
    "JobArrayTaskLimit": ("its array runs as many tasks at once as it may", ""),
    "ReqNodeNotAvail": ("a node it needs is not available", "ask for less time, or for other nodes"),
    "Reservation": ("it waits for its reservation", ""),
    "Licenses": ("a licence it needs is in use", ""),
    "PartitionDown": ("its partition is down", "use another partition"),
    "PartitionInactive": ("its partition is inactive", "use another partition"),
    "PartitionNodeLimit": (
        "it asks for more nodes than its partition has, or for more or fewer than it allows",
        "ask for another number of nodes",
    ),
    "PartitionTimeLimit": ("it asks for more time than its partition allows", "ask for less time"),
    "PartitionConfig": (
        "its partition has no node of that size, or does not take such a job",
        "ask for fewer CPUs or GPUs a node, or use another partition",
    ),
    "BadConstraints": (
        "no node has what it asks for, so Slurm holds it",
        "ask for other features, or once a node has them: scontrol release {job}",
    ),
    "Constraints": ("no node has now what it asks for", "ask for other features"),
    "UnavailableNodes": ("a node it needs is down or drained", "ask for other nodes, or for fewer"),
    "NodesUnavailable": (
        "its nodes are down, drained or kept for a partition of higher priority",
        "ask for fewer nodes, or use another partition",
    ),
    "NodeDown": ("a node it needs is down", "use other nodes"),
    "AccountNotAllowed": ("its account may not use this partition", "use another account or partition"),
    "InvalidAccount": ("there is no such account", "use another account"),
    "InvalidQOS": ("there is no such QOS", "use another QOS"),
    "QOSNotAllowed": ("its QOS may not be used here", "use another QOS or partition"),
    "AssociationJobLimit": ("its account has as many jobs at once as allowed", "wait until one of them ends"),
    "AssociationResourceLimit": ("its account would have more resources at once than allowed", "wait, or ask for less"),
    "AssociationTimeLimit": (
        "the allocation of its account is used up",
        "use another account, or ask the site for more",
    ),
    "QOSJobLimit": ("its QOS has as many jobs at once as allowed", "wait until one of them ends"),
    "QOSResourceLimit": ("its QOS would have more resources at once than allowed", "wait, or ask for less"),
    "QOSTimeLimit": ("the allocation of its QOS is used up", "use another QOS, or ask the site for more"),
    "QOSUsageThreshold": ("its account has used too much for its QOS", "use another QOS, or ask the site"),
    "AccountingPolicy": ("a limit of the site forbids it to start now", "ask the site which"),
    "MaxMemPerLimit": ("it asks for more memory than one job may have", "ask for less (--mem)"),
    "WaitingForScheduling": ("Slurm has not looked at it yet", ""),
    "SchedDefer": ("Slurm starts no job at its submission; it looks at it soon", ""),
    "Cleaning": ("the node of its previous attempt is still being cleaned up", ""),
    "Prolog": ("the site's own preparation of its node runs", ""),
    "FedJobLock": ("the clusters of the federation decide which of them runs it", ""),
    "FrontEndDown": ("the cluster's front end is down", "ask the site"),
    "PowerNotAvail": ("its nodes may not draw enough power", "ask the site"),
    "PowerReserved": ("the power that it needs is reserved", "ask the site"),
    "BurstBufferResources": ("there is not enough burst buffer", "ask for less (--bb)"),
    "BurstBufferStageIn": ("its data is being copied to the burst buffer", ""),
    "BurstBufferOperation": ("its burst buffer failed", "ask the site"),
    "BlockMaxError": ("its block of nodes has failed too often", "ask the site"),
    "BlockFreeAction": ("its block of nodes is being freed", ""),
    "JobHoldMaxRequeue": ("it failed to start, so Slurm holds it", "scontrol release {job}"),
    "ReservationDeleted": ("its reservation was deleted", "use another reservation, or none"),
    "ReservationInvalid": ("it may not use its reservation any more", "use another reservation, or none"),
    "MaxPoweredUpNodes": ("as many nodes have power as the site allows", ""),
    "MpiPortsBusy": ("the ports that MPI needs are in use on its nodes", ""),
    "NvidiaImexChannels": ("no channel between the GPUs of its nodes (IMEX) is free", ""),
    "RaisedSignal": ("a signal ended its previous attempt", "read its output"),
    "DeadLine": ("it cannot end before its deadline", "submit it with a later one (--deadline)"),
    "JobLaunchFailure": ("Slurm could not start it on its node", "ask the site, or use other nodes"),
    "SystemFailure": ("Slurm, a file system or the network failed under it", "ask the site"),
    "NonZeroExitCode": ("its previous attempt exited with an error", "read its output"),
    "OutOfMemory": ("its previous attempt ran out of memory", "ask for more (--mem)"),
    "TimeLimit": ("its previous attempt used up its time limit", "ask for more time (--time)"),
    "InactiveLimit": ("its previous attempt was inactive for too long", "read its output"),
}
NEVER: Final = frozenset(  # the job never runs as asked; nor with a limit of one job (`…PerJobLimit`)
    {
        "DependencyNeverSatisfied", "PartitionNodeLimit", "PartitionTimeLimit", "PartitionConfig", "BadConstraints",
        "AccountNotAllowed", "InvalidAccount", "InvalidQOS", "QOSNotAllowed", "MaxMemPerLimit", "DeadLine",
    }
)  # fmt: skip


_LIMIT: Final = re.compile(
    r"(?P<whose>Assoc|QOS)?(?P<scale>Grp|Max|Min)"
    r"(?P<what>Cpu|GRES|Mem|Node|BB|Billing|Energy|License|Unknown|Wall|Submit|Job)(?:ory|Duration|s|Jobs?)?"
    r"(?P<sum>RunMin(?:ute)?s|Minutes)?(?:Per(?P<per>Job|Node|User|Account))?(?:Limit|NotSatisfied)?",
    re.IGNORECASE,
)
_LIMITED: Final = {  # what is limited → its name, its name as a sum over time, the option that asks for it
    "cpu": ("CPUs", "CPU minutes", "--cpus-per-task"),
    "gres": ("GPUs", "GPU minutes", "--gpu"),
    "mem": ("memory", "memory minutes", "--mem"),
    "node": ("nodes", "node minutes", "--nodes"),
    "bb": ("burst buffer", "burst buffer minutes", "--bb"),
    "billing": ("billing units", "billing minutes", "CPUs or GPUs"),
    "energy": ("energy", "energy minutes", "--time"),
    "license": ("licences", "licence minutes", "--licenses"),
    "unknown": ("units of a resource", "minutes of a resource", ""),
    "wall": ("time", "time", "--time"),
}


def _limit(word: str) -> Waits | None:
    """A reason that names a limit of an account, QOS or partition; None: another reason."""
    match = _LIMIT.fullmatch(word)
    if match is None:
        return None
    what, per, summed = match["what"].lower(), (match["per"] or "").lower(), (match["sum"] or "").lower()
    qos = match["whose"] == "QOS"
    group, other = ("its QOS", "use another QOS (--qos)") if qos else ("its account", "use another account (--account)")
    shared = match["scale"] == "Grp" or per == "account"
    if what in ("submit", "job"):
        who = f"{group} has" if shared else "you have"
        return Waits(why=f"{who} as many jobs at once as allowed", remedy="wait until one of them ends")
    name, minutes, option = _LIMITED[what]
    option = f" ({option})" if option else ""
    less, never = f"ask for less{option}", False
    if summed.startswith("runmin"):
        whose, jobs = ("your allocation", "your") if per == "user" else (f"the allocation of {group}", "its")
        why = f"{whose} is used up for now: {jobs} running jobs have reserved all {minutes}"
        remedy = f"wait until one of them ends, ask for less time, or {other}"
    elif shared and (summed or what == "wall"):
        why, remedy = f"the allocation of {group} is used up ({minutes})", f"{other}, or ask the site for more"
    elif shared or per == "user":
        whose, may = ("you", "one user may") if per == "user" else (group, "it may")
        why = f"with it {whose} would have more {name} at once than {may}"
        remedy = f"wait, {less}{'' if per == 'user' else f', or {other}'}"
    elif match["scale"] == "Min":
        why, remedy = f"{group} demands more {name} than it asks for", f"ask for more{option}, or {other}"
        never = True
    elif summed:
        why, remedy, never = f"it asks for more {minutes} than one job may have", "ask for less time (--time)", True
    else:
        node = " on a node" if per == "node" else ""
        why, remedy, never = f"it asks for more {name}{node} than one job may have", less, True
    return Waits(why=why, remedy=remedy, never=never)


def _reason(text: str) -> tuple[str, str]:
    """The reason in what the controller gives, and its detail: `ReqNodeNotAvail, UnavailableNodes:n1` → `n1`."""
    if begins := next((begins for begins in TEXTS if text.startswith(begins)), None):
        return TEXTS[begins], text.partition("(")[2].partition(")")[0]
    word, _, detail = text.strip("() ").partition(",")
    least, _, nodes = detail.strip().partition(":")
    return (least, nodes) if least in PENDING and nodes else (word.strip(), detail.replace("_", " ").strip())


@lru_cache(maxsize=1024)
def waits(reason: str | None, job: str = "JOB", closed: str = "") -> Waits:
    """Why a job waits and what to do: `it asks for more time than its partition allows`, `ask for less time`.

    An unknown reason comes back unchanged. `closed`: the next maintenance, as `rounds.maintenance` gives it.
    `never`: it never runs unless the job or the cluster changes.
    """
    if closed and "maint" in (reason or "").lower():
        start, _, end = closed.replace("T", " ").partition("/")
        remedy = f"ask for less time: it has to end before {start[:16]}Z" if start else "wait, or use other nodes"
        return Waits(why=f"down for maintenance until {end[:16]}Z", remedy=remedy)
    word, detail = _reason(reason or "None")
    limit = _limit(word)
    why, remedy = PENDING.get(word, (None, "")) if limit is None else (limit.why, limit.remedy or "")
    if why is None:
        return Waits(why=reason or word)
    why = f"{why} ({detail})" if detail else why
    never = word in NEVER or (limit is not None and limit.never)
    return Waits(why=why, remedy=remedy.format(job=job) or None, never=never)
