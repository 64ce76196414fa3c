"""A problem as a file, a folder or an archive: the same problem, and one plain line for whatever is wrong with it."""

from __future__ import annotations

import gzip
import io
import json
import os
import stat
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.kernel.definition import definition_hash, shipped
from engine.kernel.problem_files import problem_text
from engine.kernel.submission import read_definition
from events.errors import UnreadableInput

ADD = Path(__file__).parents[2] / "engine/kernel/problems/vector-add"
JSON = (ADD / "problem.json").read_bytes()
REFERENCE = (ADD / "reference.txt").read_bytes()
FILES = {"problem.json": JSON, "reference.py": REFERENCE, "description.md": b"Sums.\n"}

Pack = Callable[[Path, Mapping[str, bytes]], Path]


def folder(path: Path, files: Mapping[str, bytes]) -> Path:
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def zipped(path: Path, files: Mapping[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def tarred(path: Path, files: Mapping[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return path


def plainly_tarred(path: Path, files: Mapping[str, bytes]) -> Path:
    return tarred(path, files, "w")


FORMS = [folder, zipped, tarred, plainly_tarred]


def wrong(path: Path) -> str:
    """What is said of it."""
    with pytest.raises(UnreadableInput) as caught:
        problem_text(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("pack", "top"),
    [
        (pack, top)
        for pack in FORMS
        for top in ("", "./", "mine/", "./mine/")
        if pack is not folder or "mine" not in top
    ],
)
def test_every_form_is_the_same_problem(tmp_path: Path, pack: Pack, top: str) -> None:
    """As it is shipped, with the description of its own file; an archive may have it in a folder, as of `zip -r`."""
    more = {f"{top}notes.txt": b"?", f"{top}deeper/problem.json": b"?"}
    path = pack(tmp_path / "mine.packed", {top + name: data for name, data in FILES.items()} | more)
    found = read_definition(problem_text(path), "mine")
    assert definition_hash(found) == definition_hash(shipped()["vector-add"])
    assert found.description == "Sums.\n"


def test_a_json_file_is_read_as_it_is(tmp_path: Path) -> None:
    """Whatever its name."""
    path = tmp_path / "mine"
    path.write_text('{"any": "thing"}')
    assert problem_text(path) == '{"any": "thing"}'


@pytest.mark.parametrize("pack", FORMS)
def test_the_reference_stands_in_a_file_or_in_the_json(tmp_path: Path, pack: Pack) -> None:
    """The file comes first; without both it is said what to add."""
    shipped_one = json.loads(JSON) | {"reference": {"problem": "vector-add"}}
    both = FILES | {"problem.json": json.dumps(shipped_one).encode()}
    assert "python" in json.loads(problem_text(pack(tmp_path / "both", both)))["reference"]
    only = {"problem.json": both["problem.json"]}
    assert json.loads(problem_text(pack(tmp_path / "only", only)))["reference"] == {"problem": "vector-add"}
    assert "has no reference: add reference.py" in wrong(pack(tmp_path / "none", {"problem.json": JSON}))


@pytest.mark.parametrize("pack", FORMS)
@pytest.mark.parametrize(
    ("files", "said"),
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
def test_what_is_wrong_is_one_line_that_names_the_file(
    tmp_path: Path, pack: Pack, files: Mapping[str, bytes], said: str
) -> None:
    """The same for each form."""
    path = pack(tmp_path / "mine", files)
    assert said in wrong(path)
    assert str(path) in wrong(path)


@pytest.mark.parametrize("name", ["../problem.json", "/problem.json", "a/../problem.json", "..\\problem.json"])
@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_path_out_of_the_archive_is_no_problem(tmp_path: Path, pack: Pack, name: str) -> None:
    """It is passed over: names are exact. Nothing is written anywhere."""
    inside = tmp_path / "inside"
    inside.mkdir()
    path = pack(inside / "mine.packed", {name: JSON, name.replace("problem.json", "reference.py"): REFERENCE})
    assert "has no problem.json" in wrong(path)
    assert list(tmp_path.rglob("*.*")) == [path]


def test_two_problems_are_not_guessed_between(tmp_path: Path) -> None:
    """In two folders, or twice under one name, of which tools see different ones."""
    assert "more than one folder" in wrong(zipped(tmp_path / "a.zip", {"a/problem.json": JSON, "b/problem.json": JSON}))
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("problem.json", JSON)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("problem.json", b"{}")
    assert "has problem.json twice" in wrong(tmp_path / "b.zip")


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE, tarfile.CHRTYPE])
def test_only_regular_members_of_a_tar_file_are_read(tmp_path: Path, kind: bytes) -> None:
    """No link, to another member either, no device, no folder."""
    with tarfile.open(tmp_path / "mine.tar", "w") as archive:
        for name, data in {"problem.json": JSON, "other": REFERENCE}.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
        link = tarfile.TarInfo("reference.py")
        link.type, link.linkname = kind, "other"
        archive.addfile(link)
    assert "reference.py is not a regular file" in wrong(tmp_path / "mine.tar")


def test_a_sparse_member_is_not_read(tmp_path: Path) -> None:
    """It takes no room in the archive, and as much memory as it likes."""
    member = tarfile.TarInfo("problem.json")
    member.type = tarfile.GNUTYPE_SPARSE
    (tmp_path / "mine.tar").write_bytes(member.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    assert "problem.json is not a regular file" in wrong(tmp_path / "mine.tar")


@pytest.mark.parametrize("mode", [stat.S_IFLNK | 0o777, stat.S_IFIFO | 0o600, stat.S_IFDIR | 0o755])
def test_only_regular_members_of_a_zip_file_are_read(tmp_path: Path, mode: int) -> None:
    """A link is a member whose text is a path."""
    link = zipfile.ZipInfo("reference.py")
    link.external_attr = mode << 16
    with zipfile.ZipFile(tmp_path / "mine.zip", "w") as archive:
        archive.writestr("problem.json", JSON)
        archive.writestr(link, "/etc/passwd")
    assert "reference.py is not a regular file" in wrong(tmp_path / "mine.zip")


def test_a_folder_with_a_link_is_refused(tmp_path: Path) -> None:
    """What came from elsewhere could name a file of the reader's; a pipe would never end."""
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


@pytest.mark.parametrize(
    ("method", "said"),
    [(zipfile.ZIP_LZMA, "not packed with deflate"), (zipfile.ZIP_BZIP2, "not packed with deflate")],
)
def test_a_zip_file_is_unpacked_by_one_method(tmp_path: Path, method: int, said: str) -> None:
    """Others take as much memory as the archive says."""
    with zipfile.ZipFile(tmp_path / "mine.zip", "w", method) as archive:
        archive.writestr("problem.json", JSON)
    assert said in wrong(tmp_path / "mine.zip")


def test_a_bomb_is_read_no_further_than_the_bound(tmp_path: Path) -> None:
    """Zeros without end as a member of either kind of archive, and one that is a gzip file of nothing else."""
    zeros = bytes(1 << 27)
    zip_bomb = zipped(tmp_path / "bomb.zip", {"problem.json": zeros})
    assert zip_bomb.stat().st_size < 2 << 20
    assert "problem.json has more than 1048576 bytes" in wrong(zip_bomb)
    with gzip.open(tmp_path / "bomb.tgz", "wb", compresslevel=9) as packed:
        packed.write(zeros)
    assert (tmp_path / "bomb.tgz").stat().st_size < 2 << 20
    assert "more than 16777216 bytes unpacked" in wrong(tmp_path / "bomb.tgz")
    (tmp_path / "large.zip").write_bytes(b"PK\x03\x04" + bytes(4 << 20))
    assert "large.zip has more than 4194304 bytes" in wrong(tmp_path / "large.zip")


@pytest.mark.parametrize("suffix", [".zip", ".tar", ".tgz", ".tar.gz", ".ZIP"])
@pytest.mark.parametrize("data", [b"text", b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"\x1f\x8b\x08" + bytes(40)])
def test_what_is_no_archive_is_said(tmp_path: Path, suffix: str, data: bytes) -> None:
    """By its name or by its first bytes it should be one."""
    path = tmp_path / f"mine{suffix}"
    path.write_bytes(data)
    assert f"{path} is not a readable archive (.zip, .tar, .tar.gz): " in wrong(path)


def test_a_device_or_pipe_is_no_problem(tmp_path: Path) -> None:
    """It would never end."""
    os.mkfifo(tmp_path / "pipe")
    assert "pipe is not a regular file" in wrong(tmp_path / "pipe")


@pytest.mark.parametrize("pack", [zipped, tarred, plainly_tarred])
def test_a_damaged_archive_is_refused_or_read_but_never_fails(
    tmp_path_factory: pytest.TempPathFactory, pack: Pack
) -> None:
    """Whatever is cut off, or written over a part of it."""
    path = tmp_path_factory.mktemp("damaged") / "mine.packed"
    whole = pack(path, FILES).read_bytes()

    @given(st.integers(0, len(whole)), st.binary(max_size=8), st.integers(0, len(whole)))
    def law(place: int, other: bytes, end: int) -> None:
        path.write_bytes((whole[:place] + other + whole[place + len(other) :])[:end])
        try:
            problem_text(path)
        except UnreadableInput as error:
            assert "\n" not in str(error)  # noqa: PT017 - it may also be read

    law()
