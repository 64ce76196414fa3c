"""Task files and flags: what is refused says in one line which field and why."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.errors import TaskInvalid
from steno.engine.providers.dstack.task import complete_task, normal_task
from steno.engine.providers.task import PATTERN, check_name, choose_name, overlaid, parse_task, read_task_file
from steno.events.errors import StenoError, UnreadableInput

TASK = {"type": "task", "commands": ["true"]}
AMD = {**TASK, "image": "rocm/dev-ubuntu-24.04", "resources": {"gpu": "MI300X:1"}}
PRINTED = """\
type: task
idle_duration: 5m
creation_policy: reuse-or-create
spot_policy: auto

resources:
  gpu:
    name: MI300X
    count: 1
  cpu: 2..
  memory: 8GB..
  disk: 100GB..

backends:
  - hotaisle
"""
"""The task file as the project's first documents print it: nothing to run, and no image."""


def refusal(configuration: dict[str, object], environ: dict[str, str] | None = None) -> str:
    with pytest.raises(TaskInvalid) as error:
        complete_task(configuration, environ or {}, "f.yml")
    message = str(error.value)
    assert "\n" not in message
    assert len(message) < 700
    return message


def test_the_example_as_first_printed_is_told_what_it_lacks() -> None:
    """It has neither image nor commands; one line names both."""
    assert "`image` and `commands` are missing" in refusal(parse_task(PRINTED, ".dstack.yml"))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"comands": ["x"]}, ["unknown field `comands`", "did you mean `commands`"]),
        ({"resources": {"cpux": 2}}, ["unknown field `resources.cpux`"]),
        ({"resources": {"gpu": "H100:many"}}, ["`resources.gpu`", "H100:many"]),
        ({"resources": {"gpu": {"name": "H100", "count": "3..1"}}}, ["`resources.gpu.count`", "3..1"]),
        ({"resources": {"cpu": "8..2"}}, ["`resources.cpu.count`", "8..2"]),
        ({"resources": {"memory": "lots"}}, ["`resources.memory", "lots"]),
        ({"resources": {"disk": "..", "gpu": "H100"}}, ["`resources.disk"]),
        ({"resources": 7}, ["`resources`"]),
        ({"creation_policy": "never"}, ["`creation_policy`", "'create', 'reuse' or 'reuse-or-create'", "'never'"]),
        ({"spot_policy": "cheap"}, ["`spot_policy`", "cheap"]),
        ({"backends": ["nimbus"]}, ["`backends.0`", "nimbus"]),
        ({"max_duration": "5y"}, ["`max_duration`", "5y"]),
        ({"idle_duration": "soon"}, ["`idle_duration`", "soon"]),
        ({"commands": "true"}, ["`commands`", "list"]),
        ({"nodes": 0}, ["`nodes`"]),
        ({"files": ["a:b:c"]}, ["`files.0`", "a:b:c"]),
        ({"working_dir": "here"}, ["working_dir", "absolute"]),
        ({"env": ["NOT SO=1"]}, ["env", "NOT SO"]),
        ({"env": ["A=1", "A=2"]}, ["env", "A twice"]),
        ({"env": {"A": None}}, ["env"]),
        ({"env": ["HF_TOKEN"]}, ["env", "HF_TOKEN", "not set"]),
        ({"env": 3}, ["env"]),
        ({"name": "Bad_Name"}, ["Bad_Name", PATTERN]),
        ({"name": 7}, ["'7'", PATTERN]),
        ({"type": ["task"]}, ["`type`", "['task']", "type: task"]),
        ({"type": None}, ["`type` is missing"]),
        ({"commands": []}, ["`commands` is missing"]),
        ({"schedule": {"cron": "0 0 30 2 *"}}, ["`schedule.cron`: '0 0 30 2 *' is never due"]),
        ({"schedule": {"cron": ["0 3 * * *", "0 0 31 4 *"]}}, ["'0 0 31 4 *' is never due"]),
        ({"resources": {"gpu": "MI300X:1"}}, ["`image` is missing", "rocm"]),
        ({"resources": {"gpu": "amd:8"}}, ["`image` is missing"]),
        ({"resources": {"gpu": "MI300X:0"}}, ["`resources.gpu`: no machine has 0 GPUs of a model", "at least 1"]),
        ({"resources": {"gpu": {"name": "MI300X", "count": 0}}}, ["`resources.gpu`", "0 GPUs of a model"]),
        ({"resources": {"gpu": "MI300X:-1"}}, ["`resources.gpu`: no machine has -1 GPUs", "`gpu: 0`"]),
        ({"resources": {"gpu": "-1"}}, ["`resources.gpu`: no machine has -1 GPUs"]),
        ({"resources": {"gpu": "AMD Instinct MI300X VF"}}, ["no GPU 'AMDInstinctMI300XVF'; write MI300X"]),
        ({"image": "i", "registry_auth": {"username": "u", "password": "${{ env.PW }}"}}, ["env.PW"]),
    ],
)
def test_a_refusal_names_the_field(more: dict[str, object], words: list[str]) -> None:
    """A task that dstack would refuse, or accept and fail later, is refused here, with the field and its value."""
    message = refusal({**TASK, **more})
    for word in words:
        assert word in message


