"""A folder of sealed files: on this machine, or anywhere else that pyarrow's file systems reach (`s3://bucket/folder`)."""

import os
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from events.errors import RecordDamaged, RecordNotWritable, RecordUnreachable, StenoError

UNREADABLE: Final = (  # what pyarrow raises at a file that was changed
    ArithmeticError, LookupError, MemoryError, NotImplementedError, OSError, TypeError, ValueError,
)  # fmt: skip
_REMOTE: Final = "AWS Error"  # how pyarrow begins what a server of buckets refuses


def arrow(module: str = "pyarrow") -> Any:
    """pyarrow or a part of it, imported when it is needed: it takes a tenth of a second."""
    from importlib import import_module

    try:
        return import_module(module)
    except ImportError as error:
        raise RecordUnreachable("Sealed ranges need pyarrow: `pip install 'steno[questions]'`.") from error


class SealedFolder:
    """One folder. `home` is where a relative path begins."""

    def __init__(self, url: str, home: Path | None = None) -> None:
        self.url = url
        self._system: Any = None
        self._folder = ""
        self._path: Path | None = None
        if "://" in url and not url.startswith("file://"):
            fs = arrow("pyarrow.fs")
            given = urlsplit(url)
            if given.password is not None or "secret_key=" in given.query:
                raise StenoError("A key in the URL would be kept in the record: set AWS_ACCESS_KEY_ID and its secret.")
            try:
                self._system, self._folder = fs.FileSystem.from_uri(_in_one_request(given))
            except (OSError, ValueError) as error:
                raise StenoError(f"{url} is not a folder for sealed files ({_first_line(error)}).") from error
        else:
            path = Path(url.removeprefix("file://")).expanduser()
            self._path = path if path.is_absolute() or home is None else home / path

    def name(self, file: str) -> str:
        """A file's whole name, for messages."""
        return str(self._path / file) if self._path is not None else f"{self.url.partition('?')[0]}/{file}"

    def size(self, file: str) -> int | None:
        """The bytes of a file; None: there is none. Raises OSError."""
        try:
            if self._path is not None:
                return (self._path / file).stat().st_size
            found = self._system.get_file_info(self._key(file))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return int(found.size) if found.is_file else None

    def open(self, file: str) -> Any:
        """The file, to be read anywhere in it: a NativeFile of pyarrow. Raises OSError."""
        if self._path is not None:
            return arrow().OSFile(str(self._path / file))
        return self._system.open_input_file(self._key(file))

    def read(self, file: str) -> bytes:
        """All bytes of a file. Raises OSError."""
        with self.open(file) as opened:
            return bytes(opened.read())

    def write(self, file: str, content: bytes) -> None:
        """Make a file or replace it, whole, and wait for the disk. Raises RecordNotWritable."""
        try:
            if self._path is not None:
                _write(self._path / file, content)
            else:
                self._system.create_dir(str(PurePosixPath(self._key(file)).parent), recursive=True)
                with self._system.open_output_stream(self._key(file)) as opened:
                    opened.write(content)
        except OSError as error:
            why = error.strerror or _first_line(error)
            raise RecordNotWritable(f"The sealed file {self.name(file)} cannot be written ({why}).") from error

    def failed(self, file: str, positions: str, error: BaseException) -> StenoError:
        """What an error of reading a file means."""
        what, why = f"The sealed file {self.name(file)} ({positions})", _first_line(error)
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return RecordDamaged(f"{what} is missing: restore it from a copy.")
        if isinstance(error, PermissionError) or _REMOTE in str(error):
            return RecordUnreachable(f"{what} cannot be reached: {why}.")
        return RecordDamaged(f"{what} is damaged ({why}): restore it from a copy.")

    def _key(self, file: str) -> str:
        return f"{self._folder}/{file}"


def _in_one_request(given: SplitResult) -> str:
    """The URL; files below pyarrow's 10 MB are put into a bucket by one request instead of three."""
    if given.scheme != "s3":
        return given.geturl()
    return given._replace(query=f"{given.query}&allow_delayed_open=true".lstrip("&")).geturl()


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".part")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    draft.replace(path)
    for folder in (path.parent, path.parent.parent):
        opened_folder = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened_folder)
        finally:
            os.close(opened_folder)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".")
