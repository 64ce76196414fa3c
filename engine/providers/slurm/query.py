"""The question of a Slurm command, read from its words. Pure.

Facts about the site travel in the command as variables that Slurm ignores, so that a record replays without settings:
STENO_CLUSTER (our name of it, as in the source), STENO_CLUSTER_NAME (its own), STENO_RATES (prices), STENO_USER (whose
jobs count), STENO_ACCOUNTING=none (it has none), STENO_MAINTENANCE (the next, if a job waits for it).
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

PREFIX: Final = "slurm:"
"""Start of the path of every answer; the command follows."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    tool: str  # `squeue`, `sacct`, `scontrol`, `sinfo`; or anything else
    columns: tuple[str, ...] = ()  # of a text answer, our names if used: see `_SQUEUE` and `_SACCT`
    separator: str = "|"
    closed: bool = False  # `sacct -p`: a separator ends each line
    json: bool = False
    jobs: frozenset[str] | None = None  # the ids it asks for; None: all
    filtered: bool = False  # by something else too: a user, a partition, states
    environment: Mapping[str, str] = {}  # variables that `env` sets


_SQUEUE: Final = {
    "i": "job", "T": "state", "r": "reason", "j": "name", "u": "user", "P": "partition", "k": "comment",
    "V": "submitted", "S": "started", "e": "ended", "N": "nodes", "A": "id", "F": "array", "K": "task",
    "o": "text", "Z": "text",
}  # fmt: skip
_SACCT: Final = {
    "jobid": "job", "state": "state", "jobname": "name", "user": "user", "partition": "partition",
    "comment": "comment", "exitcode": "exit_code", "derivedexitcode": "derived", "submit": "submitted",
    "start": "started", "end": "ended", "nodelist": "nodes", "alloctres": "tres", "reason": "reason",
    "suspended": "suspended", "timelimit": "limit", "uid": "uid",
    "submitline": "text", "workdir": "text", "admincomment": "text", "systemcomment": "text", "wckey": "text",
}  # fmt: skip
FREE_TEXT: Final = frozenset({"comment", "name", "text"})
"""Columns that may hold the separator."""
_FORMAT: Final = re.compile(r"%[.\-]?\d*([A-Za-z])")
ENDS: Final = "grep"  # reads the files with the exit statuses of job scripts
REPORTS: Final = "find"  # reads the files with reports and phases of job scripts
_VALUED: Final = {
    "squeue": frozenset("jutpwnqAMrRSLOo"),
    "sacct": frozenset("jusSEoAkrwNqTx"),
}
_NARROWING: Final = {  # options after which absence from an answer proves nothing
    "squeue": frozenset({"u", "user", "users", "me", "p", "partition", "A", "account", "w", "nodelist", "n", "name"}),
    "sacct": frozenset(
        {"u", "uid", "user", "r", "partition", "A", "account", "accounts", "N", "nodelist", "name", "s", "state",
         "S", "starttime", "E", "endtime"}  # a window leaves out what was cancelled while held
    ),
}  # fmt: skip
_OWN: Final = frozenset({"S", "u"})


def question(words: Sequence[str]) -> Question:
    """The question of a command; never raises."""
    environment: dict[str, str] = {}
    rest = list(words)
    if rest[:1] == ["env"]:
        rest.pop(0)
        while rest and "=" in rest[0]:
            name, _, value = rest.pop(0).partition("=")
            environment[name] = value
    by_id = rest[:1] == ["xargs"]  # the ids come from standard input
    if by_id:
        rest = [*rest[2:], ""]
    tool = rest.pop(0).rpartition("/")[2] if rest else ""
    if tool == "scontrol":
        shows = [word for word in rest if not word.startswith("-")]
        ids = frozenset(shows[2].split(",")) if shows[:2] == ["show", "job"] and len(shows) > 2 else None
        tool = "scontrol" if shows[:2] in (["show", "job"], ["show", "jobs"]) else "scontrol-other"
        return Question(tool=tool, jobs=ids, environment=environment)
    if tool not in ("squeue", "sacct"):
        return Question(tool=tool, environment=environment)
    flags, values = _options(tool, rest)
    columns: tuple[str, ...] = ()
    separator = "|"
    given = values.get("o") or values.get("format")
    if tool == "squeue" and given is not None:
        columns = tuple(_SQUEUE.get(letter, "") for letter in _FORMAT.findall(given))
        between = {text for text in _FORMAT.split(given)[2:-1:2] if text}
        separator = between.pop() if len(between) == 1 else " "
    elif tool == "sacct":
        names = [name.partition("%")[0].lower() for name in (given or "").split(",")]
        columns = tuple(_SACCT.get(name, "") for name in names)
        separator = values.get("delimiter", "|")
    jobs = values.get("j") or values.get("jobs") or values.get("job")
    narrowing = _NARROWING[tool]
    if "STENO_CLUSTER" in environment:  # Steno asks for one user's jobs, and by id for those of a known age
        narrowing = narrowing - {"me", *(_OWN if by_id else ())}
    states = (values.get("t") or values.get("states") or values.get("state")) if tool == "squeue" else None
    return Question(
        tool=tool,
        columns=columns,
        separator=separator,
        closed=tool == "sacct" and bool({"p", "parsable"} & flags),
        json="json" in flags,
        jobs=frozenset(jobs.split(",")) if jobs else None,
        # `squeue --json` of 22.05 ignores -j, -u and -t.
        filtered=bool(narrowing & {*values, *flags}) or (states is not None and states.lower() != "all"),
        environment=environment,
    )


def _options(tool: str, words: Sequence[str]) -> tuple[set[str], dict[str, str]]:
    flags: set[str] = set()
    values: dict[str, str] = {}
    left = iter(words)
    for word in left:
        if word.startswith("--"):
            name, given, value = word[2:].partition("=")
            if given:
                values[name] = value
            elif name in ("format", "jobs", "states", "user", "delimiter", "starttime", "endtime"):
                values[name] = next(left, "")
            else:
                flags.add(name)
        elif word.startswith("-"):
            for index, letter in enumerate(word[1:], 1):
                if letter in _VALUED[tool] and not (tool == "sacct" and letter == "n"):
                    values[letter] = word[index + 1 :] or next(left, "")
                    break
                flags.add(letter)
    return flags, values


@lru_cache(maxsize=4096)
def question_of(req: bytes) -> Question:
    """The question of a poll, from its request: the words of a command, or a shell line."""
    try:
        words = msgspec.json.decode(req, type=list[str] | str | None)
        return question(shlex.split(words) if isinstance(words, str) else words or ())
    except (msgspec.DecodeError, ValueError):
        return question(())
