"""The vault: the key secrets are committed with, and the secrets of intents not yet carried out.

It is a blob beside the record, and can forget: an erased value is gone, while its commitment stays in the record.
"""

import hashlib
import hmac
import re
import secrets as random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from steno.events.errors import RecordDamaged, RecordNotWritable, SecretGone
from steno.events.shape.secrets import COMMITMENT, PREFIX, scrub, secret_bytes
from steno.events.shape.shape import BodyShape, Node, compile_paths
from steno.events.store.store import Blob

_OWNERS: Final = 10_000  # whose values are remembered
_WHOLE: Final = re.compile(rb'"(steno:secret:[0-9a-f]{64})"')


class _Content(msgspec.Struct, kw_only=True):
    key: str
    secrets: dict[str, dict[str, str]] = {}  # owner → commitment → JSON token


class Vault:
    """The vault in a blob; read and written only when needed."""

    def __init__(self, blob: Blob, *, write: bool = True) -> None:
        self._blob = blob
        self._write = write
        self._key: bytes | None = None
        self._seen: dict[str, dict[str, str]] = {}  # `_Content.secrets` as this process read it, with what was erased

    def commitment(self, value: bytes) -> str:
        """`steno:secret:<hmac>` of a secret value; equal secrets give equal commitments, which do not reveal them."""
        if self._key is None and self._blob.stamp() is None:
            with self._changing():
                pass  # the first write makes the key
        if self._key is None:
            self._key = bytes.fromhex(self._read().key)
        return PREFIX + hmac.digest(self._key, value, hashlib.sha256).hex()

    def replacement(self, token: bytes) -> bytes:
        """The JSON string that replaces a secret's JSON token."""
        return b'"%s"' % self.commitment(secret_bytes(token)).encode()

    def commit(self, text: bytes, paths: tuple[str, ...] = ()) -> bytes:
        """JSON text with its secrets (the defaults, and all below `paths`) replaced; the values are not kept."""
        return scrub(text, self.replacement, _node(paths))

    def conceal(self, text: bytes, owner: str, paths: tuple[str, ...] = ()) -> bytes:
        """As `commit`, and the values stay in the vault under `owner` until erased: `reveal` returns the text."""
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
        """JSON text with its commitments replaced by the values. Raises SecretGone if one is not in this vault."""
        if not COMMITMENT.search(text):
            return text
        known = {name: token for kept in self._read().secrets.values() for name, token in kept.items()}

        def value(match: re.Match[bytes]) -> bytes:
            token = known.get(match[match.lastindex or 0].decode())
            if token is None:
                raise SecretGone("A secret of this request is no longer in the vault: submit it again.")
            return token.encode("utf-8", "surrogateescape")

        return COMMITMENT.sub(lambda commitment: value(commitment).strip(b'"'), _WHOLE.sub(value, text))

    def erase(self, owner: str) -> None:
        if owner in self.owners():
            with self._changing() as content:
                content.secrets.pop(owner, None)

    def owners(self) -> tuple[str, ...]:
        """Whose values are still here."""
        return tuple(self._read().secrets)

    def values(self, owner: str) -> frozenset[bytes]:
        """The clear values of an owner that are here, or were when this process read the vault."""
        self._read()
        tokens = self._seen.get(owner, {}).values()
        return frozenset(secret_bytes(token.encode("utf-8", "surrogateescape")) for token in tokens)

    def _read(self) -> _Content:
        content = self._decoded(self._blob.read())
        for owner, kept in content.secrets.items():
            self._seen.setdefault(owner, {}).update(kept)
        while len(self._seen) > _OWNERS:
            del self._seen[next(iter(self._seen))]
        return content

    def _decoded(self, encoded: bytes | None) -> _Content:
        if encoded is None:
            return _Content(key=random.token_hex(32))
        try:
            content = msgspec.json.decode(encoded, type=_Content)
            if len(bytes.fromhex(content.key)) != 32:
                raise ValueError("the key is cut")
        except (msgspec.MsgspecError, ValueError) as error:
            raise RecordDamaged(f"The vault {self._blob} is damaged ({error}): restore it from a copy.") from error
        return content

    @contextmanager
    def _changing(self) -> Iterator[_Content]:
        """The content, written back whole: other processes see the old vault or the new."""
        if not self._write:
            raise RecordNotWritable(f"The vault {self._blob} is opened for reading only.")
        with self._blob.locked() as blob:
            content = self._decoded(blob.read())
            yield content
            blob.replace(msgspec.json.encode(content))


def _node(paths: tuple[str, ...]) -> Node:
    return compile_paths(BodyShape(kind="other", secret=paths))