@pytest.mark.parametrize(
    "registry",
    [
        "hunter2",
        ["hunter2"],
        7777777,
        {"hunter2": "x"},
        {"username": "u", "password": "p", "more": "hunter2"},
        {"username": "u", "password": "p", "hunter2": "x"},
        {"username": "u", "password": "${{ hunter2"},
        {"username": "u", "password": "${{ hunter2! }}"},
        {"username": "hunter2"},
    ],
)
@pytest.mark.parametrize("within", [False, True], ids=["task", "group"])
def test_a_refusal_does_not_repeat_the_registrys_login(registry: object, within: bool) -> None:
    """Whatever its shape: the message goes into answers, logs and terminals."""
    image = {"image": "i", "registry_auth": registry}
    task = (
        {"type": "task", "groups": [{"name": "g", "nodes": 1, "commands": ["true"], **image}]}
        if within
        else TASK | image
    )
    message = refusal(task)
    assert not any(text in message for text in ("hunter2", "7777777")), message
    if not within:
        assert "`registry_auth`: write" in message


def test_a_fleet_is_told_apart_from_a_task() -> None:
    """dstack's words about a fleet without nodes are quoted, with what was wrongly concluded from them."""
    without = refusal({"type": "fleet", "name": "f"})
    assert "No ssh_config or nodes specified" in without
    assert "`nodes: 0..2`" in without
    assert "cloud do work" in without
    assert "No ssh_config" not in refusal({"type": "fleet", "nodes": "0..2"})


def test_env_is_completed_as_dstack_apply_does() -> None:
    """A bare name takes its value from here; numbers become text; the registry's password may refer to it."""
    registry = {"username": "u", "password": "${{ env.PW }}"}
    task = complete_task({**AMD, "env": ["PW", "A=b=c", "E="], "registry_auth": registry}, {"PW": "s"}, "f.yml")
    assert task["env"] == {"PW": "s", "A": "b=c", "E": ""}
    assert task["registry_auth"] == {"username": "u", "password": "s"}
    assert complete_task({**TASK, "env": {"PORT": 8080}}, {}, "f.yml")["env"] == {"PORT": "8080"}
    assert "env" not in complete_task(TASK, {}, "f.yml")


def test_what_the_server_fills_in_is_left_to_it() -> None:
    """Secrets of dstack stay references; the place for run arguments is empty, as without any."""
    task = complete_task({**TASK, "commands": ["a ${{ secrets.k }} ${{ run.args }}"]}, {}, "f.yml")
    assert task["commands"] == ["a ${{ secrets.k }} "]


def test_the_configuration_is_sent_as_written() -> None:
    """No field is added that an older server would not know; shorthands stay."""
    assert complete_task(AMD, {}, "f.yml") == AMD
    resources = normal_task(AMD)["resources"]
    assert isinstance(resources, dict)
    assert resources["gpu"]["name"] == ["MI300X"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1", ["line 1", "column"]),
        ("type: task\ncommands:\n\t- x\n", ["line 3"]),
        ("type: task\nname: \x00\n", ["line 2"]),
        ("", ["empty"]),
        ("# only a comment\n", ["empty"]),
        ("- a\n", ["list"]),
        ("just words\n", ["text"]),
        ("a: &x [*x]\n", ["nested deeper"]),
        ("when: 2026-11-20\n", ["when", "date", "quotes"]),
        ("1: x\n", ["1", "quotes"]),
        ("x: !!python/object/apply:os.system ['true']\n", ["line 1"]),
    ],
)
def test_a_broken_file_is_one_line_with_its_place(text: str, words: list[str]) -> None:
    """Nothing YAML can do to us is a traceback."""
    with pytest.raises(StenoError) as error:
        parse_task(text, "f.yml")
    for word in ["f.yml", *words]:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_not_there_or_not_text(tmp_path: Path) -> None:
    """The file's name is in the line."""
    (tmp_path / "binary.yml").write_bytes(b"\xff\xfe\x00")
    for name in ("absent.yml", "binary.yml", "."):
        with pytest.raises(UnreadableInput, match="task file"):
            read_task_file(tmp_path / name)


def test_flags_alone_make_a_task() -> None:
    """Several words are quoted into one command, one word is a shell line."""
    made = overlaid(
        None,
        command=["echo", "two words"],
        gpu="MI300X:2",
        cpu="2..",
        memory="8GB..",
        disk="100GB..200GB",
        image="i",
        env=["A=1", "B"],
        backends=("hotaisle",),
        spot_policy="auto",
        creation_policy="reuse-or-create",
        idle_duration="5m",
        max_duration="1h",
        name="mine",
    )
    task = complete_task(made, {"B": "2"}, "the flags")
    assert task["commands"] == ["echo 'two words'"]
    assert task["env"] == {"A": "1", "B": "2"}
    resources = normal_task(task)["resources"]
    assert isinstance(resources, dict)
    assert (resources["gpu"]["count"], resources["cpu"]["count"]["min"]) == ({"min": 2, "max": 2}, 2)
    assert overlaid(None, command=["a && b"])["commands"] == ["a && b"]


