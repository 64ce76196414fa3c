"""Finds the output file of any job, by what the controller or accounting still has of it."""

import posixpath
import re
from collections.abc import Mapping
from typing import Final

from steno.engine.errors import RunNotFound
from steno.engine.providers.slurm.shell import Shell
from steno.engine.providers.slurm.spec import MARK

_SYMBOL: Final = re.compile(r"%(\d*)([A-Za-z%])")
_FIRST_NODE: Final = re.compile(r"([^,\[]+)(?:\[(\d+))?")
_CONTROLLER: Final = re.compile(r"JobId=(\d+)(?: ArrayJobId=(\d+))?(?: ArrayTaskId=(\d+))?")
_STDOUT: Final = re.compile(r".* WorkDir=(.*?) (?:[A-Z]\w*=.*)?StdOut=(.*?)(?: [A-Z]\w*=.*)?$", re.DOTALL)
"""Keys at the end of a record, behind a name or comment of the user's with any text."""
_OPTION: Final = re.compile(r"\s(?:--output[= ]|-o\s*)(\S+)")
_COLUMNS: Final = ("JobID", "JobIDRaw", "User", "NodeList", "WorkDir", "Comment", "StdOut", "SubmitLine", "JobName")
_EXISTING: Final = 'for one; do [ ! -e "$one" ] || { printf "%s\\n" "$one"; break; }; done'


def expanded(pattern: str, values: Mapping[str, str]) -> str:
    """sbatch's file name pattern with the values of its symbols (`j`: `12`); one without a value stays.

    A number pads digits with zeros. A backslash turns all symbols off.
    """
    if "\\" in pattern:
        return pattern.replace("\\", "")

    def value(match: re.Match[str]) -> str:
        text = "%" if match[2] == "%" else values.get(match[2])
        return match[0] if text is None else text.zfill(int(match[1] or 0)) if text.isdecimal() else text

    return _SYMBOL.sub(value, pattern)


def from_controller(answer: str) -> str | None:
    """The output file by `scontrol -o show job JOB`; None if it has none."""
    ids, stdout = _CONTROLLER.match(answer.lstrip()), _STDOUT.match(answer.strip())
    if ids is None or stdout is None:
        return None
    return posixpath.join(stdout[1], expanded(stdout[2], _values(ids[1], ids[2] or ids[1], ids[3])))


def from_accounting(row: Mapping[str, str]) -> tuple[str, ...]:
    """Where the output may be, by accounting's row of the job: its `StdOut` (from 24.05 on), else what its command line
    names, else sbatch's default.
    """
    master, _, task = row["JobID"].partition("_")
    values = _values(row.get("JobIDRaw") or master, master, task or None)
    values |= {"u": row.get("User", ""), "x": row.get("JobName", "")}
    node = _FIRST_NODE.match(row.get("NodeList", ""))
    if node is not None:
        values["N"] = node[1] + (node[2] or "")
    named = _OPTION.search(row.get("SubmitLine", "").partition(" --wrap")[0])
    patterns = [row.get("StdOut"), named[1] if named else None, "slurm-%A_%a.out" if task else "slurm-%j.out"]
    return tuple(posixpath.join(row.get("WorkDir", ""), expanded(pattern, values)) for pattern in patterns if pattern)


def _values(job: str, master: str, task: str | None) -> dict[str, str]:
    """The values of the symbols that every job has; those of a node and rank are the batch script's."""
    return {"j": job, "J": job, "A": master, "a": task or "4294967294", "n": "0", "t": "0", "s": "batch"}


def output_of(client: Shell, job: str, own: str, *, accounting: bool) -> str:
    """The path of the output of a job that exists; `own`: that of a job of ours. Raises RunNotFound if it cannot be
    found.
    """
    path = from_controller(client.must("scontrol", "-o", "show", "job", job).out)
    if path is not None:
        return path
    row = _row(client, job) if accounting else {}
    if not row or row.get("Comment", "").startswith(MARK) or f"--comment={MARK}" in row.get("SubmitLine", ""):
        return own
    places = from_accounting(row)
    there = client.must("sh", "-c", _EXISTING, "sh", *places).out.splitlines()
    if not there:
        raise RunNotFound(
            f"the controller has forgotten job {job}, and its output is not at {' or '.join(places)}: "
            f"look for the --output of its script"
        )
    return there[-1]


def _row(client: Shell, job: str) -> dict[str, str]:
    """Accounting's newest row of a job, by the columns that this version has."""
    columns = client.columns(_COLUMNS)
    answer = client.must("sacct", "-X", "-D", "-P", "-n", "-j", job, "-o", ",".join(columns)).out
    rows = [line.split("|", len(columns) - 1) for line in answer.splitlines()]
    listed = [dict(zip(columns, row, strict=True)) for row in rows if len(row) == len(columns)]
    return next((row for row in reversed(listed) if row["JobID"] == job), {})
