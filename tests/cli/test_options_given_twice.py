"""No option is overruled without a word: given twice, it takes both values, or the command ends with 2."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from cli.program import run, steno
from cli.wiring.app import App


def _commands(found: click.Command, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and group, with the words that call it."""
    yield words, found
    if isinstance(found, click.Group):
        context = click.Context(found, obj=App())
        for name in found.list_commands(context):
            inner = found.get_command(context, name)
            assert inner is not None
            yield from _commands(inner, *words, name)


@pytest.mark.parametrize(
    ("words", "command"), [pytest.param(words, one, id=" ".join(words) or "steno") for words, one in _commands(steno)]
)
def test_an_option_given_twice_is_refused(words: tuple[str, ...], command: click.Command) -> None:
    """A law over every option of every command that does not take several values; also under another of its names.
    Only parsed: no command runs.
    """
    for option in command.params:
        if isinstance(option, click.Option) and not option.multiple and not option.count:
            given = [] if option.is_flag else ["1"] * option.nargs
            twice = [option.opts[0], *given, (option.secondary_opts or option.opts)[-1], *given]
            with pytest.raises(click.UsageError, match=f"{option.opts[-1]} is given twice"):
                command.make_context("steno", twice, obj=App())


def test_it_ends_with_two(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ps", "--state", "failed", "--state", "running"]) == 2
    assert capsys.readouterr().err == "steno: --state is given twice: give it once (see `steno ps --help`)\n"


def test_help_is_printed_whatever_else_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ps", "--state", "a", "--state", "b", "--help"]) == 0
    assert "--state" in capsys.readouterr().out


def test_the_record_is_named_in_one_place(capsys: pytest.CaptureFixture[str]) -> None:
    """Before the command or after it, but not one record here and another there."""
    assert run(["--record", "a.db", "ps", "--record", "b.db"]) == 2
    assert "--record is given twice" in capsys.readouterr().err


def test_a_service_is_of_one_record(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["serve", "--record", "a.db", "--record", "b.db"]) == 2
    assert capsys.readouterr().err == "steno: --record is given twice: give it once (see `steno serve --help`)\n"
