"""The task of a command line: file, command and flags, with dstack's profiles merged in."""

from pathlib import Path

import click
import pytest
from stenotest.command_line import Steno

from steno.cli.wiring.task import described
from steno.engine.errors import TaskInvalid
from steno.engine.providers.registry import load_settings
from steno.engine.settings.settings import Settings
from steno.events.errors import UnreadableInput

NOBODY = Path("/nonexistent")
RUN_ID = "11111111-2222-4333-8444-0123456789ab"


def settings(provider: str, **values: str | None) -> Settings:
    """The settings of a call; `gpu` and `backend` are dstack's."""
    flags = {"provider": provider, "dstack.gpu": "off"}
    for name, value in values.items():
        if value is not None:
            flags[name if name == "profile" else f"dstack.{name}"] = value
    return load_settings(flags=flags, environ={}, cwd=NOBODY, home=NOBODY, config=NOBODY, data=NOBODY)


def test_a_plain_command_is_named_after_its_first_word() -> None:
    """And after the run, so that no other run chooses that name."""
    task = described(file=None, command=["./train.sh", "--fast"], flags={}, settings=settings("local"), run_id=RUN_ID)
    assert task.name.startswith("train-sh-")
    assert task.configuration["commands"] == ["./train.sh --fast"]


def test_settings_fill_in_gpu_and_backend_on_dstack_only() -> None:
    """Flags win over the file."""
    image = {"image": "rocm/dev-ubuntu-24.04"}

    def task(provider: str, **flags: object) -> dict[str, object]:
        given = {**image, **flags}
        return described(
            file=None,
            command=["ls"],
            flags=given,
            settings=settings(provider, gpu="MI300X:1", backend="hotaisle"),
            run_id=RUN_ID,
        ).configuration

    assert task("dstack")["resources"] == {"gpu": "MI300X:1"}
    assert task("dstack")["backends"] == ["hotaisle"]
    assert task("dstack", gpu="H100:2")["resources"] == {"gpu": "H100:2"}
    assert task("dstack", backends=("vastai",))["backends"] == ["vastai"]
    assert "resources" not in task("local")


def test_a_file_keeps_its_own_gpu_and_backends(tmp_path: Path) -> None:
    """The setting is for command-line tasks; a backend is for any that names none."""
    file = tmp_path / "task.yml"
    file.write_text("type: task\ncommands: [ls]\nimage: ubuntu\n")
    task = described(
        file=file, command=(), flags={}, settings=settings("dstack", gpu="MI300X:1", backend="hotaisle"), run_id=RUN_ID
    )
    assert "resources" not in task.configuration
    assert task.configuration["backends"] == ["hotaisle"]
    assert task.base == str(tmp_path)


def test_nothing_to_submit_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ways there are, are named."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(click.UsageError, match=r"\.dstack\.yml"):
        described(file=None, command=(), flags={}, settings=settings("local"), run_id=RUN_ID)


