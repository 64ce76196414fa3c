"""Steno built and installed as users have it, with the locked versions of what it requires."""

import os
import re
import subprocess
import zipfile
from pathlib import Path

import pytest
from stenolab.environment import find_uv

ROOT = Path(__file__).parents[3]


def uv(*words: object, **variables: str) -> None:
    """As `uv` with the locked versions, from its cache where that has them."""
    with_packages([find_uv(), *words], **variables)


def with_packages(command: list[object], **variables: str) -> None:
    """Run a command that uses uv; without the network if uv's cache has all that it needs."""
    for offline in ("1", "0"):
        locked = os.environ | {"UV_CONSTRAINT": str(ROOT / "requirements-dev.lock"), "UV_NO_PROGRESS": "1"}
        environment = locked | {"UV_OFFLINE": offline} | variables
        done = subprocess.run(
            [*map(str, command)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return
    if re.search("Failed to fetch|error sending request|Could not connect", done.stderr):
        pytest.skip("packages cannot be downloaded here, and uv's cache lacks them: `make .venv/.dev` fills it")
    pytest.fail(done.stderr)


@pytest.hookimpl(tryfirst=True)  # before xdist groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Gives what installs a wheel to one process: it builds one, and the modules of an environment compile once."""
    for item in items:
        if "dist" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("packages"))


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `make dist` fills."""
    folder = tmp_path_factory.mktemp("dist")
    with_packages(["make", "dist", f"DIST={folder}"])
    return folder


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    (path,) = dist.glob("*.whl")
    return path


def stub(folder: Path, name: str, version: str, module: str) -> Path:
    """A wheel of that name and version, with one module that says where it is from."""
    path = folder / f"{name}-{version}-py3-none-any.whl"
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{module}/__init__.py", f"ORIGIN = {name!r}\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr(f"{info}/RECORD", "")
    return path
