"""Man pages in roff, made from the commands themselves."""

import re
from collections.abc import Iterator

import click

from events.installation import version

_SECTIONS = {"examples:": "EXAMPLES"}


def page_name(context: click.Context) -> str:
    """`steno-token-create`."""
    return context.command_path.replace(" ", "-")


def man_page(context: click.Context) -> str:
    command, name = context.command, page_name(context)
    short = command.get_short_help_str(limit=200) or "record, explain and control GPU runs"
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH "{name.upper()}" "1" "" "Steno {version()}" "Steno"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(short)}",
        ".SH SYNOPSIS",
        f".B {_text(context.command_path)}",
        _text(usage),
        ".SH DESCRIPTION",
        *_paragraphs(command.help or short),
    ]
    options = [found for one in command.get_params(context) if (found := one.get_help_record(context)) is not None]
    if options:
        lines.append(".SH OPTIONS")
    for flags, about in options:
        lines += [".TP", f".B {_text(flags)}", _text(about)]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for below in command.list_commands(context):
            one = command.get_command(context, below)
            if one is not None and not one.hidden:
                lines += [".TP", f".BR {_text(f'{name}-{below}')} (1)", _text(one.get_short_help_str(limit=200))]
    above = context.parent
    if above is not None:
        lines += [".SH SEE ALSO", f".BR {_text(page_name(above))} (1)"]
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    """A help text: paragraphs are filled, a block after `\\b` stays as it is; its title, if known, is a section."""
    for block in re.split(r"\n\s*\n", text.strip()):
        if not block.lstrip().startswith("\b"):
            yield ".PP"
            yield _text(" ".join(block.split()))
            continue
        rows = block.lstrip().removeprefix("\b").strip("\n").splitlines()
        section = _SECTIONS.get(rows[0].strip().lower()) if rows else None
        yield ".PP" if section is None else f".SH {section}"
        yield ".nf"
        yield from map(_text, rows if section is None else rows[1:])
        yield ".fi"


def _text(text: str) -> str:
    """Words that roff reads as they are."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("\n", " ")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
