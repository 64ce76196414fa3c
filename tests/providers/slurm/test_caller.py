"""`SBATCH_*` of a user's shell fill the fields that a task leaves open, and no others."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.errors import TaskInvalid
from steno.engine.providers.slurm.settings import Site
from steno.engine.providers.slurm.shell import Shell
from steno.engine.providers.slurm.spec import in_folder, with_variables

NAMES = ("ACCOUNT", "PARTITION", "QOS", "CONSTRAINT", "TIMELIMIT", "ARRAY_INX", "GRES", "GPUS", "MEM_PER_NODE", "WAIT")


@pytest.mark.parametrize(
    ("variable", "text", "field"),
    [
        ("TIMELIMIT", "90", {"max_duration": "90m"}),
        ("TIMELIMIT", "1-12", {"max_duration": "2160m"}),
        ("TIMELIMIT", "02:30:00", {"max_duration": "150m"}),
        ("TIMELIMIT", "UNLIMITED", {"max_duration": "off"}),
        ("ARRAY_INX", "0-9%2", {"array": "0-9%2"}),
        ("GRES", "gpu:a6000:2", {"resources": {"gpu": "a6000:2"}}),
        ("GRES", "gpu", {"resources": {"gpu": "1"}}),
        ("GPUS_PER_NODE", "4", {"resources": {"gpu": "4"}}),
        ("GPUS", "h200:2", {"resources": {"gpu": "h200:2"}}),
        ("MEM_PER_NODE", "500", {"resources": {"memory": "500M"}}),
        ("MEM_PER_NODE", "32G", {"resources": {"memory": "32G"}}),
    ],
)
def test_a_variable_sets_its_field_as_sbatch_reads_it(variable: str, text: str, field: dict[str, Any]) -> None:
    """A bare number is minutes, megabytes, GPUs of any type."""
    filled, line = with_variables({}, {f"SBATCH_{variable}": text})
    assert filled == field
    assert (line or "").endswith(f"from SBATCH_{variable}")


def test_what_no_field_has_is_named_once() -> None:
    """GPUs of several nodes, other resources, options of sbatch that Steno sets itself or does not have."""
    environ = {"SBATCH_GRES": "nvme:1", "SBATCH_GPUS": "8", "SBATCH_OUTPUT": "x", "SBATCH_QOS": "", "SLURM_CONF": "/x"}
    task = {"nodes": 2}
    assert with_variables(task, environ) == (task, "ignored: SBATCH_GPUS, SBATCH_GRES, SBATCH_OUTPUT")


def test_a_time_limit_that_is_none_names_its_variable() -> None:
    with pytest.raises(TaskInvalid, match="SBATCH_TIMELIMIT: 'soon' is not a time"):
        with_variables({}, {"SBATCH_TIMELIMIT": "soon"})


@given(
    st.dictionaries(st.sampled_from([f"SBATCH_{name}" for name in NAMES]), st.sampled_from(["1", "7", " ", "gpu:2"])),
    st.fixed_dictionaries(
        {},
        optional={
            "account": st.just("mine"), "array": st.just("1-3"), "max_duration": st.just("5m"),
            "checkpoint": st.just("9m"), "resources": st.sampled_from([{"gpu": "a40:1"}, {"memory": "1G"}, {}]),
        },
    ),
)  # fmt: skip
def test_what_a_task_says_stays(environ: dict[str, str], task: dict[str, Any]) -> None:
    """For every set of variables and of fields; and doing it twice adds nothing."""
    environ = {name: text for name, text in environ.items() if "TIMELIMIT" not in name or text != "gpu:2"}
    filled, _ = with_variables(task, environ)
    assert {name: filled[name] for name in task if name != "resources"}.items() <= task.items()
    assert dict(task.get("resources") or {}).items() <= dict(filled.get("resources") or {}).items()
    assert with_variables(filled, environ)[0] == filled


def test_a_login_node_that_does_not_answer_leaves_the_folder_open() -> None:
    """The submission itself says what is wrong; the request goes in."""
    client = Shell(Site(cluster="c", host="nobody@host.invalid", folder="~/steno", timeout=5))
    task, line = in_folder({"working_dir": "sub"}, client, "/home/me/x")
    client.close()
    assert task == {"working_dir": "sub"}
    assert (line or "").startswith(
        "nobody@host.invalid does not say whether it has /home/me/x: the job runs in ~/steno/sub; "
    )
