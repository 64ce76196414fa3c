"""The import packages are ours, and what is committed says nothing it should not."""

import importlib
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["events", "engine", "projections", "cli", "benchmarks"])
def test_the_package_is_ours(name):
    """`events` also exists on the package index: an environment that has it would break in odd ways."""
    assert Path(importlib.import_module(name).__file__).parent == ROOT / name


def test_the_tests_are_no_package():
    """gpuhunt, which dstack needs, owns the import name `tests`."""
    assert not (ROOT / "tests" / "__init__.py").exists()


def committed():
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    return [ROOT / name for name in listed.decode().split("\0") if name]


def test_no_committed_text_names_this_machine_or_a_package_index():
    """A clone says nothing of where it was made."""
    words = [
        "/work" + "/",
        "/root" + "/",
        "py" + "pi.org",
        "files.python" + "hosted",
        "registry.npm" + "js",
        "deb." + "debian.org",
    ]
    forbidden = re.compile("|".join(map(re.escape, words)).encode())
    found = [
        str(path.relative_to(ROOT))
        for path in committed()
        if path.is_file() and path.suffix not in {".zst", ".lock", ".png"} and forbidden.search(path.read_bytes())
    ]
    assert found == []


def test_python_files_stay_readable():
    """A file of more than 400 lines has a second noun in it."""
    long = {
        str(path.relative_to(ROOT)): lines
        for path in committed()
        if path.suffix == ".py" and path.exists() and (lines := path.read_bytes().count(b"\n")) > 400
    }
    assert long == {}
