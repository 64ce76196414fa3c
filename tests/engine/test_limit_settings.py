"""Limits by owner in `steno.toml`: what they mean, and one line for what they cannot be."""

from pathlib import Path

import pytest

from steno.engine.errors import NotConfigured
from steno.engine.providers.registry import load_settings
from steno.engine.settings.settings import policy_from
from steno.engine.state.policy import OwnerLimit, Policy


def policy(folder: Path, toml: str, provider: str = "dstack") -> Policy:
    (folder / "steno.toml").write_text(toml)
    nowhere = folder / "nobody"
    return policy_from(
        load_settings(flags={}, environ={}, cwd=folder, home=nowhere, config=nowhere, data=nowhere), provider
    )


def test_limits_are_read_by_owner(tmp_path: Path) -> None:
    """Names may have dots and signs, a GPU is read as `model_of` does, and `off` lifts a limit."""
    toml = (
        '[limits.user.alice]\nbudget = "$500"\ndaily = 20\nruns = 2\nmachines = "off"\n[limits.user."a.b"]\nruns = 0\n'
        '[limits.gpu."amd:mi300x"]\ngpu_hours = 1.5\n[limits.label."team=vision"]\nmachines = 4\n'
    )
    assert policy(tmp_path, toml).limits == (
        OwnerLimit(owner="gpu/MI300X", gpu_hours=1_500_000),
        OwnerLimit(owner="label/team=vision", machines=4),
        OwnerLimit(owner="user/a.b", runs=0),
        OwnerLimit(owner="user/alice", budget=500_000_000, daily=20_000_000, runs=2),
    )
    assert policy(tmp_path, toml, "kernels").limits == ()


@pytest.mark.parametrize(
    ("toml", "line"),
    [
        ("[limits.user.a]\nruns = -1", "limits.user.a.runs is '-1' ({file}); it must be a whole number, 0 or more, or"),
        ("[limits.user.a]\ndaily = -5", "limits.user.a.daily is '-5' ({file}); it must be dollars, 0 or more, or off"),
        ("[limits.user.a]\ngpu_hours = 'x'", "limits.user.a.gpu_hours is 'x' ({file}); it must be GPU-hours, 0 or"),
        (
            "[limits.user.a]\nrnus = 1",
            "{file} has an unknown setting limits.user.a.rnus; limits are",
        ),
        ("[limits.usr.a]\nruns = 1", "{file} has an unknown setting limits.usr.a.runs; limits are [limits.user.NAME]"),
        ('[limits.gpu."a:8"]\nruns = 1', "{file} has an unknown setting limits.gpu.a:8.runs; limits are"),
        ("[limits.gpu.a]\nruns = 1\n[limits.gpu.A]\nruns = 2", "{file} has limits.gpu.A.runs twice; GPU models are"),
    ],
)
def test_what_is_no_limit_is_named_with_its_file(tmp_path: Path, toml: str, line: str) -> None:
    with pytest.raises(NotConfigured) as refused:
        policy(tmp_path, toml)
    assert str(refused.value).startswith(line.format(file=tmp_path / "steno.toml"))
