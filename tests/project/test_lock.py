"""The locks fit pyproject.toml, carry hashes and name no host; checked without the network (docs/adr/0006)."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
RUNTIME = ROOT / "requirements.lock"
DEV = ROOT / "requirements-dev.lock"
LOCKS = [RUNTIME, DEV, ROOT / "requirements-setup.lock", *sorted((ROOT / "tests" / "lab").glob("*.lock"))]

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", re.MULTILINE)


def pins(path):
    """{name: version} of a lock; a name pinned twice under two markers keeps both versions."""
    pinned = {}
    for name, version in _PIN.findall(path.read_text()):
        pinned.setdefault(canonicalize_name(name), set()).add(Version(version))
    return pinned


def requirements(*groups):
    """The runtime's, with the extra that `make setup` installs; with a group also all other extras, which it holds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wanted = list(project["project"]["dependencies"])
    for extra, needed in project["project"]["optional-dependencies"].items():
        wanted += needed if groups or extra == "dstack" else []
    for group in groups:
        wanted += project["dependency-groups"][group]
    return [Requirement(text) for text in wanted]


@pytest.mark.parametrize(("lock", "groups"), [(RUNTIME, ()), (DEV, ("dev",))], ids=["runtime", "dev"])
def test_every_requirement_is_pinned_to_a_version_it_allows(lock, groups):
    """Each requirement of pyproject.toml is in the lock, at a version its specifier allows."""
    pinned = pins(lock)
    for requirement in requirements(*groups):
        if requirement.marker and not requirement.marker.evaluate(default_environment()):
            continue
        versions = pinned.get(canonicalize_name(requirement.name))
        assert versions, f"{requirement} is not in {lock.name}: run `make lock`"
        assert all(version in requirement.specifier for version in versions), f"{requirement}: run `make lock`"


def test_the_two_locks_agree():
    """A package that is in both is pinned to the same version in both."""
    runtime, dev = pins(RUNTIME), pins(DEV)
    assert {name: dev.get(name) for name in runtime} == runtime


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: path.name)
def test_a_lock_has_hashes_and_no_address(lock):
    """Each pin is followed by at least one hash; no line names a host."""
    text = lock.read_text()
    assert "://" not in text
    entries = re.split(r"^(?=[A-Za-z0-9._-]+==)", text, flags=re.MULTILINE)[1:]
    assert entries
    assert all("--hash=sha256:" in entry for entry in entries)


def test_dstack_is_pinned_in_the_requirements_themselves():
    """The validating package is exactly the version whose models we name in the documents."""
    assert "dstack==0.22.5" in {str(requirement) for requirement in requirements()}


def test_the_tool_that_sets_up_is_the_one_of_the_lock():
    """`make setup` and the development environment use one version of uv."""
    assert pins(ROOT / "requirements-setup.lock")["uv"] == pins(DEV)["uv"]


@pytest.mark.slow
def test_tests_of_one_group_stay_in_one_process(pytester, monkeypatch):
    """The lab relies on it: xdist keeps a group together, with the versions of the lock."""
    pytester.makepyfile(
        """
        import os, pytest

        @pytest.mark.parametrize("number", range(8))
        @pytest.mark.xdist_group("one")
        def test_who(number):
            print(f"worker={os.environ['PYTEST_XDIST_WORKER']}")
        """
    )
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # three processes import Hypothesis otherwise
    result = pytester.runpytest_subprocess("-p", "xdist", "-n2", "--dist=loadgroup", "-rP", "-p", "no:cacheprovider")
    workers = {line for line in result.outlines if line.startswith("worker=")}
    assert result.ret == 0
    assert len(workers) == 1


def test_the_set_up_uses_the_systems_python_and_says_what_it_does(tmp_path):
    """README puts .venv/bin on the PATH, and the Python of a virtual environment by uv has no pip."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "requirements-setup.lock").touch()
    for folder, script in ((".venv/bin", "exit 1"), ("system", "mkdir -p .tools/bin")):
        python = tmp_path / folder / "python3"
        python.parent.mkdir(parents=True)
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
    path = f"{tmp_path}/.venv/bin:{tmp_path}/system:{os.environ['PATH']}"
    done = subprocess.run(
        ["make", ".tools/bin/uv"], cwd=tmp_path, env={"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Installing uv" in done.stdout
