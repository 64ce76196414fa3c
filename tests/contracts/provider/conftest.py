"""The providers that the contract runs against: this machine, genuine dstack servers, a genuine Slurm."""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from stenolab.sites import LOADED_S, DstackSite, LocalSite, SlurmSite

from steno.engine.providers import registry
from steno.testing import ProviderSite

EXAMPLE = Path(__file__).parents[3] / "examples" / "provider"


def install(folder: Path) -> Path:
    """The example package on a path, as an installer leaves it there."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    metadata = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir(parents=True)
    shutil.copy(EXAMPLE / "steno_example.py", folder)
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    points = project["entry-points"][registry.GROUP]
    lines = [f"[{registry.GROUP}]", *(f"{name} = {value}" for name, value in points.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def installed_example(tmp_path: Path) -> Path:
    return install(tmp_path / "site")


@pytest.fixture(
    params=[
        "local",
        pytest.param("dstack_22", id="dstack-0.22.5"),
        pytest.param("dstack_19", id="dstack-0.19.37", marks=pytest.mark.ci),
        pytest.param("slurm_cluster", id="slurm"),
        pytest.param("slurm_unaccounted", id="slurm-without-accounting", marks=pytest.mark.ci),
    ]
)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProviderSite]:
    """Each provider in turn, with a folder and a record of its own."""
    with ExitStack() as stack:
        if request.param == "local":
            made: ProviderSite = LocalSite(tmp_path)
        elif request.param.startswith("slurm"):
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            made = SlurmSite(tmp_path, request.getfixturevalue(request.param), patch)
        else:
            made = DstackSite(tmp_path, request.getfixturevalue(request.param))
        stack.callback(made.close)
        yield made


@pytest.fixture
def with_example(installed_example: Path, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """`with_example(word, …)`: the genuine command with the example package installed, in a home of its own."""
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(installed_example),
        "HOME": str(home),
        "STENO_RECORD": str(home / "record.db"),
        "STENO_PROVIDER": "example",
        "NO_COLOR": "1",
    }
    (home / "steno.toml").write_text("[example]\nprice = 3.60\n")

    def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(Path(sys.executable).with_name("steno")), *words],
            cwd=home,
            env=environment | variables,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
            timeout=LOADED_S,
        )

    return run
