"""The parts of a task that mean something on this machine."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.errors import TaskInvalid
from steno.engine.providers.local.task import LocalTask, local_task

BASE = Path("/base")


def task(**fields: object) -> LocalTask:
    return local_task({"type": "task", "commands": ["true"], **fields}, base=BASE, inherited={"PATH": "/bin", "X": "1"})


def test_commands_are_joined_as_dstack_joins_them() -> None:
    """The first that fails ends the run; one in the background is bracketed."""
    assert task(commands=["a", " b & ", "c"]).argv[1:] == ("-c", "a && { b & } && c")


@pytest.mark.parametrize(
    ("fields", "shell"),
    [({}, "/bin/bash"), ({"image": "x"}, "/bin/sh"), ({"shell": "dash"}, "/bin/dash"), ({"shell": "/a/zsh"}, "/a/zsh")],
)
def test_the_shell_is_dstacks_choice(fields: dict[str, object], shell: str) -> None:
    """bash where dstack's own image would be used, sh for another image, else the task's."""
    assert task(**fields).argv[0] == shell


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("off", None),
        (-1, None),
        (30, 30),
        ("45", 45),
        ("90s", 90),
        ("2h", 7200),
        ("1d", 86400),
        ("1w", 604800),
    ],
)
def test_durations_are_dstacks(value: object, seconds: int | None) -> None:
    """Seconds, a number with a unit, or off."""
    assert task(max_duration=value).max_duration == seconds


def test_the_grace_has_a_default_and_can_be_switched_off() -> None:
    """Ten seconds; `off` waits for ever."""
    assert (task().grace, task(stop_duration="off").grace, task(stop_duration="5m").grace) == (10, None, 300)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"type": "service"}, "type 'service' cannot be run here"),
        ({"nodes": 2}, "nodes: 2 cannot be run here"),
        ({"commands": []}, "commands is empty"),
        ({"commands": "true"}, "commands must be a list"),
        ({"commands": [1]}, "commands must be a list"),
        ({"env": {"A": None}}, "env 'A' has no value"),
        ({"env": ["A"]}, "env wants A from your environment"),
        ({"env": "A=1"}, "env must be a mapping"),
        ({"env": {"A": "x\0y"}}, "env 'A' holds a zero byte"),
        ({"env": {"A=B": "x"}}, "env: 'A=B' is not a variable name"),
        ({"commands": ["a\0b"]}, "zero byte"),
        ({"max_duration": "soon"}, "max_duration: 'soon' is not a duration"),
        ({"max_duration": -5}, "max_duration: -5 is not a duration"),
        ({"stop_duration": True}, "stop_duration: True is not a duration"),
        ({"commands": ["a\udcff"]}, "not valid UTF-8"),
        ({"working_dir": "a\0b"}, "zero byte"),
        ({"entrypoint": "a 'b"}, "cannot be split into words"),
    ],
)
def test_what_cannot_be_run_here_is_refused_in_one_line(fields: dict[str, object], message: str) -> None:
    """The field and what to do."""
    with pytest.raises(TaskInvalid) as raised:
        task(**fields)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_commands_too_long_for_a_shell_are_refused() -> None:
    """The system would refuse them when it is too late to say so."""
    assert task(commands=["x" * (128 * 1024 - 1)]).argv
    with pytest.raises(TaskInvalid, match="128 kB"):
        task(commands=["x" * (128 * 1024)])


@given(
    st.dictionaries(st.from_regex(r"[A-Z_]{1,8}", fullmatch=True), st.text(min_size=30).filter(lambda s: "\0" not in s))
)
def test_what_is_shown_has_the_names_of_secrets_and_no_value(env: dict[str, str]) -> None:
    """Whatever form `env` is given in."""
    for given_as in (env, [f"{name}={value}" for name, value in env.items()]):
        made = task(env=given_as)
        assert made.environment.items() >= env.items()
        assert made.configuration["env"] == dict.fromkeys(env)


@given(
    st.dictionaries(
        st.sampled_from(
            ["type", "commands", "env", "nodes", "entrypoint", "shell", "working_dir", "max_duration", "image"]
        ),
        st.none()
        | st.booleans()
        | st.integers()
        | st.text()
        | st.lists(st.text() | st.integers())
        | st.dictionaries(st.text(), st.integers()),
    )
)
def test_no_configuration_raises_anything_else(configuration: dict[str, object]) -> None:
    """A broken task is refused in one line, never with a traceback."""
    refusal = ""
    try:
        local_task(configuration, base=BASE, inherited={})
    except TaskInvalid as error:
        refusal = str(error)
    assert "\n" not in refusal
