"""A problem as its files: one JSON file, or a folder or an archive with `problem.json`, `reference.py` and
`description.md`.

An archive comes from anybody: nothing is unpacked to the disk. Regular members are read by their exact name, each with
a bound.
"""

import gzip
import io
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from events.errors import UnreadableInput

T = TypeVar("T")
MEMBERS: Final = {"problem.json": 1 << 20, "reference.py": 1 << 16, "description.md": 1 << 16}
"""The most bytes of each; a definition bounds the characters."""
_LARGEST: Final = 4 << 20  # bytes of an archive
_UNPACKED: Final = 16 << 20  # bytes of a tar file that is compressed
_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")
_GZIP: Final = b"\x1f\x8b"
_USTAR: Final = slice(257, 262)
_SUFFIXES: Final = (".zip", ".tar", ".tgz", ".tar.gz")
_METHODS: Final = frozenset({zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED})  # others may take any amount of memory
_BROKEN: Final = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, RuntimeError, ValueError)


def problem_text(path: Path) -> str:
    """The problem at a path, as the JSON text of `problem_def`.

    Raises:
        UnreadableInput: it is none of these, a file of it is missing, too large, or not text.
    """
    if path.is_dir():
        return _merged(_from_folder(path), path)
    data = read_bytes(path, _LARGEST)
    is_archive = data.startswith((*_ZIP, _GZIP)) or data[_USTAR] == b"ustar" or path.name.lower().endswith(_SUFFIXES)
    if not is_archive:
        return text_of(data, str(path), MEMBERS["problem.json"])
    if len(data) > _LARGEST:
        raise UnreadableInput(f"{path} has more than {_LARGEST} bytes, the most that are taken")
    try:
        return _merged((_from_zip if data.startswith(_ZIP) else _from_tar)(data, path), path)
    except _BROKEN as error:
        raise UnreadableInput(f"{path} is not a readable archive (.zip, .tar, .tar.gz): {error}") from None


def read_bytes(path: Path, most: int) -> bytes:
    """Up to one byte more than `most` of a regular file. Raises UnreadableInput if it is not one."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise UnreadableInput(f"{path} is not a regular file")
    with path.open("rb") as file:
        return file.read(most + 1)


def text_of(data: bytes, where: str, most: int) -> str:
    """The text in a file. Raises UnreadableInput if it has more than `most` bytes, none, or is not UTF-8."""
    if len(data) > most:
        raise UnreadableInput(f"{where} has more than {most} bytes, the most that are taken")
    if not data.strip():
        raise UnreadableInput(f"{where} is empty")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UnreadableInput(f"{where} is not UTF-8: byte {error.start} is {data[error.start]:#04x}") from None


def merged_problem(files: Mapping[str, str], where: str) -> dict[str, object]:
    """The values of `problem.json` with the reference and the description that stand in files of their own.

    Raises:
        UnreadableInput: there is no `problem.json`, it is not a JSON object, or there is no reference.
    """
    if "problem.json" not in files:
        raise UnreadableInput(f"{where} has no problem.json, or a file of that name in more than one folder")
    try:
        found = msgspec.json.decode(files["problem.json"], type=dict[str, object])
    except (msgspec.MsgspecError, RecursionError) as error:
        raise UnreadableInput(f"{where}: problem.json is not a JSON object: {error}") from None
    if "reference.py" in files:
        found["reference"] = {"python": files["reference.py"]}
    if "description.md" in files:
        found["description"] = files["description.md"]
    if "reference" not in found:
        raise UnreadableInput(f"{where} has no reference: add reference.py, or the key `reference` to problem.json")
    return found


def _merged(files: Mapping[str, bytes], path: Path) -> str:
    texts = {name: text_of(data, f"{path}: {name}", MEMBERS[name]) for name, data in files.items()}
    return msgspec.json.encode(merged_problem(texts, str(path))).decode()


def _from_folder(folder: Path) -> dict[str, bytes]:
    """A link is refused: a folder that came from elsewhere could have one to a file of yours."""
    found: dict[str, bytes] = {}
    for name, most in MEMBERS.items():
        path = folder / name
        if path.is_symlink() or path.exists():
            _expect_regular(stat.S_ISREG(path.lstat().st_mode), folder, name)
            found[name] = read_bytes(path, most)
    return found


def _from_zip(data: bytes, path: Path) -> dict[str, bytes]:
    def read(member: zipfile.ZipInfo, name: str, most: int) -> bytes:
        kind = stat.S_IFMT(member.external_attr >> 16)  # 0: not written by a Unix
        _expect_regular(kind in (0, stat.S_IFREG) and not member.is_dir(), path, name)
        if member.flag_bits & 1 or member.compress_type not in _METHODS:
            raise UnreadableInput(f"{path}: {name} is encrypted, or not packed with deflate")
        with archive.open(member) as file:
            return file.read(most + 1)

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return _read(((one.filename, one) for one in archive.infolist()), read, path)


def _from_tar(data: bytes, path: Path) -> dict[str, bytes]:
    if data.startswith(_GZIP):
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            data = packed.read(_UNPACKED + 1)
        if len(data) > _UNPACKED:
            raise UnreadableInput(f"{path} has more than {_UNPACKED} bytes unpacked, the most that are taken")

    def read(member: tarfile.TarInfo, name: str, most: int) -> bytes:
        file = None
        if member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and not member.issparse():
            file = archive.extractfile(member)
        _expect_regular(file is not None, path, name)
        assert file is not None  # noqa: S101 - it is regular
        return file.read(most + 1)

    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        return _read(((one.name, one) for one in archive), read, path)


def _read(members: Iterable[tuple[str, T]], read: Callable[[T, str, int], bytes], path: Path) -> dict[str, bytes]:
    """The members at the archive's top, or else in its only folder that has a `problem.json`."""
    folders: dict[str, dict[str, T]] = {}
    for given, member in members:
        folder, _, name = given.removeprefix("./").rpartition("/")
        if name not in MEMBERS or "/" in folder or folder in {".", ".."} or given.startswith("/"):
            continue
        if name in folders.setdefault(folder, {}):
            raise UnreadableInput(f"{path} has {given} twice")
        folders[folder][name] = member
    tops = [folder for folder, found in folders.items() if "problem.json" in found]
    top = "" if "" in tops or len(tops) != 1 else tops[0]
    return {name: read(member, name, MEMBERS[name]) for name, member in folders.get(top, {}).items()}


def _expect_regular(is_regular: bool, where: Path, name: str) -> None:
    if not is_regular:
        raise UnreadableInput(f"{where}: {name} is not a regular file")
