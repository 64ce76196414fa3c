"""The file beside a record that its tokens are in: 0600, hashes only, replaced whole under a lock."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from events.errors import RecordNotWritable

if TYPE_CHECKING:
    from collections.abc import Iterator


SECRET: Final = re.compile(r"(steno_[0-9a-f]{12}_)[A-Za-z0-9_-]+")
"""A token in any text; what to leave of it is group 1."""


class Stored(msgspec.Struct, kw_only=True):
    """One token, as the file has it; times in microseconds, UTC."""

    id: str
    name: str
    role: Literal["read", "submit", "admin"]
    hash: str | None
    """Hex SHA-256 of the token's text; None once it is revoked."""
    by: str
    """Who made it."""
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None


class Content(msgspec.Struct, kw_only=True):
    """All of the file."""

    version: Literal[1] = 1
    key: bytes = b""
    """What session cookies are sealed with; empty until somebody logs in."""
    tokens: list[Stored] = msgspec.field(default_factory=list)
    ended: dict[str, int] = msgspec.field(default_factory=dict)
    """Sessions that were closed: the cookie's own number, and until when it would have held."""


def tokens_path(record: Path) -> Path:
    """Where the tokens of a record are."""
    return record.with_name(record.name + ".tokens")


class TokenFile:
    """The tokens at `path`; where there is no such file there are none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def stamp(self) -> object:
        """Changes whenever the file does; None: it is not there."""
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            return error.errno
        return found.st_ino, found.st_mtime_ns, found.st_size

    def read(self) -> Content:
        """What is in it.

        Raises:
            OSError: it cannot be read.
            ValueError: it is not what Steno writes.
        """
        try:
            content = msgspec.json.decode(self.path.read_bytes(), type=Content)
        except FileNotFoundError:
            return Content()
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from None
        if any(token.hash is not None and len(bytes.fromhex(token.hash)) != 32 for token in content.tokens):
            raise ValueError("a hash is cut")
        return content

    def content(self) -> Content:
        """What is in it, as `read`, for whoever prints it.

        Raises:
            RecordNotWritable: it cannot be read.
        """
        try:
            return self.read()
        except ValueError as error:
            raise _damaged(self.path, error) from None
        except OSError as error:
            raise RecordNotWritable(f"{self.path} cannot be read ({(error.strerror or str(error)).lower()})") from None

    @contextmanager
    def changing(self) -> Iterator[Content]:
        """The content, written back whole afterwards: a reader sees the old file or the new one.

        Raises:
            RecordNotWritable: it cannot be read or written.
        """
        try:
            with _locked(self.path.with_name(self.path.name + ".lock")):
                content = self.content()
                yield content
                _replace(self.path, msgspec.json.encode(content))
        except OSError as error:
            said = f"{self.path} cannot be written ({(error.strerror or str(error)).lower()})"
            raise RecordNotWritable(said) from None

    def ensure_key(self) -> None:
        """Make the key that sessions are sealed with, if there is none yet."""
        if not self.read().key:
            with self.changing() as content:
                content.key = content.key or secrets.token_bytes(32)

    def fresh(self) -> str:
        """A session's own number."""
        return secrets.token_hex(16)

    def end_session(self, nonce: str, until: int, now: int) -> None:
        """Remember that a session ended, as long as its cookie would have held."""
        with self.changing() as content:
            content.ended = {one: held for one, held in content.ended.items() if held > now} | {nonce: until}


def without_secrets(text: str) -> str:
    """Text for a log or an answer, tokens in it cut to their ids."""
    return SECRET.sub(r"\1…", text) if "steno_" in text else text


def _damaged(path: Path, error: ValueError) -> RecordNotWritable:
    return RecordNotWritable(f"{path} is damaged ({error}): move it away, and make the tokens anew")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)  # 0600 from its first byte on
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
