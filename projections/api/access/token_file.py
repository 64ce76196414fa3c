"""The tokens of a record in a blob beside it: hashes only, replaced whole under a lock."""

from __future__ import annotations

import re
import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from events.errors import RecordNotWritable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from events.store.store import Blob, Store

SECRET: Final = re.compile(r"(steno_[0-9a-f]{12}_)[A-Za-z0-9_-]+")
"""A token in any text; what to leave of it is group 1."""


class Stored(msgspec.Struct, kw_only=True):
    """One token, as the blob has it; times in microseconds, UTC."""

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
    """All of the blob."""

    version: Literal[1] = 1
    key: bytes = b""
    """What session cookies are sealed with; empty until somebody logs in."""
    tokens: list[Stored] = msgspec.field(default_factory=list)
    ended: dict[str, int] = msgspec.field(default_factory=dict)
    """Sessions that were closed: the cookie's own number, and until when it would have held."""


class TokenFile:
    """The tokens of the record in a store; there may be none."""

    def __init__(self, store: Store) -> None:
        self.blob: Blob = store.blob("tokens")

    def stamp(self) -> object:
        """A value that changes whenever the tokens do; None: there are none."""
        return self.blob.stamp()

    def read(self) -> Content:
        """The content.

        Raises:
            RecordNotWritable: it cannot be read.
            ValueError: it is not what Steno writes.
        """
        found = self.blob.read()
        if found is None:
            return Content()
        try:
            content = msgspec.json.decode(found, type=Content)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from None
        if any(token.hash is not None and len(bytes.fromhex(token.hash)) != 32 for token in content.tokens):
            raise ValueError("a hash is cut")
        return content

    def content(self) -> Content:
        """As `read`, with one error for both.

        Raises:
            RecordNotWritable: it cannot be read.
        """
        try:
            return self.read()
        except ValueError as error:
            raise RecordNotWritable(
                f"{self.blob} is damaged ({error}): move it away, and make the tokens anew"
            ) from None

    @contextmanager
    def changing(self) -> Iterator[Content]:
        """The content, written back whole afterwards: a reader sees the old tokens or the new ones.

        Raises:
            RecordNotWritable: it cannot be read or written.
        """
        with self.blob.locked():
            content = self.content()
            yield content
            self.blob.replace(msgspec.json.encode(content))

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
