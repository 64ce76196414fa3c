"""Tokens of the HTTP service: created, listed and revoked; only hashes are kept, in a blob beside the record."""

import enum
import hashlib
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final, Literal

import msgspec

from steno.engine.errors import NameInUse, TokenNotFound
from steno.engine.settings.values import positive_duration
from steno.events import types
from steno.events.clock import Clock, Ids, format_time, parse_time
from steno.events.errors import RecordNotWritable
from steno.events.store.append import Batch
from steno.events.store.record import Record
from steno.events.store.store import Blob, Store

TOKEN: Final = re.compile(r"steno_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_SECRET: Final = re.compile(r"(steno_[0-9a-f]{12}_)[A-Za-z0-9_-]+")  # a token in any text; only group 1 is public
NAME: Final = "[A-Za-z0-9][A-Za-z0-9._@-]{0,39}"
_DIGITS: Final = 12
ANONYMOUS: Final = "loopback"  # the name of a caller without a token; no token can have it


class Role(enum.StrEnum):
    """The rights of a caller; each role includes the roles before it."""

    READ = "read"  # read everything
    SUBMIT = "submit"  # also submit and stop runs
    ADMIN = "admin"  # also stop machines, and every other change

    def covers(self, needed: "Role") -> bool:
        roles = list(Role)
        return roles.index(self) >= roles.index(needed)


class StoredToken(msgspec.Struct, kw_only=True):
    """A token, as the blob has it; times in microseconds, UTC."""

    id: str
    name: str
    role: Literal["read", "submit", "admin"]
    hash: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")] | None
    """Hex SHA-256 of the token's text; None once revoked."""
    by: str  # who created it
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None


class TokenBlob(msgspec.Struct, kw_only=True):
    version: Literal[1] = 1
    key: bytes = b""  # the key of session cookies; empty until the first login
    tokens: list[StoredToken] = msgspec.field(default_factory=list)
    ended: dict[str, int] = msgspec.field(default_factory=dict)
    """Closed sessions: nonce → when the session would have expired (microseconds, UTC)."""


class TokenStore:
    """The tokens of one record, possibly none. Methods raise RecordNotWritable if they cannot be read or written, or
    are not in Steno's format.
    """

    def __init__(self, store: Store) -> None:
        self.blob: Blob = store.blob("tokens")

    def read(self) -> TokenBlob:
        return self._decoded(self.blob.read())

    def _decoded(self, content: bytes | None) -> TokenBlob:
        try:
            return TokenBlob() if content is None else msgspec.json.decode(content, type=TokenBlob)
        except msgspec.DecodeError as error:
            raise RecordNotWritable(f"{self.blob} is damaged ({error}): move it away and create new tokens") from None

    @contextmanager
    def changing(self) -> Iterator[TokenBlob]:
        """The content, written back whole afterwards: a reader sees either the old tokens or the new."""
        with self.blob.locked() as blob:
            content = self._decoded(blob.read())
            yield content
            blob.replace(msgspec.json.encode(content))

    def ensure_key(self) -> None:
        """Create the key of session cookies if there is none."""
        if not self.read().key:
            with self.changing() as content:
                content.key = content.key or secrets.token_bytes(32)

    def end_session(self, nonce: str, until: int, now: int) -> None:
        """Remember a closed session until its cookie would have expired."""
        with self.changing() as content:
            content.ended = {closed: end for closed, end in content.ended.items() if end > now} | {nonce: until}


class TokenObject(msgspec.Struct, frozen=True, kw_only=True):
    """A token as lists show it: never its text."""

    token_id: str
    name: str
    role: str
    state: str  # `valid`, `expired` or `revoked`
    by: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class Issuer:
    """Creates and revokes the tokens of one record: the blob says which are valid, the record who did it. Methods raise
    RecordNotWritable or RecordLocked if the blob or the record cannot be changed.
    """

    def __init__(self, record: Record, clock: Clock, ids: Ids) -> None:
        self._record = record
        self._clock = clock
        self._ids = ids
        self._store = TokenStore(record.store)

    def create(self, *, role: Role, name: str | None, expires_at: int | None, by: str) -> tuple[TokenObject, str, int]:
        """A new token, its text, which is kept nowhere, and the position of its event. Raises ValueError: the name is
        not valid; NameInUse: a valid token has it.
        """
        now = self._clock.now()
        token_id = self._ids.new().replace("-", "")[-_DIGITS:]
        name = f"{role}-{token_id[:4]}" if name is None else token_name(name)
        text = f"steno_{token_id}_{secrets.token_urlsafe(32)}"
        token = StoredToken(
            id=token_id,
            name=name,
            role=role.value,
            hash=digest(text).hex(),
            by=by,
            created_at=now,
            expires_at=expires_at,
        )
        with self._store.changing() as content:
            if any(other.name == name and _state(other, now) == "valid" for other in content.tokens):
                raise NameInUse(f"a valid token is named {name} already: revoke it, or choose another --name")
            # The record first: after a crash every token that works is in it.
            position = self._append(types.TokenCreated, token, by)
            content.tokens.append(token)
        return _object(token, now), text, position

    def revoke(self, word: str, *, by: str) -> tuple[TokenObject, int | None]:
        """Revoke a token by its id, its name or its whole text; a running service refuses it within a second. Its
        event's position beside it is None if it was revoked before. Raises TokenNotFound.
        """
        now = self._clock.now()
        whole = TOKEN.fullmatch(word)
        with self._store.changing() as content:
            token = _found(content.tokens, word if whole is None else whole[1], now)
            if token.revoked_at is None:
                token.hash, token.revoked_at = None, now
        before = self._record.read(stream=f"token/{token.id}")
        known = any(isinstance(stored.data, types.TokenRevoked) for stored in before)
        return _object(token, now), None if known else self._append(types.TokenRevoked, token, by)

    def _append(self, kind: type[types.TokenCreated | types.TokenRevoked], token: StoredToken, by: str) -> int:
        fact = kind(token_id=token.id, name=token.name, role=token.role, expires_at=token.expires_at, by=by)
        return self._record.append_many([Batch(f"token/{token.id}", [fact])], durable=True)[-1]


def list_tokens(store: Store, now: int) -> tuple[TokenObject, ...]:
    """Every token ever created, newest first; see `TokenStore` for errors."""
    tokens = sorted(TokenStore(store).read().tokens, key=lambda token: token.created_at, reverse=True)
    return tuple(_object(token, now) for token in tokens)


def token_name(name: str) -> str:
    """The name; ValueError, which says what a name must be, if it is not valid for a token."""
    if not re.fullmatch(NAME, name) or name == ANONYMOUS:
        raise ValueError(
            "1 to 40 letters, digits and . _ @ -, beginning with a letter or digit; "
            f"{ANONYMOUS} means a caller without a token"
        )
    return name


def expiry(text: str, now: int) -> int:
    """When a token expires, microseconds UTC, of a duration from now or a time; ValueError says what is wrong."""
    try:
        return now + positive_duration(text)
    except ValueError:
        pass
    try:
        moment = parse_time(text.strip())
    except ValueError:
        raise ValueError(f"{text!r} is neither a duration (12h, 30d, 8w) nor a time (2027-01-31)") from None
    if moment <= now:
        raise ValueError(f"{text} has already passed")
    return moment


def _found(tokens: list[StoredToken], word: str, now: int) -> StoredToken:
    """The token of that id or unique id prefix, else the newest valid token of that name, else its newest."""
    by_id = [token for token in tokens if token.id == word]
    by_id = by_id or [token for token in tokens if len(word) >= 4 and token.id.startswith(word)]
    if len(by_id) == 1:
        return by_id[0]
    named = [token for token in tokens if token.name == word]
    if named:
        return max(named, key=lambda token: (_state(token, now) == "valid", token.created_at))
    why = f"{len(by_id)} tokens begin with {word}" if by_id else f"there is no token {word}"
    raise TokenNotFound(f"{why}; `steno token list --all` shows all of them")


def _state(token: StoredToken, now: int) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "valid"


def _object(token: StoredToken, now: int) -> TokenObject:
    return TokenObject(
        token_id=token.id,
        name=token.name,
        role=token.role,
        state=_state(token, now),
        by=token.by,
        created_at=format_time(token.created_at),
        expires_at=None if token.expires_at is None else format_time(token.expires_at),
        revoked_at=None if token.revoked_at is None else format_time(token.revoked_at),
    )


def without_secrets(text: str) -> str:
    """The text with every token in it cut to its id, for logs and answers."""
    return _SECRET.sub(r"\1…", text) if "steno_" in text else text


def digest(text: str) -> bytes:
    """The hash that is kept of a token; its 256 random bits need no slower one."""
    return hashlib.sha256(text.encode()).digest()
