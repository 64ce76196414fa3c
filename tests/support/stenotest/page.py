"""The commands that a document shows, in their order, each with the output below it.

Shell is a fence of `console`, `bash` or `sh`, and what is indented by four spaces. In a session (`$ …`) the lines
without `$` are output; elsewhere each line is a command, with its comment.
"""

import re
from dataclasses import dataclass, replace
from pathlib import Path

SHELL = ("console", "bash", "sh")
_FENCE = re.compile(r"```(\w*)$")
_CHECKED = re.compile(r"<!-- checked: ?(\S*) ?-->$")
_MOMENT = re.compile(r"^\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d")
_LOG = re.compile(r"^\S+Z (?:INFO   |WARNING) ")
_FIGURE = re.compile(r"[-−+]?[$#]?(?=[0-9a-f]*\d)[0-9a-f][\d.,:a-f-]*(?:T[\d:.]+)?Z?(?: ?(?:ms|s|m|h|d)\b)?")
_PAIR = re.compile(r'"(\w+)":("[a-z_]+")?')


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A command as a reader types it."""

    text: str
    line: int
    """The line in the document, from 1."""
    output: tuple[str, ...] = ()
    """The output below it, line by line."""
    trace: str | None = None
    """The trace whose record a checked session reads, from the project's folder; "": it reads none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A piece of code in a document."""

    language: str | None
    """As its fence names it, "" where that names none; None: it is indented."""
    line: int
    """The line of its first row."""
    rows: tuple[str, ...]
    trace: str | None

    def commands(self) -> list[Command]:
        """None where it is of another language than shell."""
        if self.language is not None and self.language not in SHELL:
            return []
        session = any(row.startswith("$ ") for row in self.rows)
        commands: list[Command] = []
        joined = False
        for number, row in enumerate(self.rows, self.line):
            if joined:
                commands[-1] = replace(commands[-1], text=f"{commands[-1].text}\n{row}")
            elif row.startswith("$ ") or not (session or not row or _MOMENT.match(row)):
                commands.append(Command(text=row.removeprefix("$ ").lstrip(), line=number, trace=self.trace))
            elif session and commands:
                commands[-1] = replace(commands[-1], output=(*commands[-1].output, row))
            joined = row.endswith("\\")
        return commands


def blocks_of(path: Path) -> list[Block]:
    """Every piece of code of a document, in order."""
    lines = path.read_text().splitlines()
    blocks: list[Block] = []
    at = 0
    while at < len(lines):
        fence, begin = _FENCE.match(lines[at]), at
        if fence:
            at = lines.index("```", begin + 1)
            checked = _CHECKED.match(lines[begin - 1])
            trace = checked[1] if checked else None
            rows = tuple(lines[begin + 1 : at])
            blocks.append(Block(language=fence[1], line=begin + 2, rows=rows, trace=trace))
        elif lines[at].startswith("    ") and not lines[at - 1]:
            while at < len(lines) and (lines[at].startswith("    ") or lines[at : at + 2][-1].startswith("    ")):
                at += 1
            rows = tuple(line[4:] for line in lines[begin:at])
            blocks.append(Block(language=None, line=begin + 1, rows=rows, trace=None))
        at += 1
    return blocks


def commands_of(path: Path) -> list[Command]:
    """Every command of a document, in order."""
    return [command for block in blocks_of(path) for command in block.commands()]


def lacks(expected: tuple[str, ...], printed: str, *, moment: bool = False) -> list[str]:
    """The parts of the output shown below a command that it did not print, figures aside.

    JSON is compared by its keys and their words, text by its lines, except lines that begin with a moment and are not
    of a log: which steps of a run a follower sees depends on the machine. A `moment` that does not come again is
    compared by keys, or by the first line.
    """
    if any(_PAIR.search(row) for row in expected):
        had = {had for key, word in _PAIR.findall(printed) for had in (key, f"{key}: {word}")}
        pairs = _PAIR.findall("".join(expected))
        return [pair for key, word in pairs if (pair := f"{key}: {word}" if word and not moment else key) not in had]
    lines = {_form(row) for row in printed.splitlines()}
    rows = [row for row in expected if row.strip("… ") and (_LOG.match(row) or not _MOMENT.match(row))]
    return [row for row in (rows[:1] if moment else rows) if _form(row) not in lines]


def differs(expected: tuple[str, ...], printed: str) -> bool:
    """True if a command printed anything else than the output shown; a row of `…` stands for any rows."""
    pattern = "".join(r"(?:.*\n)*?" if row == "…" else re.escape(row.rstrip()) + r"\n" for row in expected)
    return not re.fullmatch(pattern, "".join(f"{row.rstrip()}\n" for row in printed.splitlines()))


def _form(row: str) -> str:
    """Without figures and the record's place; root is warned of what others are informed of."""
    if _LOG.match(row):
        row = re.sub(r"record /.*\)", "record)", _LOG.sub("", row)).replace("commands as root", "commands as this user")
    return re.sub(r"\s+", " ", _FIGURE.sub("#", row)).strip()
