"""Runs pytest with these arguments, and what little fails once more, alone: `python tests/run_tests.py ARGS…`.

A test on genuine servers can fail by the load of the machine alone (docs/adr/0023). Up to three failed tests are run
again, one after the other, with nothing beside them. If all of them pass, they are listed as UNSTABLE and the run
passes; a second failure, or more than three first ones, fails it. Nothing else is forgiven: no error of collection, no
crash of pytest, no run without tests.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 3
"""Failed tests that are run again; more are no accident."""
FAILED = 1
"""pytest's exit code where tests ran and some failed."""

_SPREAD = frozenset({"-n", "--numprocesses", "--dist", "--maxprocesses"})
"""Options, each with a value, that spread tests over processes."""


def main(arguments: list[str]) -> int:
    """The exit code of the run: pytest's, or 0 where what failed passed when it was run again."""
    with tempfile.TemporaryDirectory(prefix="steno-tests-") as cache:
        code = _pytest([*arguments, "-o", f"cache_dir={cache}"])
        if code != FAILED:
            return code
        failed = failed_tests(Path(cache))
    if not 0 < len(failed) <= MOST:
        print(f"\n{len(failed)} tests failed; up to {MOST} would have been run again", flush=True)
        return code
    print(f"\nrunning again, alone: {', '.join(failed)}", flush=True)
    again = _pytest([*unspread(arguments), "-p", "no:cacheprovider", *failed])
    if again != 0:
        print("\nfailed twice, or not to be run again: the run fails", flush=True)
        return again
    print("\nUNSTABLE: failed once and passed alone, the run passes; find out why", flush=True)
    for test in failed:
        print(f"UNSTABLE {test}", flush=True)
    return 0


def failed_tests(cache: Path) -> list[str]:
    """The ids of the tests that failed, in order; xdist adds `@<group>` to those that have one."""
    file = cache / "v" / "cache" / "lastfailed"
    if not file.exists():
        return []
    return sorted(ungrouped(test) for test in json.loads(file.read_text()))


def ungrouped(test: str) -> str:
    """The test's own id: what follows its last `@` is a group, unless it is part of a parameter."""
    name, at, group = test.rpartition("@")
    return name if at and "]" not in group else test


def unspread(arguments: list[str]) -> list[str]:
    """The same arguments for one process."""
    kept: list[str] = []
    words = iter(arguments)
    for word in words:
        if word in _SPREAD:
            next(words, None)
        elif word.split("=")[0] not in _SPREAD:
            kept.append(word)
    return kept


def _pytest(arguments: list[str]) -> int:
    # The program beside this Python, not `-m pytest`, which would put the current folder on the path of imports.
    return subprocess.run([str(Path(sys.executable).with_name("pytest")), *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
