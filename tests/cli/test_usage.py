"""Usage: the front page, errors in one line with exit code 2, and what is drawn of the state machines."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from stenotest.command_line import Steno, refused

from steno.cli.catalogue import HELP, OF_PROVIDERS, near, page
from steno.cli.program import run, steno
from steno.cli.wiring.app import App
from steno.engine.providers import registry
from steno.engine.providers.registry import every_rule_set


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["pss"], "did you mean ps"),
        (["ps", "--nonsense"], "--nonsense"),
        (["show"], "missing argument 'RUN...'"),
        (["replay", "--rules", "nonsense", "-"], "nonsense"),
        (["verify", "--expect", "17"], "POSITION:HASH"),
        (["verify", "--expect", f"17:{'z' * 64}"], "POSITION:HASH"),
        (["verify", "--expect", f"{'9' * 5000}:9f2c"], "POSITION:HASH"),
        (["--record"], "--record"),
        (["config", "--provider", "aws"], "aws"),
    ],
)
def test_a_wrong_word_is_named_in_one_line(steno: Steno, words: list[str], line: str) -> None:
    """Exit 2, and the way to the right word."""
    assert line in refused(steno(*words), 2)


def test_without_arguments_the_front_page_is_shown(steno: Steno) -> None:
    """`steno` alone lists the commands."""
    done = steno()
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: steno")


def test_the_version_is_one_line_with_commit_and_schema(steno: Steno) -> None:
    assert re.fullmatch(r"steno 0\.\d+\.\d+ \(commit [0-9a-f]{12}\+?, schema \d{4}_\w+\)\n", steno("--version").stdout)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(steno: Steno, shell: str) -> None:
    """Each shell's script calls back into steno."""
    done = steno("completion", shell)
    assert done.returncode == 0
    assert "_STENO_COMPLETE" in done.stdout


def test_a_broken_setting_is_named_with_its_place(steno: Steno) -> None:
    """The user learns which file or variable to change."""
    assert "STENO_PROVIDER" in refused(steno("config", STENO_PROVIDER="aws"), 2)


def test_settings_say_where_they_come_from(steno: Steno) -> None:
    """A flag before the command counts as one after it."""
    settings = json.loads(steno("--record", "x.db", "config", "--json").stdout)["settings"]
    assert settings["record"] == {"value": "x.db", "source": "flag"}
    assert settings["provider"] == {"value": "local", "source": "default"}
    assert json.loads(steno("config", "--json", "--record", "y.db").stdout)["settings"]["record"]["value"] == "y.db"


DOCS = Path(__file__).parents[2] / "docs" / "machines"


@pytest.mark.parametrize("machine", ["run", "vm"])
def test_a_machine_is_drawn_as_in_the_docs(steno: Steno, machine: str) -> None:
    """Mermaid by default; Graphviz on demand; with --json the same text."""
    drawn = steno("states", machine)
    assert (drawn.returncode, drawn.stdout) == (0, (DOCS / f"{machine}.mmd").read_text(encoding="utf-8"))
    assert steno("states", machine, "--format", "dot").stdout.startswith(f"digraph {machine} {{")
    answer = json.loads(steno("states", machine, "--json").stdout)
    assert (answer["machine"], answer["format"], answer["diagram"]) == (machine, "mermaid", drawn.stdout)


def _commands(root: click.Command, *words: str) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and group, with the words that call it."""
    yield words, root
    if isinstance(root, click.Group):
        context = click.Context(root, obj=App())
        for name in root.list_commands(context):
            inner = root.get_command(context, name)
            assert inner is not None
            yield from _commands(inner, *words, name)


@pytest.mark.parametrize(
    ("words", "command"),
    [pytest.param(words, command, id=" ".join(words) or "steno") for words, command in _commands(steno)],
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


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("ps --state failed --state running", "--state is given twice: give it once (see `steno ps --help`)"),
        ("serve --record a.db --record b.db", "--record is given twice: give it once (see `steno serve --help`)"),
        (
            "--record a.db ps --record b.db",
            "--record is given twice, before the command and after it: give it once (see `steno ps --help`)",
        ),
    ],
)
def test_it_ends_with_two(capsys: pytest.CaptureFixture[str], words: str, line: str) -> None:
    assert run(words.split()) == 2
    assert capsys.readouterr().err == f"steno: {line}\n"


def test_help_is_printed_whatever_else_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["ps", "--state", "a", "--state", "b", "--help"]) == 0
    assert "--state" in capsys.readouterr().out


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
    code = (
        "import sys; sys.argv[1:] = ['--help']; from steno.cli.main import main; main(); print('click' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
    assert done.stdout.startswith("Usage: steno")


def test_a_trace_is_replayed_without_importing_sqlalchemy() -> None:
    """The database takes twice the time of everything else the command imports, and a trace has none."""
    code = (
        "import sys; from steno.cli.program import run; "
        "done = run(['replay', sys.argv[1]]); print(done, 'sqlalchemy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, TRACE], capture_output=True, text=True, check=True)
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
    commands: list[tuple[tuple[str, ...], click.Command]] = []
    context = click.Context(group, obj=App())
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            commands += leaves(command, *path, name)
        else:
            commands.append(((*path, name), command))
    return commands


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
    """From the registry, each with its summary."""
    assert all(f"  {name} " in help_of("replay") for name in every_rule_set())


@pytest.mark.parametrize("name", sorted(HELP))
def test_every_help_fits_a_terminal_of_eighty_columns(name: str) -> None:
    """Examples and tables too, which click does not wrap."""
    page = CliRunner().invoke(steno, [name, "--help"], obj=App(), terminal_width=80).output
    assert [line for line in page.splitlines() if len(line) > 80 and "[current|" not in line] == []


def test_commands_of_built_in_providers_stand_beside_the_others() -> None:
    """On the page, and where a shell completes."""
    assert {kind.name for kind in registry.built_in() if kind.commands} == OF_PROVIDERS
    for name in OF_PROVIDERS:
        assert f"  {name} " in page(colour=False)
        offered = ShellComplete(steno, {"obj": App()}, "steno", "_STENO_COMPLETE").get_completions([], name[:2])
        assert name in {completion.value for completion in offered}
