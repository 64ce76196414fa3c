"""The configuration that dstack gets: the task's own words, and the decision about its machine."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.providers.base import Submission
from steno.engine.providers.dstack.task import complete_task, normal_task, wording
from steno.events.clock import SECOND

TASK: dict[str, object] = {
    "type": "task",
    "commands": ["true"],
    "image": "rocm/dev-ubuntu-24.04",
    "resources": {"gpu": "MI300X:192GB:2", "memory": "64GB.."},
}


def worded(configuration: dict[str, object] | None = None, **decided: Any) -> dict[str, object]:
    wanted = Submission(
        run_id="r", name="a-run", project="main", configuration={**TASK, **(configuration or {})}, **decided
    )
    return wording(wanted)


def test_a_task_nobody_decided_about_goes_as_it_is() -> None:
    """Only its name and its run id are added."""
    assert worded() == {**TASK, "name": "a-run", "tags": {"steno-run": "r"}}


def test_the_mark_stands_beside_the_tasks_own_tags_and_over_a_copied_one() -> None:
    """A configuration copied from an earlier run has that run's mark in it."""
    assert worded({"tags": {"team": "x", "steno-run": "earlier"}})["tags"] == {"team": "x", "steno-run": "r"}


@pytest.mark.parametrize("retry", [True, {}, {"on_events": ["interruption"]}])
def test_a_task_that_dstack_tries_again_never_says_reuse(retry: object) -> None:
    """A later try keeps the policy, and finds no machine once the first is gone; `retry: false` means none."""
    assert "creation_policy" not in worded({"creation_policy": "reuse", "retry": retry}, creation="reuse-or-create")
    kept = worded({"creation_policy": "reuse", "retry": False}, creation="reuse-or-create")
    assert kept["creation_policy"] == "reuse"


@pytest.mark.parametrize(
    ("own", "decided", "sent"),
    [
        (None, "reuse-or-create", None),
        (None, "reuse", "reuse"),
        ("reuse-or-create", "reuse-or-create", "reuse-or-create"),
        ("reuse-or-create", "reuse", "reuse"),
        ("reuse", "reuse", "reuse"),
        ("reuse", "reuse-or-create", "reuse"),
        ("create", "reuse-or-create", None),
        ("create", "reuse", "reuse"),
    ],
)
def test_a_machine_is_never_rented_that_nobody_asked_for(own: str | None, decided: str, sent: str | None) -> None:
    """`create` is our own word and never sent; `reuse`, said by the task or decided, always is."""
    configuration = {} if own is None else {"creation_policy": own}
    assert worded(configuration, creation=decided).get("creation_policy") == sent


@pytest.mark.parametrize(
    ("own", "decided", "sent"),
    [
        (None, None, None),
        (None, -1, "off"),
        (None, 0, "0s"),
        (None, 600 * SECOND, "600s"),
        (None, 1, "1s"),
        (None, 1_500_000, "2s"),
        ("0m", 600 * SECOND, "0m"),
        (0, 600 * SECOND, 0),
        ("off", -1, "off"),
        (-1, -1, -1),
        ("1h", 600 * SECOND, "600s"),
        (3600, 0, "0s"),
        ("1h", -1, "1h"),
    ],
)
def test_the_shorter_idle_time_is_sent(own: object, decided: int | None, sent: object) -> None:
    """The task's time or the decided time; the backstop if nothing records. Zero is not nothing."""
    configuration = {} if own is None else {"idle_duration": own}
    assert worded(configuration, idle=decided).get("idle_duration") == sent


def test_a_slot_is_the_only_place_it_may_go() -> None:
    """The run names the fleet; dstack then looks nowhere else."""
    assert worded(slot="steno-slot-3")["fleets"] == ["steno-slot-3"]


@pytest.mark.parametrize(
    ("first", "gpu", "names", "count", "memory"),
    [
        ("MI300X:192GB:2", "MI210", ["MI210"], 2, None),
        ("MI300X", "MI210", ["MI210"], 1, None),
        ({"name": "MI300X", "count": 4, "vendor": "amd"}, "H100", ["H100"], 4, None),
        ("MI300X:2", "MI210:64GB:8", ["MI210"], 8, 64.0),
        (None, "MI210", ["MI210"], 1, None),
    ],
)
def test_the_next_gpu_of_the_list_keeps_the_count(
    first: object, gpu: str, names: list[str], count: int, memory: float | None
) -> None:
    """Memory and maker came with the first GPU's name and go with it; everything else that was asked for stays."""
    resources: dict[str, object] = {"memory": "64GB.."} if first is None else {"memory": "64GB..", "gpu": first}
    normal: Any = normal_task(worded({"resources": resources}, gpu=gpu))["resources"]
    spec = normal["gpu"]
    assert (spec["name"], spec["count"]["min"], (spec["memory"] or {}).get("min")) == (names, count, memory)
    assert normal["memory"]["min"] == 64.0


@given(
    st.sampled_from([None, "create", "reuse", "reuse-or-create"]),
    st.sampled_from(["reuse", "reuse-or-create"]),
    st.none() | st.integers(-1, 10**12),
    st.none() | st.sampled_from(["MI210", "H100:80GB:8"]),
    st.none() | st.just("steno-slot-1"),
)
def test_whatever_was_decided_dstack_can_read_it(
    own: str | None, creation: str, idle: int | None, gpu: str | None, slot: str | None
) -> None:
    """dstack's own model takes every wording, and no secret or command of the task is lost in it."""
    configuration: dict[str, object] = {"env": {"TOKEN": "s"}} | ({} if own is None else {"creation_policy": own})
    sent = worded(configuration, creation=creation, idle=idle, gpu=gpu, slot=slot)
    normal = normal_task(sent)
    assert sent.get("creation_policy") != "create"
    assert (normal["env"], normal["commands"]) == ({"TOKEN": "s"}, ["true"])


def test_a_machine_of_its_own_is_a_valid_wish() -> None:
    """`creation_policy: create` is taken from a task file and kept; another unknown word is still refused."""
    task = complete_task({**TASK, "creation_policy": "create"}, {}, "f.yml")
    assert task["creation_policy"] == "create"
    assert normal_task(task)["creation_policy"] == "create"
