"""The files beside a record, and its own place, as somebody could leave them: readers tell the truth or refuse."""

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from cli.program import steno
from cli.wiring.app import App
from cli.wiring.errors import code_of

TRACE = Path(__file__).parent.parent / "traces" / "dstack-0.22.5" / "failure.jsonl.zst"


def call(home: Path, *words: str) -> Any:
    """A command, in this process."""
    surroundings = {"HOME": str(home), "STENO_RECORD": str(home / "record.db"), "NO_COLOR": "1", "STENO_PROVIDER": ""}
    return CliRunner(env=surroundings).invoke(steno, list(words), obj=App())


def flipped(file: Path) -> None:
    """One byte of every page is another, the schema's among them."""
    content = bytearray(file.read_bytes())
    for place in range(2000, len(content), 4096):
        content[place] ^= 0xFF
    file.write_bytes(content)


def replaced(make: Callable[[Path], object]) -> Callable[[Path], None]:
    """Something else stands where the file was."""

    def change(file: Path) -> None:
        file.unlink()
        make(file)

    return change


def dropped(file: Path) -> None:
    """A table is missing."""
    with sqlite3.connect(file) as database:
        database.execute("DROP TABLE runs")
    database.close()


CHANGES: dict[str, Callable[[Path], object]] = {
    "garbage": lambda file: file.write_bytes(b"x" * 5000),
    "empty": lambda file: file.write_bytes(b""),
    "cut": lambda file: os.truncate(file, 20_000),
    "a byte of every page flipped": flipped,
    "a table dropped": dropped,
    "a folder": replaced(Path.mkdir),
    "a link to a file of another": replaced(lambda file: file.symlink_to(file.parent / "victim")),
    "a link to itself": replaced(lambda file: file.symlink_to(file)),
    "a device": replaced(lambda file: file.symlink_to("/dev/zero")),
}


@pytest.mark.parametrize("through", ["the file", "the link"])
@pytest.mark.parametrize("change", CHANGES)
def test_damaged_read_models_are_built_again(tmp_path: Path, change: str, through: str) -> None:
    """What cannot be read is not believed: the answer is the record's, and no file of anybody else is touched."""
    (tmp_path / "victim").write_bytes(b"not ours")
    assert call(tmp_path, "import", str(TRACE)).exit_code == 0
    truth = call(tmp_path, "ps", "--all", "--json").stdout
    assert '"failed"' in truth
    link = tmp_path / "record.db.projections"
    if through == "the file":
        CHANGES[change](link.resolve())
    elif change.startswith("a link") or change in ("a folder", "a device"):
        CHANGES[change](link)
    else:
        link.unlink()
        link.write_bytes(b"x")
    found = call(tmp_path, "ps", "--all", "--json")
    assert (found.exit_code, found.stdout) == (0, truth), found.exception
    assert (tmp_path / "victim").read_bytes() == b"not ours"


@pytest.mark.parametrize("kind", ["a pipe", "a device", "a folder"])
@pytest.mark.parametrize("words", [("ps",), ("verify",), ("import", str(TRACE))])
def test_what_is_no_file_is_no_record(tmp_path: Path, kind: str, words: tuple[str, ...]) -> None:
    """A pipe was waited for."""
    record = tmp_path / "record.db"
    if kind == "a pipe":
        os.mkfifo(record)
    elif kind == "a device":
        record.symlink_to("/dev/zero")
    else:
        record.mkdir()
    done = call(tmp_path, *words)
    assert code_of(done.exception) in (5, 7, 8), done.exception
