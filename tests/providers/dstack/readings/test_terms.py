"""The requirements of a task, in every way that dstack lets them be written."""

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from steno.engine.providers.dstack.requirements import idle_of, read_terms
from steno.engine.providers.dstack.task import normal_task
from steno.engine.state.policy import OFF
from steno.engine.state.run import Range, Requirements
from steno.events.clock import SECOND

LEAST: dict[str, Any] = {"cpus": Range(2), "memory": Range(8), "disk": Range(100), "gpu_counts": Range(0)}
"""dstack's defaults."""


def read(**task: Any) -> Requirements:
    """Without the digest of the task, see `test_tasks_that_are_planned_alike_are_asked_about_once`."""
    return replace(read_terms(json.dumps({"type": "task", **task}).encode(), "me"), plan="")


def test_a_task_that_says_nothing_asks_for_nothing() -> None:
    """A single node, any machine of dstack's usual least size, reused or created."""
    assert read() == Requirements(submitter="me", **LEAST)


def test_a_task_reads_as_its_terms() -> None:
    """Every part that decides where and how long."""
    terms = read_terms(
        json.dumps(
            {
                "nodes": 2,
                "backends": ["amddevcloud"],
                "fleets": ["mine", {"project": "other", "name": "theirs"}, {"name": "third"}],
                "spot_policy": "auto",
                "creation_policy": "reuse",
                "idle_duration": "5m",
                "max_duration": "2h",
                "max_price": 2.5,
                "resources": {"gpu": "MI300X:2", "memory": "64GB.."},
            }
        ).encode(),
        "me",
        ("MI210",),
    )
    assert replace(terms, plan="") == Requirements(
        submitter="me",
        gpu=("MI300X",),
        gpu_count=2,
        nodes=2,
        backends=("amddevcloud",),
        fleets=("mine", "other/theirs", "third"),
        spot="auto",
        creation="reuse",
        idle=300 * SECOND,
        max_duration=7200 * SECOND,
        max_price=2_500_000,
        fallback=("MI210",),
        **{**LEAST, "gpu_counts": Range(2, 2), "memory": Range(64)},
    )


@pytest.mark.parametrize(
    ("value", "retry", "repeats"),
    [
        (True, True, True),
        ({}, True, True),
        ({"on_events": ["error"], "duration": "1h"}, True, True),
        ({"on_events": ["no-capacity", "interruption"]}, True, True),
        ({"on_events": ["no-capacity"], "duration": "1h"}, True, False),
        (False, False, False),
        (None, False, False),
    ],
)
def test_a_task_that_dstack_tries_again_says_so(value: object, retry: bool, repeats: bool) -> None:
    """After it ran too: dstack then restarts its duration, with 48 attempts within 6 minutes of `duration: 60s`."""
    terms = read(retry=value)
    assert (terms.retry, terms.repeats) == (retry, repeats)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5m", 300),
        ("90s", 90),
        ("2 h", 7200),
        ("1d", 86_400),
        ("1w", 604_800),
        (300, 300),
        ("300", 300),
        (0, 0),
        ("0", 0),
        ("0s", 0),
        ("0m", 0),
        (True, None),
        (None, None),
        ("soon", None),
        ("5 minutes", None),
        ("-5m", None),
        ([], None),
        (1.5, 1),
    ],
    ids=repr,
)
def test_an_idle_duration_is_read_as_dstack_reads_it(value: Any, seconds: int | None) -> None:
    """0 is 0 and not "unset"."""
    assert idle_of(value) == (None if seconds is None else seconds * SECOND)
    assert read(idle_duration=value).idle == (None if seconds is None else seconds * SECOND)


@pytest.mark.parametrize("value", ["off", False, -1, "-1", -7], ids=repr)
def test_off_and_below_zero_mean_for_ever(value: Any) -> None:
    """dstack reads negative durations so, for what is stored from older times."""
    assert idle_of(value) == OFF


