"""The shipped `.env.example` and `steno.toml` agree with the table of settings."""

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from steno.cli.commands.settings import sample_settings
from steno.engine.providers.registry import load_settings, settings_table
from steno.engine.settings.settings import Settings, policy_from

EXAMPLE = Path(__file__).parents[2] / ".env.example"
ENTRY = re.compile(r"^(#?)([A-Z][A-Z0-9_]*)=(.*)$", re.MULTILINE)
TABLE = settings_table().known
BY_VARIABLE = {variable: known for known in TABLE for variable in known.variables}

SEEDS = {
    "DSTACK_BACKEND",
    "DSTACK_AMDDEVCLOUD_API_KEY",
    "AMD_VM_IDLE_TIMEOUT",
    "AMD_VM_MAX_CONCURRENT",
    "AMD_DEFAULT_GPU",
    "AMD_MI300X_HOURLY_RATE",
    "AMD_GRANT_CREDITS_TOTAL",
    "AMD_COST_ALERT_THRESHOLD",
    "AMD_CONTAINER_ISOLATION",
    "AMD_CONTAINER_MEMORY_LIMIT",
    "AMD_CONTAINER_CPU_LIMIT",
}
"""The variables of the `.env` of the project Steno began with."""


def load(folder: Path, **environ: str) -> Settings:
    """The settings of a call in that folder with nothing but its own `.env`."""
    home = folder / "nobody"
    return load_settings(flags={}, environ=environ, cwd=folder, home=home, config=home, data=home)


def entries() -> dict[str, tuple[bool, str]]:
    """{variable: (it is commented out, the value shown)}."""
    return {name: (bool(mark), value) for mark, name, value in ENTRY.findall(EXAMPLE.read_text())}


def test_it_names_every_variable_that_is_read_and_no_other() -> None:
    """Each has a line of its own, or is named beside the setting that it overrides."""
    text = EXAMPLE.read_text()
    assert entries().keys() <= BY_VARIABLE.keys()
    assert [name for name in BY_VARIABLE if not re.search(rf"\b{name}\b", text)] == []
    assert entries().keys() >= SEEDS


def test_every_setting_with_a_variable_has_one_line() -> None:
    """Two lines for one setting would make an edit of the weaker one do nothing."""
    names = [BY_VARIABLE[name].name for name in entries()]
    assert sorted(names) == sorted(known.name for known in TABLE if known.variables)


@pytest.mark.parametrize("name", sorted(entries()))
def test_a_line_shows_the_default(name: str) -> None:
    """An empty value where there is none. A file of `AMD_` variables is the first site's, and so is its budget."""
    known = BY_VARIABLE[name]
    assert entries()[name][1] == (known.default or known.site_default or "")


def test_every_line_stands_under_its_meaning() -> None:
    """A variable without a word about it would be guessed at."""
    lines = EXAMPLE.read_text().splitlines()
    for number, line in enumerate(lines):
        if ENTRY.match(line):
            above = next(text for text in reversed(lines[:number]) if not ENTRY.match(text))
            assert re.match("# [A-Za-z(]", above), line


@pytest.mark.parametrize("provider", ["local", "dstack"])
def test_copied_as_it_stands_it_changes_nothing_but_the_budget(tmp_path: Path, provider: str) -> None:
    """Every other value and the whole policy are as without it: `AMD_` variables bring the first site's budget."""
    before = load(tmp_path, STENO_BUDGET="1400.00")
    (tmp_path / ".env").write_text(EXAMPLE.read_text())
    after = load(tmp_path)
    assert load(tmp_path / "elsewhere").value("budget.total") is None
    assert {entry.name: entry.value for entry in after.entries} == {entry.name: entry.value for entry in before.entries}
    assert policy_from(after, provider) == policy_from(before, provider)


def test_the_sample_file_is_that_of_the_command() -> None:
    """`steno config --sample > docs/examples/steno.toml` makes it."""
    assert (EXAMPLE.parent / "docs/examples/steno.toml").read_text() == sample_settings(TABLE)


def test_the_sample_file_changes_nothing_even_without_its_marks(tmp_path: Path) -> None:
    """Every line that shows a default is valid TOML and means that default. A rate alone says more by being set: it
    stands instead of reported prices.
    """
    before = load(tmp_path)
    lines = [re.sub(r"^#(?=\w+ = )", "", line) for line in sample_settings(TABLE).splitlines()]
    (tmp_path / "steno.toml").write_text("\n".join(line for line in lines if not line.endswith(' = ""')))
    after = load(tmp_path)
    assert replace(policy_from(after, "local"), rates=()) == policy_from(before, "local")
    sources = {entry.name: entry.source for entry in after.entries}
    assert {setting.name for setting in TABLE if setting.default is not None} <= {
        name for name, source in sources.items() if "steno.toml" in source
    }
