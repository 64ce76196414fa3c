"""dstack's profiles (`.dstack/profiles.yml`), merged into what goes to dstack as dstack's own client merges them."""

from pathlib import Path

import click
import pytest

from cli.wiring.task import described
from engine.errors import TaskInvalid
from engine.providers.registry import load_settings
from events.errors import UnreadableInput

NOBODY = Path("/nonexistent")
RUN_ID = "11111111-2222-4333-8444-0123456789ab"
TWO = """\
profiles:
  - name: cheap
    default: true
    spot_policy: spot
    max_duration: 2h
    idle_duration: 3m
  - name: dear
    max_price: 40
    max_duration: 8h
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a task of eight H100; `home` beside it is the home folder."""
    home, here = tmp_path / "home", tmp_path / "here"
    for one in (home, here):
        (one / ".dstack").mkdir(parents=True)
    (here / ".dstack.yml").write_text("type: task\ncommands: [ls]\nmax_duration: 1h\nresources: {gpu: 'H100:8'}\n")
    monkeypatch.setenv("HOME", str(home))
    for name in ("DSTACK_PROFILE", "DSTACK_NO_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(here)
    return here


def task(provider: str = "dstack", **flags: object) -> dict[str, object]:
    values = {"provider": provider, "dstack.gpu": "off"}
    settings = load_settings(flags=values, environ={}, cwd=NOBODY, home=NOBODY, config=NOBODY, data=NOBODY)
    return described(file=None, command=(), flags=flags, settings=settings, run_id=RUN_ID).configuration


def test_the_default_profile_of_the_project_fills_what_the_task_leaves_open(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An H100:8 does not run on demand without an end; one line shows what came from where."""
    (folder / ".dstack" / "profiles.yml").write_text(TWO)
    found = task()
    assert (found["spot_policy"], found["idle_duration"], found["max_duration"]) == ("spot", "3m", "1h")
    assert "default" not in found
    assert found["name"] != "cheap"
    assert capsys.readouterr().err == (
        "profile cheap of .dstack/profiles.yml: spot_policy: spot, idle_duration: 3m; "
        "the task has its own max_duration\n"
    )


def test_a_flag_stands_over_the_profile(folder: Path) -> None:
    (folder / ".dstack" / "profiles.yml").write_text(TWO)
    assert task(spot_policy="on-demand")["spot_policy"] == "on-demand"


def test_a_profile_is_chosen_by_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With --profile, else with dstack's own variable; the default one is then left out."""
    (folder / ".dstack" / "profiles.yml").write_text(TWO)
    for flags in ({"profile": "dear"}, {}):
        found = task(**flags)
        assert found["max_price"] == 40
        assert "spot_policy" not in found
        monkeypatch.setenv("DSTACK_PROFILE", "dear")
    monkeypatch.setenv("DSTACK_PROFILE", "cheep")
    with pytest.raises(TaskInvalid, match="DSTACK_PROFILE is 'cheep'"):
        task()
    monkeypatch.setenv("DSTACK_NO_PROFILE", "1")
    assert "spot_policy" not in task()


def test_the_home_folder_is_second(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the project has no profile of that name, or no default one; `.yaml` where there is no `.yml`."""
    home = folder.parent / "home" / ".dstack" / "profiles.yaml"
    home.write_text(TWO)
    assert task()["spot_policy"] == "spot"
    assert f"of {home}:" in capsys.readouterr().err
    (folder / ".dstack" / "profiles.yml").write_text("profiles: [{name: mine, default: true, max_price: 3}]")
    assert "spot_policy" not in task()
    assert task(profile="dear")["max_price"] == 40


def test_stenos_own_profiles_stand_beside_dstacks(folder: Path) -> None:
    """`--profile batch` keeps the machine longer, and what the default profile says of the rest holds; a profile of
    dstack of that name is meant where there is one.
    """
    file = folder / ".dstack" / "profiles.yml"
    file.write_text(TWO)
    found = task(profile="batch")
    assert (found["idle_duration"], found["spot_policy"]) == ("15m", "spot")
    file.write_text(TWO + "  - name: batch\n    max_price: 9\n")
    found = task(profile="batch")
    assert (found.get("idle_duration"), found["max_price"]) == (None, 9)


@pytest.mark.parametrize("provider", ["dstack", "local"])
def test_a_profile_that_nobody_has_is_refused(folder: Path, provider: str) -> None:
    """With the names there are."""
    with pytest.raises(click.UsageError, match=r"no profile 'cheep'.*development, batch"):
        task(provider, profile="cheep")


def test_other_providers_do_not_read_dstacks_profiles(folder: Path) -> None:
    (folder / ".dstack" / "profiles.yml").write_text(TWO)
    assert "spot_policy" not in task("local")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("profiles: [{name: a, default: true, max_pric: 3}]", r"profiles\.yml: unknown field `profiles.*max_pric`"),
        ("profiles: [{name: a, default: true, max_price: dear}]", r"profiles\.yml: `profiles.*max_price`: .*number"),
        ("profiles: 3", r"profiles\.yml: `profiles`: .*list"),
        ("", r"profiles\.yml is empty; it needs at least `profiles:`"),
        ("[]", r"profiles\.yml must be a mapping \(`profiles:` …\)"),
        ("profiles: [", r"profiles\.yml is not valid YAML"),
    ],
)
def test_a_profile_that_dstack_would_refuse_is_one_line(folder: Path, text: str, line: str) -> None:
    """It names the file and the field."""
    (folder / ".dstack" / "profiles.yml").write_text(text)
    with pytest.raises((TaskInvalid, UnreadableInput), match=line) as error:
        task()
    assert "\n" not in str(error.value)
