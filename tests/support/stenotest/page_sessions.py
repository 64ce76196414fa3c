"""Where the commands of each document are typed: `page_sessions.toml`, and what is typed otherwise anywhere."""

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stenotest.kernels import BRIEF, asked

_FILE = Path(__file__).with_suffix(".toml")
_COMPUTED = {"brief.json": json.dumps(BRIEF), "request.json": json.dumps(asked(problem_def=BRIEF))}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sitting:
    """A reader of a page. Of several, the first whose `of` is in a command types it."""

    of: str = ""
    server: str = "nothing"
    """`dstack_22` or `slurm_cluster`, which each test process has once."""
    needs: tuple[str, ...] = ()
    """Further contexts: fixtures, which know what a reader puts for words of the page."""
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str | Path] = field(default_factory=dict)
    """In the reader's folder: their text, or the file of the project that they are a copy of."""
    before: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The commands typed just before the command that begins so."""
    words: Mapping[str, str] = field(default_factory=dict)
    """The reader's text in place of a word of the page. After a "/" a pattern: its last match in all output so far."""
    moments: tuple[str, ...] = ()
    """Commands that begin so show a moment that does not come again: little of it is compared."""


def _sitting(row: dict[str, Any]) -> Sitting:
    copies = {name: Path(path) for name, path in row.pop("copies", {}).items()}
    files = row.pop("files", {}) | copies | {name: _COMPUTED[name] for name in row.pop("computed", ())}
    before = {command: tuple(typed) for command, typed in row.pop("before", {}).items()}
    lists = {key: tuple(row.pop(key, ())) for key in ("needs", "moments")}
    return Sitting(**row, **lists, files=files, before=before)


SITTINGS: Mapping[str, tuple[Sitting, ...]] = {
    page: tuple(map(_sitting, rows)) for page, rows in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()
}
"""The pages that need more than a clone and an empty home."""

INSTEAD: Mapping[str, tuple[str, str]] = {
    r"make (?=(near|check|test|test-long|bench|bench-docs|dist)\b)": (
        "make --dry-run ",
        "it is these tests, measures for an hour, or test_dist makes it",
    ),
    r"make (?=setup EXTRAS)": ("make --dry-run ", "test_extras installs each extra"),
    r"\.ci/run": ("bash -n .ci/run", "it is these tests"),
    "steno bench": ("steno bench --quick", "it measures for minutes"),
    "STENO_PICTURES=.*pytest": (r"\g<0> --collect-only -q", "it is these tests"),
    r"pip install dist/": ("", "test_dist installs it"),
    "pip install 'steno-gpu": ("", "test_extras installs each extra of a wheel"),
    r"pip install .dstack": ("", "the lab has that server"),
    "dstack server": ("", "the lab has that server"),
}
"""The text typed in place of the beginning of a command, and why; "": nothing is typed."""

EXITS: Mapping[str, int] = {
    r"steno replay .*--diff": 1,  # there are differences
    r"steno submit .*exit 137": 1,  # it failed, as it should
    "python3 benchmarks/gpu_judge": 6,  # there is no GPU
}
"""The exit codes of commands that do not exit 0, as their help says."""
