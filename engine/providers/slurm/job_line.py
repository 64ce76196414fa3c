"""One line of `scontrol -o show job`, read by the order of its keys: it is free text, in which the name, the comment,
the command and every path may hold `JobState=…`. Pure.

The keys that are read stand in one block between the name and the free text: each has a value without a blank, and
comes in the order of `_ORDER`. The name ends where the block begins. Free text that repeats the whole block cannot be
told apart from it, so such a line is unreadable.
"""

import re
from collections.abc import Sequence
from typing import Final

_HEAD: Final = re.compile(
    r"JobId=(?P<JobId>\d+)(?: ArrayJobId=(?P<ArrayJobId>\d+) ArrayTaskId=(?P<ArrayTaskId>\S+))?"
    r"(?: ArrayTaskThrottle=\d+)?(?: HetJobId=(?P<HetJobId>\d+) HetJobOffset=(?P<HetJobOffset>\d+))?"
    r"(?P<named> JobName=)?"
)
_ORDER: Final = (
    "UserId", "GroupId", "JobState", "Reason", "Restarts", "ExitCode", "DerivedExitCode", "SubmitTime", "StartTime",
    "EndTime", "Partition", "NodeList", "NumNodes", "TRES", "ReqTRES", "AllocTRES",
)  # fmt: skip
_ALWAYS: Final = frozenset(_ORDER) - {"Restarts", "DerivedExitCode", "TRES", "ReqTRES", "AllocTRES"}
"""What every version prints for every job."""
_BEHIND: Final = frozenset(
    {"Socks/Node", "Command", "WorkDir", "AdminComment", "SystemComment", "Comment", "StdErr", "StdIn", "StdOut"}
)
"""The keys that end the block: the first of them stands behind everything that is read, the others are free text."""
_KEY: Final = re.compile(r"([A-Za-z][A-Za-z0-9_/:]*)=(.*)", re.DOTALL)
_OWNER: Final = re.compile(r"[^=]*\(\d+\)")  # names of users and groups may hold blanks
_SET: Final = re.compile(r" HetJobIdSet=\S*$")
_AFTER_COMMENT: Final = re.compile(r" +(?:StdErr|StdIn|StdOut|Switches|Power|TresPerNode)=")


def job_pairs(line: str) -> dict[str, str] | None:
    """The keys that are read, by Slurm's names; None: the line shows no job. Raises ValueError if it can be read in no
    way, or in several.
    """
    head = _HEAD.match(line)
    if head is None:
        return None
    words = line[head.end() :].split(" ")
    blocks = [block for at in _starts(words) if (block := _block(words, at)) is not None]
    whole = [block for block in blocks if block[0].keys() >= _ALWAYS]
    if len(whole or blocks) != 1:
        raise ValueError("a line of scontrol that shows no state of a job, or several")
    ((found, first, last),) = whole or blocks
    found.update({key: value for key, value in head.groupdict().items() if value and key != "named"})
    if head["named"]:
        name = " ".join(words[:first])
        found["JobName"] = _SET.sub("", name) if "HetJobId" in found else name
    rest = " ".join(words[last:])
    _, *comments = f" {rest}".split(" Comment=")
    if len(comments) == 1:
        found["Comment"] = _AFTER_COMMENT.split(comments[0])[0].strip()
    _, shown, devices = rest.rpartition(" TresPerNode=")
    if shown:
        found["TresPerNode"] = devices.partition(" ")[0]
    return found


def _starts(words: Sequence[str]) -> list[int]:
    """Where a block may begin."""
    for key in ("UserId=", "JobState="):
        found = [at for at, word in enumerate(words) if word.startswith(key)]
        if found:
            return found
    return []


def _block(words: Sequence[str], start: int) -> tuple[dict[str, str], int, int] | None:
    """The block that begins there, with its first word and the word behind its last; None: there is none."""
    found: dict[str, str] = {}
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
            order, found[key] = _ORDER.index(key), value
    return (found, start, at) if "JobState" in found else None