def test_a_task_file_of_the_current_folder_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`.dstack.yml` before `.dstack.yaml`, as `dstack apply` has it; on this machine too."""
    monkeypatch.chdir(tmp_path)
    for name in (".dstack.yaml", ".dstack.yml"):
        (tmp_path / name).write_text(f"type: task\ncommands: ['echo {name}']\n")
        task = described(file=None, command=(), flags={}, settings=settings("local"), run_id=RUN_ID)
        assert task.configuration["commands"] == [f"echo {name}"]


@pytest.mark.parametrize("command", [[""], [" "], ["", "\n"]])
def test_a_blank_command_is_nothing_to_submit(command: list[str]) -> None:
    """`-- "$UNSET"` would run nothing and be called a success."""
    with pytest.raises(click.UsageError, match="blank"):
        described(file=None, command=command, flags={}, settings=settings("local"), run_id=RUN_ID)


def test_an_empty_name_is_no_name() -> None:
    """`--name "$UNSET"` is a mistake, not a wish for a name of our own."""
    with pytest.raises(TaskInvalid, match="name ''"):
        described(file=None, command=["ls"], flags={"name": ""}, settings=settings("local"), run_id=RUN_ID)


def test_a_profile_stands_between_flags_and_file(tmp_path: Path) -> None:
    """--idle-duration, then --profile, then the file, then the setting `profile`."""
    file = tmp_path / "task.yml"
    file.write_text("type: task\ncommands: [ls]\nidle_duration: 7m\n")

    def idle(*, file: Path | None, profile: str | None = None, **flags: object) -> object:
        command = () if file else ("ls",)
        task = described(
            file=file, command=command, flags=flags, settings=settings("local", profile=profile), run_id=RUN_ID
        ).configuration
        return task.get("idle_duration"), task.get("creation_policy")

    assert idle(file=None) == (None, None)
    assert idle(file=None, profile="batch") == ("15m", None)
    assert idle(file=file, profile="batch") == ("7m", None)
    flags: dict[str, object] = {"profile": "no-reuse"}
    chosen = described(file=file, command=(), flags=flags, settings=settings("local", profile="batch"), run_id=RUN_ID)
    assert chosen.configuration["idle_duration"] == "0m"
    assert chosen.configuration["creation_policy"] == "create"
    flags["idle_duration"] = "9m"
    chosen = described(file=file, command=(), flags=flags, settings=settings("local"), run_id=RUN_ID)
    assert chosen.configuration["idle_duration"] == "9m"


def test_a_fallback_is_a_list_of_models_in_order() -> None:
    """A word that is not a model's name, or a repeated name, is refused."""

    def fallback(text: str | None) -> tuple[str, ...]:
        flags = {"fallback": text}
        return described(file=None, command=["ls"], flags=flags, settings=settings("local"), run_id=RUN_ID).fallback

    assert fallback(None) == ()
    assert fallback("MI300X, MI210") == ("MI300X", "MI210")
    for wrong in ("", "MI300X,", "MI300X:2", "MI300X,mi300x", "MI300X MI210"):
        with pytest.raises(click.UsageError, match="--fallback"):
            fallback(wrong)


def test_a_gpu_nobody_typed_is_told_where_it_is_refused() -> None:
    """The default asks for an MI300X, which needs an image: the line names the setting."""
    with pytest.raises(TaskInvalid, match=r"image.*MI300X, comes from the setting dstack\.gpu"):
        described(file=None, command=["ls"], flags={}, settings=settings("dstack", gpu="MI300X"), run_id=RUN_ID)
    with pytest.raises(TaskInvalid) as error:
        described(
            file=None, command=["ls"], flags={"gpu": "MI300X"}, settings=settings("dstack", gpu="MI210"), run_id=RUN_ID
        )
    assert "dstack.gpu" not in str(error.value)


@pytest.mark.parametrize(
    ("taken", "error"),
    [
        ("files: [kernel.hip]", "`files`: {folder}/kernel.hip does not exist"),
        ("repos: [./code]", "`repos`: {folder}/code is not a folder"),
    ],
)
def test_what_a_task_takes_along_is_there_before_anything_is_requested(
    steno: Steno, home: Path, taken: str, error: str
) -> None:
    """Exit 2 with the missing path; no record is made, and no server is asked."""
    folder = home / "job"
    folder.mkdir()
    (folder / "task.yml").write_text(f"type: task\nimage: busybox\ncommands: [make]\n{taken}\n")
    dstack = {"DSTACK_SERVER_URL": "http://127.0.0.1:9", "DSTACK_TOKEN": "t", "DSTACK_PROJECT": "main"}
    done = steno("submit", "--provider", "dstack", "-f", "job/task.yml", **dstack)
    assert (done.returncode, done.stdout) == (2, "")
    assert error.format(folder=folder) in done.stderr
    assert not (home / "record.db").exists()


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
    for path in (home, here):
        (path / ".dstack").mkdir(parents=True)
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
    merged = task()
    assert (merged["spot_policy"], merged["idle_duration"], merged["max_duration"]) == ("spot", "3m", "1h")
    assert "default" not in merged
    assert merged["name"] != "cheap"
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
        merged = task(**flags)
        assert merged["max_price"] == 40
        assert "spot_policy" not in merged
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
    merged = task(profile="batch")
    assert (merged["idle_duration"], merged["spot_policy"]) == ("15m", "spot")
    file.write_text(TWO + "  - name: batch\n    max_price: 9\n")
    merged = task(profile="batch")
    assert (merged.get("idle_duration"), merged["max_price"]) == (None, 9)


@pytest.mark.parametrize("provider", ["dstack", "local"])
def test_a_profile_that_nobody_has_is_refused(folder: Path, provider: str) -> None:
    """The message lists the known names."""
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
