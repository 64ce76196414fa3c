"""The import packages are ours, and what is committed says nothing it should not."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


PACKAGES = ("cli", "engine", "events", "projections")
EVERYTHING = """
import importlib, pkgutil, sys
import steno
for module in pkgutil.walk_packages(steno.__path__, "steno."):
    if not module.name.endswith("__main__") and "._examples" not in module.name:
        importlib.import_module(module.name)
print(*sys.modules)
"""


@pytest.mark.parametrize("name", PACKAGES)
def test_the_package_is_inside_steno(name: str) -> None:
    """A package of the index is called `Events`: only the name `steno` is taken."""
    assert Path(importlib.import_module(f"steno.{name}").__file__).resolve().parent == ROOT / name


def test_the_benchmarks_are_ours() -> None:
    assert Path(importlib.import_module("benchmarks").__file__).resolve().parent == ROOT / "benchmarks"


@pytest.mark.parametrize("name", PACKAGES)
def test_its_bare_name_is_refused_where_the_folder_is_on_the_path(name: str) -> None:
    """A second copy of every class would come of it."""
    done = subprocess.run(
        [sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert f"ImportError: Steno's packages are inside `steno`: import steno.{name}, not {name}" in done.stderr


def test_no_module_is_imported_under_its_bare_name() -> None:
    """Nor twice, in the checkout, where the folders are on the path: by a name in a string, for example."""
    done = subprocess.run([sys.executable, "-c", EVERYTHING], cwd=ROOT, capture_output=True, text=True, check=False)
    loaded = done.stdout.split()
    assert "steno.engine.fold.record_fold" in loaded, done.stderr
    assert not [name for name in loaded if name.partition(".")[0] in PACKAGES]
    assert not [name for name in sys.modules if name.partition(".")[0] in PACKAGES]


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
    telling = [
        str(path.relative_to(ROOT))
        for path in committed()
        if path.is_file() and path.suffix not in {".zst", ".lock", ".png"} and forbidden.search(path.read_bytes())
    ]
    assert telling == []


def test_the_public_names_are_there_and_none_is_imported_before_its_use() -> None:
    """`steno --version` would wait for them."""
    code = (
        "import sys, steno; before = set(sys.modules); "
        "print(*sorted(n for n in before if n.startswith('steno.'))); "
        "print(steno.Client.__name__, steno.AsyncClient.__name__, steno.frames.runs.__name__, "
        "steno.rules.RuleSet.__name__, steno.testing.ProviderContract.__name__); steno.nothing"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["", "StenoClient AsyncStenoClient runs RuleSet ProviderContract"]
    assert "AttributeError: module 'steno' has no attribute 'nothing'" in done.stderr
