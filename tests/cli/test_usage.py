"""Usage errors: one line, exit 2, and what to do next."""

import json

import pytest
from stenotest.command_line import Steno, refused


@pytest.mark.parametrize(
    ("words", "told"),
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
def test_a_wrong_word_is_named_in_one_line(steno: Steno, words: list[str], told: str) -> None:
    """Exit 2, and a way to the right one."""
    assert told in refused(steno(*words), 2)


def test_without_arguments_the_front_page_is_shown(steno: Steno) -> None:
    """Whoever types `steno` wants to know what there is."""
    done = steno()
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: steno")


def test_the_version_is_one_line(steno: Steno) -> None:
    """`steno --version`."""
    assert steno("--version").stdout.startswith("steno 0.")


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
