"""The tests near a change: `python -m stenotest.near [PYTEST OPTION …]` runs them (`make near`).

Tests mirror the rooms of the product, so the folder of a changed file names the folder of its tests. The contracts and
the tests of the architecture always run; what is slow or needs a server does not.
"""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[3]
ALWAYS = ("tests/contracts", "tests/project/test_architecture.py", "tests/project/test_size.py")
ELSEWHERE = {
    "engine/state": "tests/engine/fold",
    "migrations": "tests/events",
    "projections/client": "tests/api",
    "projections/dashboard": "tests/api",
}
"""Rooms whose tests are in a folder of another name."""
PROJECT = ("tests/project",)
"""Documents, settings of tools, benchmarks and what tests share."""


def changed(root: Path) -> list[str]:
    """The files that differ from where this branch left `main`, with untracked files; on `main` itself from HEAD."""
    base = _git(root, "merge-base", "HEAD", "main") or ["HEAD"]
    return _git(root, "diff", "--name-only", base[0]) + _git(root, "ls-files", "--others", "--exclude-standard")


def selection(files: Iterable[str], root: Path) -> list[str]:
    """The folders and files of tests to run for these changed files, without those inside another one of them."""
    wanted = {*ALWAYS, *(name for file in files for name in _near(PurePosixPath(file), root))}
    return sorted(name for name in wanted if not {str(parent) for parent in PurePosixPath(name).parents} & wanted)


def _near(file: PurePosixPath, root: Path) -> tuple[str, ...]:
    head = file.parts[0]
    if head == "tests" and file.parts[1] not in ("support", "traces"):
        if file.name.startswith("test_"):
            return (str(file),) if (root / file).exists() else ()
        return (str(file.parent),) if (root / file.parent).is_dir() else ()
    if not (root / "tests" / head).is_dir() and head not in ELSEWHERE:
        return PROJECT
    for folder in (file.parent, *file.parent.parents[:-1]):
        parts = folder.parts
        for name in (ELSEWHERE.get(str(folder)), "/".join(("tests", *parts)), "/".join(("tests", *parts[1:]))):
            if name is not None and name != "tests" and (root / name).is_dir():
                return (name,)
    return PROJECT


def _git(root: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["git", "-c", "core.quotePath=off", *words], cwd=root, capture_output=True, text=True, check=False
    )
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def main() -> None:
    """Leaves with the exit code of pytest."""
    tests = selection(changed(ROOT), ROOT)
    print("near:", *tests, flush=True)
    command = [sys.executable, "-m", "pytest", "-q", "-r", "fE", "-m", "not slow and not lab and not ci and not long"]
    done = subprocess.run(
        [*command, *sys.argv[1:], *tests], cwd=ROOT, env=os.environ | {"STENO_TEST_SERVERS": "0"}, check=False
    )
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
