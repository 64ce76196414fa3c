"""`steno config`: every setting with its value and source, secrets only as "set"."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from steno.cli.program import steno
from steno.cli.wiring.app import App
from steno.engine.providers.registry import settings_table

TABLE = settings_table().known


@pytest.fixture(autouse=True)
def _an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No `.env`, no `steno.toml`."""
    monkeypatch.chdir(tmp_path)


def config(*words: str, **variables: str) -> str:
    """Its output in an empty folder."""
    surroundings = {name: "" for known in TABLE for name in known.variables} | variables
    runner = CliRunner(env=surroundings | {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent", "NO_COLOR": "1"})
    result = runner.invoke(steno, ["config", *words], obj=App(), catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_first_sites_defaults_are_shown() -> None:
    """600 s, 3 machines, MI300X, 1.99, 0.8: each as a default, with the variables that set it."""
    printed = json.loads(config("--json"))
    settings = printed["settings"]
    names = ("vms.idle_timeout", "vms.max", "dstack.gpu", "rates.MI300X", "budget.alerts")
    assert [settings[name]["value"] for name in names] == ["600", "3", "MI300X", "1.99", "0.8"]
    assert {settings[name]["source"] for name in names} == {"default"}
    assert (settings["budget.total"]["value"], settings["budget.total"]["source"]) == (None, "not set")
    assert printed["variables"]["vms.max"] == ["STENO_MAX_VMS", "AMD_VM_MAX_CONCURRENT"]


def test_a_value_stands_beside_what_set_it() -> None:
    """And the variable's name beside it."""
    page = config(AMD_VM_IDLE_TIMEOUT="5m")
    assert "5m" in next(line for line in page.splitlines() if line.startswith("vms.idle_timeout"))
    assert "AMD_VM_IDLE_TIMEOUT" in page


def test_no_secret_is_shown() -> None:
    """Tokens, keys, webhooks and their secrets: only that they are set."""
    secrets = {
        "STENO_DSTACK_TOKEN": "hidden-1",
        "DSTACK_AMDDEVCLOUD_API_KEY": "hidden-2",
        "STENO_WEBHOOK": "https://hooks.example/hidden-3",
        "STENO_WEBHOOK_SECRET": "hidden-4",
    }
    assert "hidden" not in config(**secrets)
    assert "hidden" not in config("--json", **secrets)
