"""The budget guards a job as it guards any run: by its time limit and the site's rates."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.decide.budget import check, committed, worst_case
from steno.engine.errors import RefusedByPolicy
from steno.engine.providers.registry import load_settings
from steno.engine.providers.slurm.reading import SlurmReading
from steno.engine.settings.settings import policy_from
from steno.engine.state.inventory import Inventory
from steno.engine.state.policy import HOUR, Policy
from steno.engine.state.run import Run
from steno.engine.state.states import State
from steno.engine.state.world import World

TASK = b'{"commands": ["true"], "nodes": 2, "max_duration": "3h", "resources": {"gpu": "a6000:4"}, "race": "r"}'


def policy(tmp_path: Path, **variables: str) -> Policy:
    """The policy of the settings with these variables."""
    environ = {"STENO_PROVIDER": "slurm", **variables}
    settings = load_settings(flags={}, environ=environ, cwd=tmp_path, home=tmp_path, config=tmp_path, data=tmp_path)
    return policy_from(settings, "slurm")


def test_a_job_at_worst_lasts_its_time_limit_on_all_its_gpus(tmp_path: Path) -> None:
    """2 nodes of 4 GPUs at 100 units of a cent, and a CPU each, for 3 h; what it has never idles."""
    terms = SlurmReading().terms(TASK, "me")
    assert (terms.gpu, terms.gpu_count, terms.max_duration, terms.race) == (("a6000",), 8, 3 * HOUR, "r")
    assert terms.first_node_only, "nobody measures the second node"
    worst = worst_case(terms, policy(tmp_path, STENO_SLURM_RATES="a6000=100,cpu=1,usd=0.01"), World(rules="current"))
    assert (worst.price, worst.idle, worst.amount) == (8_020_000, 0, 24_060_000)


def test_a_job_that_may_cost_more_than_is_left_is_refused(tmp_path: Path) -> None:
    """Before it is submitted; without a table of rates nothing is known to cost anything."""
    terms = SlurmReading().terms(TASK, "me")
    with pytest.raises(RefusedByPolicy, match=r"\$24"):
        check(
            terms,
            policy(tmp_path, STENO_SLURM_RATES="a6000=100,usd=0.01", STENO_BUDGET="20"),
            World(rules="current"),
            now=0,
        )
    assert check(terms, policy(tmp_path, STENO_BUDGET="20"), World(rules="current"), now=0).amount is None


@given(text=st.binary() | st.sampled_from([b"[]", b'{"resources": 1}', b'{"resources": {"gpu": [1], "cpu": {}}}']))
def test_terms_of_anything_never_raise(text: bytes) -> None:
    """A task that cannot be read asks for nothing."""
    assert SlurmReading().terms(text, "me").gpu == ()


def test_an_array_costs_what_all_its_tasks_may_cost(tmp_path: Path) -> None:
    """5 tasks of an hour on one GPU; once two have their allocations, three are still to come."""
    task = b'{"commands": ["true"], "array": "1-9:2%2", "max_duration": "1h", "resources": {"gpu": "a6000:1"}}'
    terms, rates = SlurmReading().terms(task, "me"), policy(tmp_path, STENO_SLURM_RATES="a6000=100,usd=0.01")
    assert worst_case(terms, rates, World(rules="current")).amount == 5_000_000

    def run(run_id: str, **more: Any) -> Run:
        return Run(run_id=run_id, provider="slurm", first_position=1, first_at=0, last_position=1, last_at=0, **more)

    tasks = [run("first", state=State.SUCCEEDED), run("second", links={"0/0/0": "vm"})]
    array = run("array", terms=terms, requested_at=0, tasks=("first", "second"))
    state = World(rules="current", runs=Inventory({item.run_id: item for item in (array, *tasks)}, ["array"]))
    assert committed(state, rates, now=0) == 3_000_000
