"""The task a command line describes."""

from pathlib import Path

import click
import pytest
from stenotest.command_line import Steno

from cli.wiring.task import described
from engine.errors import TaskInvalid
from engine.providers.registry import load_settings
from engine.settings.settings import Settings

NOBODY = Path("/nonexistent")
RUN_ID = "11111111-2222-4333-8444-0123456789ab"


def settings(provider: str, **values: str | None) -> Settings:
    """Those of a call; `gpu` and `backend` are dstack's."""
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
    """What the command line says wins."""
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
    """What is no model's name, or stands there twice, is a mistake."""

    def fallback(text: str | None) -> tuple[str, ...]:
        flags = {"fallback": text}
        return described(file=None, command=["ls"], flags=flags, settings=settings("local"), run_id=RUN_ID).fallback

    assert fallback(None) == ()
    assert fallback("MI300X, MI210") == ("MI300X", "MI210")
    for wrong in ("", "MI300X,", "MI300X:2", "MI300X,mi300x", "MI300X MI210"):
        with pytest.raises(click.UsageError, match="--fallback"):
            fallback(wrong)


def test_a_gpu_nobody_typed_is_told_where_it_is_refused() -> None:
    """The default asks for an MI300X, which needs an image: the line says whose wish that was."""
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
    found = steno("submit", "--provider", "dstack", "-f", "job/task.yml", **dstack)
    assert (found.returncode, found.stdout) == (2, "")
    assert error.format(folder=folder) in found.stderr
    assert not (home / "record.db").exists()