@pytest.mark.parametrize(
    ("value", "seconds"), [("off", None), (False, None), (None, None), (-5, None), ("30m", 1800), (60, 60), (0, 0)]
)
def test_a_run_may_last_for_ever(value: Any, seconds: int | None) -> None:
    """`max_duration: off`."""
    assert read(max_duration=value).max_duration == (None if seconds is None else seconds * SECOND)


@pytest.mark.parametrize(
    ("spec", "models", "count"),
    [
        ("MI300X", ("MI300X",), 1),
        ("MI300X:2", ("MI300X",), 2),
        ("amd:MI300X:2", ("MI300X",), 2),
        ("MI300X,MI210:1..4", ("MI300X", "MI210"), 1),
        ("A100:80GB:4", ("A100",), 4),
        ("A100:40GB..80GB", ("A100",), 1),
        ("MI300X:..2", ("MI300X",), 0),
        ("24GB", (), 1),
        ("2", (), 2),
        (2, (), 2),
        (0, (), 0),
        ({"name": ["MI300X"], "count": {"min": 1}}, ("MI300X",), 1),
        ({"name": "MI300X", "count": 8}, ("MI300X",), 8),
        ({"name": "MI300X", "count": "2..8"}, ("MI300X",), 2),
        ({"name": ["MI300X"], "count": {"max": 2}}, ("MI300X",), 0),
        ({"memory": "24GB"}, (), 1),
        ({"name": ["MI300X"], "count": {"min": 0}}, ("MI300X",), 0),
        (None, (), 0),
        (True, (), 0),
        ("", (), 0),
        ([], (), 0),
    ],
    ids=repr,
)
def test_gpus_are_read_as_dstack_reads_them(spec: Any, models: tuple[str, ...], count: int) -> None:
    """Short forms, ranges, objects."""
    terms = read(resources={"gpu": spec})
    assert (terms.gpu, terms.gpu_count) == (models, count)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
KEYS = (
    "nodes backends fleets spot_policy creation_policy idle_duration max_duration max_price resources".split()  # noqa: SIM905
)


@given(st.dictionaries(st.sampled_from(KEYS), JSON), JSON)
def test_odd_values_never_raise(task: dict[str, Any], gpu: Any) -> None:
    """Law: what cannot be read counts as not said; every number can be written down."""
    terms = read(**{**task, **({"resources": {"gpu": gpu}} if "resources" not in task else {})})
    assert terms.nodes >= 1
    assert 0 <= terms.gpu_count <= 10**9
    assert terms.idle is None or -1 <= terms.idle < 2**62
    assert terms.max_duration is None or 0 <= terms.max_duration < 2**62


@given(st.binary(max_size=40))
def test_what_is_no_task_asks_for_nothing(text: bytes) -> None:
    """Nor does it raise."""
    assert read_terms(text, "me").submitter == "me"


def test_tasks_that_are_planned_alike_are_asked_about_once() -> None:
    """Their commands and names differ; what they ask of a machine does not."""

    def plan(**task: Any) -> str:
        return read_terms(json.dumps(task).encode(), "me").plan

    assert plan(name="a", commands=["true"], max_price=1) == plan(name="b", max_price=1, env={"A": "1"}, retry=True)
    others = [plan(max_price=1), plan(max_price=2), plan(regions=["x"]), plan(nodes=2), plan(unknown_yet=1)]
    assert len(set(others)) == len(others)


