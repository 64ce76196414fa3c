"""The example package through the command line: nothing of Steno knows it, and everything works."""

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
Cli = Callable[..., "CompletedProcess[str]"]


def answer(done: CompletedProcess[str], code: int = 0) -> dict:
    assert done.returncode == code, (done.stdout, done.stderr)
    return json.loads(done.stdout)


def test_it_is_under_200_lines() -> None:
    assert len((ROOT / "examples" / "provider" / "steno_example.py").read_text().splitlines()) < 200


def lines(text: str) -> str:
    """The lines of a text, without indentation and blank lines: a formatter moves methods that stand alone."""
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def test_the_guide_shows_the_code_of_the_example() -> None:
    """Every block of docs/providers.md stands in the package, line for line."""
    guide = (ROOT / "docs" / "providers.md").read_text()
    package = ROOT / "examples" / "provider"
    python = "".join((package / name).read_text() for name in ("steno_example.py", "test_example.py"))
    files = {"python": python, "toml": (package / "pyproject.toml").read_text()}
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)

    assert len(blocks) > 5
    assert [text for kind, text in blocks if lines(text) not in lines(files[kind])] == []


def test_a_task_is_submitted_judged_billed_and_its_output_read(with_example: Cli) -> None:
    """Submit, poll, verdict, bill and logs; with an option of the provider's own."""
    words = ("submit", "--wait", "--json", "--nice", "3", "--name", "one")
    run = answer(with_example(*words, "--", "nice; sleep 1; exit 7"), 1)
    assert (run["provider"], run["state"]) == ("example", "failed")
    assert (run["reason"], run["exit_status"]) == ("exit_nonzero", 7)
    assert run["start"] == "cold"
    assert with_example("logs", "one").stdout == f"{os.nice(0) + 3}\n"

    (vm,) = answer(with_example("vms", "--all", "--json"))["vms"]
    assert (vm["price_usd_per_hour"], vm["runs"]) == ("3.600000", [run["run_id"]])
    costs = answer(with_example("costs", "--json"))
    assert float(run["cost_usd"]) > 0.0009
    assert costs["total"]["total_usd"] == run["cost_usd"]
    polls = [json.loads(line) for line in with_example("polls", "--json").stdout.splitlines()]
    assert {poll["path"] for poll in polls} == {"/example/jobs", "/example/machines"}
    assert {poll["source"] for poll in polls} == {"example/jobs"}
    replayed = answer(with_example("replay", "--json"))
    assert [run["state"] for run in replayed["runs"]] == ["failed"]


@pytest.mark.ci
def test_a_run_is_stopped_whatever_provider_the_settings_name(with_example: Cli) -> None:
    """A run is stopped, and its output read, at its own provider."""
    answer(with_example("submit", "--json", "--name", "two", "--", "echo out; sleep 600"))
    local = {"STENO_PROVIDER": "local"}

    assert with_example("logs", "two", **local).stdout == "out\n"
    run = answer(with_example("stop", "two", "--json", **local))

    assert run["state"] == "stopped"
    assert answer(with_example("show", "two", "--json", **local))["reason"] == "stopped_by_user"


def test_its_settings_are_shown_and_its_variables_read(with_example: Cli) -> None:
    """`steno config`, `steno doctor` and the help know it once it is chosen."""
    settings = answer(with_example("config", "--json", STENO_EXAMPLE_FOLDER="elsewhere"))
    assert settings["settings"]["example.folder"] == {"value": "elsewhere", "source": "STENO_EXAMPLE_FOLDER"}
    assert settings["settings"]["example.price"]["value"] == "3.60"
    assert {"name": "example", "state": "ok", "said": "shell processes in a folder"} in answer(
        with_example("doctor", "--json")
    )["checks"]
    assert "--nice N" in with_example("submit", "--help").stdout
    assert "example" in with_example("submit", "--provider", "none", "--", "true").stderr


@pytest.mark.ci
def test_an_option_of_another_provider_is_refused(with_example: Cli) -> None:
    done = with_example("submit", "--provider", "local", "--nice", "3", "--", "true")

    assert done.returncode == 2
    assert "the provider local has no option --nice" in done.stderr