def test_flags_go_over_the_file() -> None:
    """A flag replaces its own field, keeps the others of the same mapping, and `env` is merged name by name."""
    file = {**AMD, "resources": {"gpu": "MI300X:1", "cpu": 4}, "env": {"A": "1", "B": "2"}, "idle_duration": "5m"}
    made = overlaid(file, gpu="MI300X:8", env=["B=3", "C=4"], idle_duration="1m")
    task = complete_task(made, {}, "f.yml")
    assert task["resources"] == {"gpu": "MI300X:8", "cpu": 4}
    assert task["env"] == {"A": "1", "B": "3", "C": "4"}
    assert task["idle_duration"] == "1m"
    assert task["commands"] == AMD["commands"]
    assert overlaid(file) == file


@given(st.uuids(), st.none() | st.text(max_size=60))
def test_a_chosen_name_is_always_one_dstack_takes(run_id: object, stem: str | None) -> None:
    """Whatever the file is called, and always the same for the same run."""
    name = choose_name(str(run_id), stem)
    assert check_name(name) == name
    assert choose_name(str(run_id), stem) == name


@given(st.text(max_size=50))
def test_a_name_is_judged_as_dstack_does(name: str) -> None:
    """The rule is dstack's own, but for its `$`, which lets a final line break through."""
    from dstack._internal.core.services import is_valid_dstack_resource_name

    if is_valid_dstack_resource_name(name) and not name.endswith("\n"):
        assert check_name(name) == name
    else:
        with pytest.raises(TaskInvalid):
            check_name(name)


LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n" for level in range(1, 10)
)
HOSTILE = {
    "a billion laughs": (LAUGHS + "type: task\ncommands: *a9\n", "more than 10,000 values"),
    "an alias to itself": ("type: task\ncommands: &a [*a]\n", "nested deeper"),
    "a Python object": ("commands: [!!python/object/apply:os.system ['touch owned']]\n", "could not determine"),
    "a million keys": ("".join(f"K{number}: v\n" for number in range(100_000)), "larger than 512 kB"),
    "deep": ("type: task\ncommands: " + "[" * 20_000 + "]" * 20_000, "recursion"),
    "a number of digits": ("type: task\nnodes: " + "9" * 5_000, "digits"),
    "a number in base 60": ("type: task\nnodes: " + ":".join(["1"] * 5_000), "out of range"),
    "no number": ("type: task\nmax_price: .nan\n", "out of range"),
    "without end": ("type: task\nmax_price: .inf\n", "out of range"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_task_file_is_refused_in_one_line(tmp_path: Path, case: str) -> None:
    """Small files that stand for much, tags that call something, numbers that nothing can hold."""
    text, reason = HOSTILE[case]
    file = tmp_path / "task.yml"
    file.write_text(text)
    with pytest.raises(StenoError, match=reason) as error:
        read_task_file(file)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400 + len(str(file))
    assert not Path("owned").exists()


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder"])
def test_a_task_file_that_is_no_file_is_refused_unread(tmp_path: Path, kind: str) -> None:
    """A pipe that nobody writes to would be waited for; /dev/zero never ends."""
    file = tmp_path / "task.yml"
    if kind == "a pipe":
        os.mkfifo(file)
    else:
        file.symlink_to("/dev/zero" if kind == "a device" else tmp_path)
    with pytest.raises(UnreadableInput, match="not a regular file"):
        read_task_file(file)


@pytest.mark.parametrize("kind", ["service", "volume", "dev-environment", "gateway"])
def test_what_is_no_task_is_left_to_dstack(kind: str) -> None:
    """Another `type` would not make it a task: the message gives dstack's own command for it."""
    for where, file in (("my serve.dstack.yml", "'my serve.dstack.yml'"), ("configuration", "FILE")):
        with pytest.raises(TaskInvalid) as error:
            complete_task({"type": kind, "commands": ["true"]}, {}, where)
        assert f"`type` is '{kind}', and Steno runs tasks only" in str(error.value)
        assert str(error.value).endswith(f"`dstack apply -f {file}`")
        assert "type: task" not in str(error.value)


def test_several_documents_are_called_that() -> None:
    """They are valid YAML."""
    with pytest.raises(UnreadableInput) as error:
        parse_task("type: task\ncommands: [a]\n---\ntype: task\ncommands: [b]\n", "two.yml")
    assert "two.yml has several documents: another begins in line 3" in str(error.value)
    assert "not valid YAML" not in str(error.value)
    with pytest.raises(UnreadableInput, match="is not valid YAML"):
        parse_task("a: [\n", "bad.yml")
