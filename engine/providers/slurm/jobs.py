"""Jobs: their lines in `scontrol -o show job`, and the submissions under a job id, grouped into jobs. Pure.

A job id is not a key: ids wrap at MaxJobId, and a controller that lost its state counts from the start. A job is a
chain of submissions of one user on one cluster: a requeue keeps the id and rewrites Submit. A name or a comment alone
continues no chain. Times are the cluster's, compared only with each other.

A line is read by the order of its keys: it is free text, in which the name, the comment, the command and every path may
hold `JobState=…`. The keys that are read stand in one block between the name and the free text: each has a value
without a blank, and comes in the order of `_ORDER`. The name ends where the block begins. Free text that repeats the
whole block cannot be told apart from it, so such a line is unreadable.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from steno.engine.providers.slurm.words import LIVE, REQUEUED
from steno.engine.state.facts import AttemptFacts, RunFacts
from steno.events.clock import SECOND

REQUEUED_WITHIN: Final = 600 * SECOND  # from an attempt's end to the submission of the next
UNBROKEN: Final = 60 * SECOND
"""Two answers of the controller this close together list one job: an id comes again only after the controller has
forgotten the job, by default 300 s after its end.
"""


def chains_of(rows: Sequence[RunFacts]) -> list[list[RunFacts]]:
    """The rows of one job id, cut where the id came again; in order of submission."""
    chains: list[list[RunFacts]] = []
    for row in sorted(rows, key=lambda row: row.submitted_at or 0):
        if chains and _leads_to(chains[-1][-1], row):
            chains[-1].append(row)
        else:
            chains.append([row])
    return chains


def is_same_job(
    known: RunFacts,
    seen: RunFacts,
    *,
    views: Mapping[str, RunFacts | None],
    listed: RunFacts | None,
    since: int | None,
) -> bool | None:
    """See `Reading.is_same_run`. The controller alone cannot tell a requeued job from another job of its id if it was
    not asked meanwhile: accounting has to say how the earlier attempt ended.
    """
    if _elsewhere(known, seen) or _differ(known.user, seen.user) or _differ(known.mark, seen.mark):
        return False
    times = {*_submissions(known), *(at for view in views.values() if view is not None for at in _submissions(view))}
    shows = set(_submissions(seen))
    if not times or not shows:
        return True
    if any(min(times) <= at <= max(times) for at in shows):
        return True
    if seen.mark is not None and seen.mark == known.mark:
        return True
    if max(shows) < min(times):
        earlier = next(iter(seen.newest), None)
        if earlier is None or not earlier.over:
            return None  # accounting is behind
        return _requeued(earlier, min(times))
    newest = next(iter(known.newest), None)
    if _requeued(newest, min(shows)) or _restarted(newest, seen):
        return True
    if seen.jobs or known.final:
        return False  # accounting lists every attempt; a job that ended otherwise is not requeued
    return True if _is_unbroken(listed, seen, since) else None


def _leads_to(earlier: RunFacts, later: RunFacts) -> bool:
    """True if a row is a further submission of the job of an earlier row."""
    if _differ(earlier.user, later.user) or _differ(earlier.mark, later.mark):
        return False
    if later.submitted_at is None or later.submitted_at == earlier.submitted_at:
        return True
    return (earlier.mark is not None and earlier.mark == later.mark) or _requeued(
        next(iter(earlier.newest), None), later.submitted_at
    )


def _requeued(attempt: AttemptFacts | None, submitted_at: int) -> bool:
    """True if the attempt's end is followed by a requeue, and that submission followed at once."""
    if attempt is None or not attempt.retried or attempt.finished_at is None:
        return False
    return submitted_at - attempt.finished_at <= REQUEUED_WITHIN


def _restarted(newest: AttemptFacts | None, seen: RunFacts) -> bool:
    """True if the controller counts more restarts, where it is the only source."""
    attempts = seen.jobs[0].attempts if seen.jobs else ()
    return newest is not None and len(attempts) == 1 and attempts[0].num > newest.num


def _is_unbroken(listed: RunFacts | None, seen: RunFacts, since: int | None) -> bool:
    if listed is None or since is None or since > UNBROKEN:
        return False
    goes_on = listed.status in LIVE or listed.status in REQUEUED
    return goes_on and (listed.name, listed.mark, listed.user) == (seen.name, seen.mark, seen.user)


def _submissions(facts: RunFacts) -> Iterator[int]:
    for at in (facts.submitted_at, *(attempt.submitted_at for job in facts.jobs for attempt in job.attempts)):
        if at is not None:
            yield at


