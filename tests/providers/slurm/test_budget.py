"""The budget guards a job as it guards any run: by its time limit and the site's rates."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.decide.budget import check, worst_case
from engine.errors import RefusedByPolicy
from engine.fold.world_codec import WorldState
from engine.policy import HOUR, Policy
from engine.providers.registry import load_settings
from engine.providers.slurm.reading import SlurmReading
from engine.settings.policy import policy_from

TASK = b'{"commands": ["true"], "nodes": 2, "max_duration": "3h", "resources": {"gpu": "a6000:4"}, "race": "r"}'


def policy(tmp_path: Path, **variables: str) -> Policy:
    """What the settings make of these variables."""
    environ = {"STENO_PROVIDER": "slurm", **variables}
    settings = load_settings(flags={}, environ=environ, cwd=tmp_path, home=tmp_path, config=tmp_path, data=tmp_path)
    return policy_from(settings, "slurm")


def test_a_job_at_worst_lasts_its_time_limit_on_all_its_gpus(tmp_path: Path) -> None:
    """2 nodes of 4 GPUs at 100 units of a cent, and a CPU each, for 3 h; what it has never idles."""
    terms = SlurmReading().terms(TASK, "me")
    assert (terms.gpu, terms.gpu_count, terms.max_duration, terms.race) == (("a6000",), 8, 3 * HOUR, "r")
    found = worst_case(
        terms, policy(tmp_path, STENO_SLURM_RATES="a6000=100,cpu=1,usd=0.01"), WorldState(rules="current")
    )
    assert (found.price, found.idle, found.amount) == (8_020_000, 0, 24_060_000)


def test_a_job_that_may_cost_more_than_is_left_is_refused(tmp_path: Path) -> None:
    """Before it is submitted; without a table of rates nothing is known to cost anything."""
    terms = SlurmReading().terms(TASK, "me")
    with pytest.raises(RefusedByPolicy, match=r"\$24"):
        check(
            terms,
            policy(tmp_path, STENO_SLURM_RATES="a6000=100,usd=0.01", STENO_BUDGET="20"),
            WorldState(rules="current"),
            now=0,
        )
    assert check(terms, policy(tmp_path, STENO_BUDGET="20"), WorldState(rules="current"), now=0).amount is None


@given(text=st.binary() | st.sampled_from([b"[]", b'{"resources": 1}', b'{"resources": {"gpu": [1], "cpu": {}}}']))
def test_terms_of_anything_never_raise(text: bytes) -> None:
    """A task that cannot be read asks for nothing."""
    assert SlurmReading().terms(text, "me").gpu == ()
