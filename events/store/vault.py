"""The vault: the key secrets are committed with, and the secrets of intents not yet carried out. A 0600 file beside the
record.

It is the one place that can forget: what is erased is gone from the file, while its commitment stays in the record for
ever.
"""

import fcntl
import hashlib
import hmac
import os
import re
import secrets as random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from events.errors import RecordDamaged, RecordNotWritable, SecretGone
from events.secrets import COMMITMENT, PREFIX, scrub, secret_bytes
from events.shape.shape import BodyShape, Node, compile_paths

_WHOLE: Final = re.compile(rb'"steno:secret:[0-9a-f]{64}"')


class _Content(msgspec.Struct, kw_only=True):
    key: str
    secrets: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    """By owner, then by commitment: the JSON token of the value."""


class Vault:
    """The vault at `path`; nothing is read or written before it is needed."""

    def __init__(self, path: Path, *, write: bool = True) -> None:
        self.path = path
        self._write = write
        self._key: bytes | None = None

    def commitment(self, value: bytes) -> str:
        """`steno:secret:<hmac>` of a secret value; equal secrets give equal commitments, none can be read from it."""
        return PREFIX + hmac.digest(self._the_key(), value, hashlib.sha256).hex()

    def replacement(self, token: bytes) -> bytes:
        """The JSON string that stands for a secret's JSON token."""
        return b'"%s"' % self.commitment(secret_bytes(token)).encode()

    def commit(self, text: bytes, paths: tuple[str, ...] = ()) -> bytes:
        """JSON text with its secrets (the defaults, and all below `paths`) replaced; the values are not kept."""
        return scrub(text, self.replacement, _node(paths))

    def conceal(self, text: bytes, owner: str, paths: tuple[str, ...] = ()) -> bytes:
        """Like `commit`, and the values stay in the vault under `owner` until erased: `reveal` gives the text back."""
        kept: dict[str, str] = {}

        def replace(token: bytes) -> bytes:
            new = self.replacement(token)
            kept[new[1:-1].decode()] = token.decode("utf-8", "surrogateescape")
            return new

        concealed = scrub(text, replace, _node(paths))
        if kept:
            with self._changing() as content:
                content.secrets.setdefault(owner, {}).update(kept)
        return concealed

    def reveal(self, text: bytes) -> bytes:
        """JSON text with its commitments replaced by the values again.

        Raises:
            SecretGone: a value was erased, or was never in this vault.
        """
        if not COMMITMENT.search(text):
            return text
        known = {name: token for kept in self._read().secrets.values() for name, token in kept.items()}

        def value(name: bytes) -> bytes:
            token = known.get(name.decode())
            if token is None:
                raise SecretGone("A secret of this request is no longer in the vault: submit it again.")
            return token.encode("utf-8", "surrogateescape")

        whole = _WHOLE.sub(lambda found: value(found.group()[1:-1]), text)
        return COMMITMENT.sub(lambda found: value(found.group()).strip(b'"'), whole)

    def erase(self, owner: str) -> None:
        """Forget every value kept for `owner`; the file no longer holds them."""
        if self.path.exists() and owner in self._read().secrets:
            with self._changing() as content:
                content.secrets.pop(owner, None)

    def owners(self) -> tuple[str, ...]:
        """Whose values are still here."""
        return tuple(self._read().secrets)

    def _the_key(self) -> bytes:
        if self._key is None:
            if self.path.exists():
                self._key = bytes.fromhex(self._read().key)
            else:
                with self._changing() as content:
                    self._key = bytes.fromhex(content.key)
        return self._key

    def _read(self) -> _Content:
        try:
            content = msgspec.json.decode(self.path.read_bytes(), type=_Content)
            if len(bytes.fromhex(content.key)) != 32:
                raise ValueError("the key is cut")
        except FileNotFoundError:
            return _Content(key=random.token_hex(32))
        except (msgspec.MsgspecError, ValueError) as error:
            raise RecordDamaged(f"The vault {self.path} is damaged ({error}): restore it from a copy.") from error
        except OSError as error:
            raise RecordNotWritable(f"The vault {self.path} cannot be read ({error.strerror}).") from error
        return content

    @contextmanager
    def _changing(self) -> Iterator[_Content]:
        """The content, written back whole: other processes see the old file or the new one."""
        if not self._write:
            raise RecordNotWritable(f"The vault {self.path} is opened for reading only.")
        try:
            with _locked(self.path.with_name(self.path.name + ".lock")):
                content = self._read()
                yield content
                _replace(self.path, msgspec.json.encode(content))
        except OSError as error:
            raise RecordNotWritable(f"The vault {self.path} cannot be written ({error.strerror}).") from error


def _node(paths: tuple[str, ...]) -> Node:
    return compile_paths(BodyShape(kind="other", listed=False, secret=paths))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _replace(path: Path, content: bytes) -> None:
    descriptor, name = tempfile.mkstemp(prefix=path.name, dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