def _elsewhere(facts: RunFacts, other: RunFacts) -> bool:
    """True if they are of two clusters: by the clusters' own names, else by those of our sources."""
    if facts.realm is not None and other.realm is not None:
        return facts.realm != other.realm
    return _differ(facts.project, other.project)


def _differ(value: str | None, other: str | None) -> bool:
    return value is not None and other is not None and value != other


_HEAD: Final = re.compile(
    r"JobId=(?P<JobId>\d+)(?: ArrayJobId=(?P<ArrayJobId>\d+) ArrayTaskId=(?P<ArrayTaskId>\S+))?"
    r"(?: ArrayTaskThrottle=\d+)?(?: HetJobId=(?P<HetJobId>\d+) HetJobOffset=(?P<HetJobOffset>\d+))?"
    r"(?P<named> JobName=)?"
)
_ORDER: Final = (
    "UserId", "GroupId", "JobState", "Reason", "Restarts", "ExitCode", "DerivedExitCode", "SubmitTime", "StartTime",
    "EndTime", "Partition", "NodeList", "NumNodes", "NumTasks", "TRES", "ReqTRES", "AllocTRES",
)  # fmt: skip
_ALWAYS: Final = frozenset(_ORDER) - {"Restarts", "DerivedExitCode", "NumTasks", "TRES", "ReqTRES", "AllocTRES"}
"""Every version prints these for every job."""
_BEHIND: Final = frozenset(
    {"Socks/Node", "Command", "WorkDir", "AdminComment", "SystemComment", "Comment", "StdErr", "StdIn", "StdOut"}
)
"""The keys that end the block: the first of them stands behind everything that is read, the others are free text."""
_KEY: Final = re.compile(r"([A-Za-z][A-Za-z0-9_/:]*)=(.*)", re.DOTALL)
_OWNER: Final = re.compile(r"[^=]*\(\d+\)")  # names of users and groups may hold blanks
_SET: Final = re.compile(r" HetJobIdSet=\S*$")
_AFTER_COMMENT: Final = re.compile(r" +(?:StdErr|StdIn|StdOut|Switches|Power|TresPer\w+)=")
DEVICES: Final = {"TresPerJob": None, "TresPerNode": "NumNodes", "TresPerTask": "NumTasks"}
"""The keys of devices that a job asks for → how many times it gets them."""


def job_pairs(line: str) -> dict[str, str] | None:
    """The keys that are read, by Slurm's names; None: no job. ValueError: it is unreadable or ambiguous."""
    head = _HEAD.match(line)
    if head is None:
        return None
    words = line[head.end() :].split(" ")
    blocks = [block for at in _starts(words) if (block := _block(words, at)) is not None]
    whole = [block for block in blocks if block[0].keys() >= _ALWAYS]
    if len(whole or blocks) != 1:
        raise ValueError("a line of scontrol that shows no state of a job, or several")
    ((pairs, first, last),) = whole or blocks
    pairs.update({key: value for key, value in head.groupdict().items() if value and key != "named"})
    if head["named"]:
        name = " ".join(words[:first])
        pairs["JobName"] = _SET.sub("", name) if "HetJobId" in pairs else name
    rest = " ".join(words[last:])
    _, *comments = f" {rest}".split(" Comment=")
    if len(comments) == 1:
        pairs["Comment"] = _AFTER_COMMENT.split(comments[0])[0].strip()
    for key in DEVICES:
        _, named, devices = rest.rpartition(f" {key}=")
        if named:
            pairs[key] = devices.partition(" ")[0]
    return pairs


def _starts(words: Sequence[str]) -> list[int]:
    """Where a block may begin."""
    for key in ("UserId=", "JobState="):
        starts = [at for at, word in enumerate(words) if word.startswith(key)]
        if starts:
            return starts
    return []


def _block(words: Sequence[str], start: int) -> tuple[dict[str, str], int, int] | None:
    """The block that begins there, with its first word and the word behind its last; None: there is none."""
    pairs: dict[str, str] = {}
    at, order = start, -1
    while at < len(words):
        pair = _KEY.fullmatch(words[at])
        at += 1
        if pair is None:
            if words[at - 1]:
                return None
            continue
        key, value = pair[1], pair[2]
        if key in _BEHIND:
            at -= 1
            break
        while key in ("UserId", "GroupId") and not _OWNER.fullmatch(value) and at < len(words) and "=" not in words[at]:
            value, at = f"{value} {words[at]}", at + 1
        if key in _ORDER:
            if _ORDER.index(key) <= order:
                return None
            order, pairs[key] = _ORDER.index(key), value
    return (pairs, start, at) if "JobState" in pairs else None