def _of(*values: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(values)


def _ranges(value: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value alone, open on a side, from the first to the second, or as `min` and `max`."""
    ordered = st.tuples(value, value).map(lambda pair: sorted(pair, key=_number))
    return st.one_of(
        value,
        value.map(lambda bound: f"{bound}.."),
        value.map(lambda bound: f"..{bound}"),
        ordered.map(lambda pair: f"{pair[0]}..{pair[1]}"),
        value.map(lambda bound: {"min": bound}),
        ordered.map(lambda pair: {"min": pair[0], "max": pair[1]}),
    )


def _number(value: Any) -> float:
    """A count, or the GB of a size."""
    text = str(value).replace(" ", "").lower()
    units = {"tb": 1024.0, "gb": 1.0, "mb": 1 / 1024}
    return float(text[:-2]) * units[text[-2:]] if text[-2:] in units else float(text)


COUNTS = st.integers(0, 16)
SIZES = st.builds("{}{}{}".format, st.integers(1, 999), _of("", " "), _of("GB", "gb", "MB", "TB"))
NAMES = st.lists(_of("MI300X", "mi210", "A100", "H100NVL", "RTX4090"), min_size=1, max_size=2, unique=True)
WORDS = st.tuples(
    st.lists(_of("amd", "NVIDIA", "google"), max_size=1),
    st.lists(NAMES.map(",".join), max_size=1),
    st.lists(_ranges(SIZES).filter(lambda text: isinstance(text, str)), max_size=1),
    st.lists(_ranges(COUNTS).map(str).filter(lambda text: "{" not in text), max_size=1),
)
GPUS = st.one_of(
    _ranges(COUNTS),
    WORDS.map(lambda words: [word for part in words for word in part])
    .filter(bool)
    .flatmap(st.permutations)
    .map(":".join),
    st.fixed_dictionaries(
        {},
        optional={
            "vendor": _of("amd", "nvidia"),
            "name": NAMES | NAMES.map(",".join),
            "count": _ranges(COUNTS),
            "memory": _ranges(SIZES),
            "total_memory": _ranges(SIZES),
        },
    ),
)
DURATIONS = st.one_of(
    st.integers(0, 10**6), st.builds("{}{}".format, st.integers(0, 999), _of(*"smhdw")), _of("off", False, -1)
)
TASKS = st.fixed_dictionaries(
    {},
    optional={
        "nodes": st.integers(1, 9),
        "backends": st.lists(_of("aws", "hotaisle", "vastai"), min_size=1, max_size=2),
        "regions": st.lists(_of("a", "b"), max_size=2),
        "instance_types": st.lists(_of("x", "y"), max_size=2),
        "fleets": st.lists(_of("mine", "theirs/other", {"name": "third"}, {"project": "p", "name": "n"}), max_size=3),
        "spot_policy": _of("spot", "on-demand", "auto"),
        "creation_policy": _of("create", "reuse", "reuse-or-create"),
        "retry": _of(True, False, {"on_events": ["error"]}, {"on_events": ["no-capacity"], "duration": "1h"}),
        "idle_duration": DURATIONS,
        "max_duration": DURATIONS,
        "max_price": st.floats(0.01, 999).flatmap(lambda price: _of(price, str(price), int(price) + 1)),
        "schedule": _of({"cron": "0 * * * *"}, {"cron": ["0 * * * *", "30 2 * * 1"]}),
        "resources": st.fixed_dictionaries(
            {},
            optional={
                "gpu": GPUS,
                "cpu": st.one_of(
                    _ranges(COUNTS),
                    st.builds("{}:{}".format, _of("x86", "arm"), _ranges(COUNTS)).filter(lambda text: "{" not in text),
                ),
                "memory": _ranges(SIZES),
                "disk": _ranges(SIZES) | _ranges(SIZES).map(lambda size: {"size": size}),
            },
        ),
    },
)


@given(TASKS)
def test_a_task_reads_as_by_dstacks_own_models(task: dict[str, Any]) -> None:
    """Law: what is written short means what dstack's models make of it."""
    try:
        written_out = normal_task({"type": "task", "commands": ["true"], "image": "i", **task})
    except ValueError:  # of the models: dstack would refuse it
        assume(False)
    assert read(**task) == replace(read_terms(json.dumps(written_out).encode(), "me"), plan="")
