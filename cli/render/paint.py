"""Colours, escaping, widths and tables; pure functions on text."""

import re
import textwrap
import unicodedata
from collections.abc import Sequence

import click

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_COMMAND = re.compile(r"`[^`]*`")
_STEERING = r"([\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff])"
"""Characters that move the cursor, set a title, reverse text, or cannot be encoded."""
_HIDDEN = re.compile(r"(\x1b\[(?:[0-3]|3[0-7]|9[0-7])m)|" + _STEERING)  # our own colours stay
_OUTPUT = re.compile(r"(\x1b\[[0-9;]*m|\r)|" + _STEERING)  # keeps colours, and \r for progress bars

STATE_COLOURS: dict[str, str] = {  # one colour per state, everywhere
    "requested": "bright_black",
    "queued": "bright_black",
    "provisioning": "blue",
    "pulling": "blue",
    "running": "cyan",
    "finishing": "cyan",
    "succeeded": "green",
    "failed": "red",
    "stopped": "yellow",
    "lost": "magenta",
    "idle": "yellow",
    "busy": "cyan",
    "draining": "yellow",
    "terminating": "bright_black",
    "terminated": "bright_black",
    "unconfirmed": "magenta",
}


def state(name: str, text: str | None = None) -> str:
    return click.style(name if text is None else text, fg=STATE_COLOURS.get(name))


def verdict(name: str, *more: str | None) -> str:
    """`● failed · exit_nonzero · exit 1` in the state's colour; leaves out what is None."""
    return state(name, " · ".join([f"● {name}", *filter(None, more)]))


def visible(text: str) -> str:
    """Make a provider's text safe to print: control characters appear as `\\x1b`, `\\r`, `\\u202e`."""
    return _HIDDEN.sub(lambda match: match[1] or repr(match[2])[1:-1], text)


def plain(text: str) -> str:
    """A provider's text on one line, without any effect on the terminal: colours, breaks and tabs are escaped too."""
    return _one_line(re.sub(_STEERING, lambda match: repr(match[1])[1:-1], text))


def _one_line(text: str) -> str:
    return text.replace("\n", r"\n").replace("\t", r"\t")


def visible_output(text: str) -> str:
    """Make a run's output safe to print on a terminal: keeps colours, shows other control characters."""
    return _OUTPUT.sub(lambda match: match[1] or repr(match[2])[1:-1], text)


def visible_json(text: str) -> str:
    """JSON text of the same value, with the characters that `visible` escapes as `\\u009b`."""
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[2]):04x}", text)


def dim(text: str) -> str:
    return click.style(text, dim=True)


def bold(text: str) -> str:
    return click.style(text, bold=True)


def width(text: str) -> int:
    """Terminal columns of a painted text."""
    plain = _ESCAPE.sub("", text)
    return sum(
        2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in plain if not unicodedata.combining(char)
    )


def pad(text: str, columns: int, right: bool = False) -> str:
    fill = " " * max(0, columns - width(text))
    return fill + text if right else text + fill


def cut(text: str, columns: int) -> str:
    """Plain text of at most `columns`; ends in `…` if it was cut."""
    return text if len(text) <= columns else text[: max(0, columns - 1)] + "…"


def wrapped(text: str, columns: int) -> list[str]:
    """Lines of at most `columns`; none is broken within a word or a command, which can be copied."""
    whole = _COMMAND.sub(lambda match: match[0].replace(" ", "\xa0"), text)
    lines = textwrap.wrap(whole, columns, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\xa0", " ") for line in lines]


def facts(rows: Sequence[tuple[str, str]]) -> list[str]:
    longest = max(len(label) for label, _ in rows)
    return [f"{dim(label.ljust(longest))}  {_one_line(value)}" for label, value in rows]


def fitted(
    head: Sequence[str], rows: Sequence[Sequence[str]], columns: int, *, right: Sequence[int] = (), spare: Sequence[int]
) -> str:
    """As `table`, but drops `spare` columns in order until it fits into `columns`."""
    kept = list(range(len(head)))
    drawn = table(head, rows, right=right)
    for column in spare:
        if max(width(line) for line in drawn.splitlines()) <= columns:
            break
        kept.remove(column)
        drawn = table(
            [head[index] for index in kept],
            [[row[index] for index in kept] for row in rows],
            right=[place for place, index in enumerate(kept) if index in right],
        )
    return drawn


def table(head: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """Columns under dim headings, two spaces apart; the columns in `right` are right-aligned."""
    rows = [[_one_line(visible(cell)) for cell in row] for row in rows]
    widths = [max(width(row[column]) for row in (head, *rows)) for column in range(len(head))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(pad(cell, widths[column], column in right) for column, cell in enumerate(cells)).rstrip()

    return "\n".join([dim(line(head)), *(line(row) for row in rows)])
