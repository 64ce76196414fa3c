"""The front page and the catalogue agree with the commands themselves."""

import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from cli.catalogue import HELP, OF_PROVIDERS, near, page
from cli.program import steno
from cli.wiring.app import App
from engine.providers import registry
from engine.providers.readings import every_rule_set

TRACE = Path(__file__).parents[1] / "traces" / "dstack-0.22.5" / "success.jsonl.zst"


def help_of(*words: str) -> str:
    """The help text of a command."""
    result = CliRunner().invoke(steno, [*words, "--help"], obj=App(), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_front_page_fits_eighty_columns() -> None:
    """A page that wraps is not read."""
    assert [line for line in page(colour=False).splitlines() if len(line) > 80] == []


def test_the_front_page_is_printed_without_importing_click() -> None:
    """Click alone takes most of the 80 ms the page may take."""
    code = "import sys; sys.argv[1:] = ['--help']; from cli.main import main; main(); print('click' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert done.stdout.startswith("Usage: steno")


def test_a_trace_is_replayed_without_importing_sqlalchemy() -> None:
    """The database takes twice the time of everything else the command imports, and a trace has none."""
    code = (
        "import sys; from cli.program import run; "
        "done = run(['replay', sys.argv[1]]); print(done, 'sqlalchemy' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, TRACE],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "0 False"


def test_colour_only_adds_bold() -> None:
    """Nothing is said by colour alone."""
    assert re.sub(r"\x1b\[\d+m", "", page(colour=True)) == page(colour=False)


@pytest.mark.parametrize("name", sorted(HELP))
def test_every_command_has_a_help_with_an_example(name: str) -> None:
    """Each help says what the command gives, shows a line to copy, and takes --record and --json."""
    text = help_of(name)
    assert f"steno {name}" in text
    assert "Example" in text
    assert [line for line in text.splitlines() if len(line) > 100] == []


def leaves(group: click.Group, *path: str) -> list[tuple[tuple[str, ...], click.Command]]:
    """Every command that does something, with the words that call it."""
    found: list[tuple[tuple[str, ...], click.Command]] = []
    context = click.Context(group, obj=App())
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            found += leaves(command, *path, name)
        else:
            found.append(((*path, name), command))
    return found


def test_every_command_takes_record_and_json_after_its_name() -> None:
    """`--record` and `--json` are accepted everywhere."""
    for path, command in leaves(steno):
        options = {option for parameter in command.params for option in parameter.opts}
        assert {"--record", "--json"} <= options, path


def test_a_mistyped_command_suggests_the_near_ones() -> None:
    """The error says what to do next."""
    assert near("replya", list(HELP)).startswith("; did you mean replay")
    assert near("zzzz", list(HELP)) == ""


def test_the_help_of_replay_lists_every_rule_set() -> None:
    """From the registry, each with what it is."""
    assert all(f"  {name} " in help_of("replay") for name in every_rule_set())


@pytest.mark.parametrize("name", sorted(HELP))
def test_every_help_fits_a_terminal_of_eighty_columns(name: str) -> None:
    """Examples and tables too, which click does not wrap."""
    shown = CliRunner().invoke(steno, [name, "--help"], obj=App(), terminal_width=80).output
    assert [line for line in shown.splitlines() if len(line) > 80 and "[current|" not in line] == []


def test_commands_of_built_in_providers_stand_beside_the_others() -> None:
    """On the page, and where a shell completes."""
    assert {kind.name for kind in registry.built_in() if kind.commands} == OF_PROVIDERS
    for name in OF_PROVIDERS:
        assert f"  {name} " in page(colour=False)
        offered = ShellComplete(steno, {"obj": App()}, "steno", "_STENO_COMPLETE").get_completions([], name[:2])
        assert name in {one.value for one in offered}
