"""A problem as a file or a folder: the same problem, and one plain line for whatever is wrong with it."""

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from steno.cli.wiring.files import problem_text
from steno.engine.kernel.definition import definition_hash, shipped
from steno.engine.kernel.submission import read_definition
from steno.events.errors import UnreadableInput

ADD = Path(__file__).parents[2] / "engine/kernel/problems/vector-add"
JSON = (ADD / "problem.json").read_bytes()
REFERENCE = (ADD / "reference.txt").read_bytes()
FILES = {"problem.json": JSON, "reference.py": REFERENCE, "description.md": b"Sums.\n"}


def folder(path: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def wrong(path: Path) -> str:
    """The error about it."""
    with pytest.raises(UnreadableInput) as caught:
        problem_text(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_folder_is_the_same_problem(tmp_path: Path) -> None:
    """As it is shipped, with the description of its own file."""
    definition = read_definition(
        problem_text(folder(tmp_path, FILES | {"notes.txt": b"?", "deeper/problem.json": b"?"})), "mine"
    )
    assert definition_hash(definition) == definition_hash(shipped()["vector-add"])
    assert definition.description == "Sums.\n"


def test_a_json_file_is_read_as_it_is(tmp_path: Path) -> None:
    """Whatever its name."""
    path = tmp_path / "mine"
    path.write_text('{"any": "thing"}')
    assert problem_text(path) == '{"any": "thing"}'


def test_the_reference_stands_in_a_file_or_in_the_json(tmp_path: Path) -> None:
    """The file comes first; without both it is said what to add."""
    shipped_one = json.loads(JSON) | {"reference": {"problem": "vector-add"}}
    both = FILES | {"problem.json": json.dumps(shipped_one).encode()}
    assert "python" in json.loads(problem_text(folder(tmp_path / "both", both)))["reference"]
    only = {"problem.json": both["problem.json"]}
    assert json.loads(problem_text(folder(tmp_path / "only", only)))["reference"] == {"problem": "vector-add"}
    assert "has no reference: add reference.py" in wrong(folder(tmp_path / "none", {"problem.json": JSON}))


@pytest.mark.parametrize(
    ("files", "line"),
    [
        ({"reference.py": REFERENCE}, "has no problem.json"),
        ({"other/a/problem.json": JSON}, "has no problem.json"),
        (FILES | {"problem.json": b"[]"}, "problem.json is not a JSON object"),
        (FILES | {"problem.json": b"{"}, "problem.json is not a JSON object"),
        (FILES | {"problem.json": b"[" * 100_000}, "problem.json is not a JSON object"),
        (FILES | {"reference.py": b"caf\xe9"}, "reference.py is not UTF-8: byte 3 is 0xe9"),
        (FILES | {"reference.py": b" \n"}, "reference.py is empty"),
        (FILES | {"reference.py": b"#" * 65_537}, "reference.py has more than 65536 bytes"),
        (FILES | {"description.md": b"#" * 65_537}, "description.md has more than 65536 bytes"),
        (FILES | {"problem.json": b" " * (1 << 20) + b"{}"}, "problem.json has more than 1048576 bytes"),
    ],
)
def test_what_is_wrong_is_one_line_that_names_the_file(tmp_path: Path, files: Mapping[str, bytes], line: str) -> None:
    path = folder(tmp_path / "mine", files)
    assert line in wrong(path)
    assert str(path) in wrong(path)


def test_a_folder_with_a_link_is_refused(tmp_path: Path) -> None:
    """A folder from elsewhere could name a file of the reader's; a pipe would never end."""
    (tmp_path / "secret").write_text("x")
    for name, make in (
        ("link", lambda path: path.symlink_to(tmp_path / "secret")),
        ("dangling", lambda path: path.symlink_to(tmp_path / "nowhere")),
        ("pipe", os.mkfifo),
        ("folder", Path.mkdir),
    ):
        path = folder(tmp_path / name, {"problem.json": JSON})
        make(path / "reference.py")
        assert "reference.py is not a regular file" in wrong(path)


def test_a_device_or_pipe_is_no_problem(tmp_path: Path) -> None:
    """It would never end."""
    os.mkfifo(tmp_path / "pipe")
    assert "pipe is not a regular file" in wrong(tmp_path / "pipe")
