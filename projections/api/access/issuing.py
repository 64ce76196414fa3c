"""Making and revoking tokens: the file says what may be used, the record says who did it."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, Final

import msgspec

from engine.errors import NameInUse, TokenNotFound
from events import types
from events.clock import format_time
from events.store.append import Batch
from projections.api.access.roles import LOOPBACK, Role
from projections.api.access.token_file import Stored, TokenFile
from projections.api.access.tokens import TOKEN, digest

if TYPE_CHECKING:
    from events.clock import Clock, Ids
    from events.store.record import Record

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,39}")
_DIGITS: Final = 12


class TokenObject(msgspec.Struct, frozen=True, kw_only=True):
    """A token as it is shown: never the token itself."""

    token_id: str
    name: str
    role: str
    state: str
    """`valid`, `expired` or `revoked`."""
    by: str
    created_at: str
    expires_at: str | None
    revoked_at: str | None


class Issuer:
    """Makes, lists and revokes the tokens of one record."""

    def __init__(self, record: Record, clock: Clock, ids: Ids) -> None:
        self._record = record
        self._clock = clock
        self._ids = ids
        self._file = TokenFile(record.store)

    def create(self, *, role: Role, name: str | None, expires_at: int | None, by: str) -> tuple[TokenObject, str, int]:
        """A new token: what is known of it, its text, which is kept nowhere, and the position of its event.

        Raises:
            ValueError: the name is none.
            NameInUse: a valid token has that name.
            RecordNotWritable, RecordLocked: as they say.
        """
        now = self._clock.now()
        token_id = self._ids.new().replace("-", "")[-_DIGITS:]
        name = f"{role}-{token_id[:4]}" if name is None else token_name(name)
        text = f"steno_{token_id}_{secrets.token_urlsafe(32)}"
        event = types.TokenCreated(token_id=token_id, name=name, role=role.value, expires_at=expires_at, by=by)
        with self._file.changing() as content:
            for other in content.tokens:
                if other.name == name and _state(other, now) == "valid":
                    raise NameInUse(f"a valid token is named {name} already: revoke it, or choose another --name")
            # The record first: a token that works is in it, whatever happens in between.
            position = self._append(token_id, event)
            token = Stored(
                id=token_id,
                name=name,
                role=role.value,
                hash=digest(text).hex(),
                by=by,
                created_at=now,
                expires_at=expires_at,
            )
            content.tokens.append(token)
        return _object(token, now), text, position

    def revoke(self, word: str, *, by: str) -> tuple[TokenObject, int | None]:
        """End a token by its id, its name or its whole text; a running service takes it for no longer than a second.

        Returns:
            What is known of it, and the position of its event; None where it had been revoked before.

        Raises:
            TokenNotFound: there is none.
            RecordNotWritable, RecordLocked: as they say.
        """
        now = self._clock.now()
        whole = TOKEN.fullmatch(word)
        word = word if whole is None else whole[1]
        with self._file.changing() as content:
            token = _found(content.tokens, word, now)
            if token.revoked_at is None:
                token.hash, token.revoked_at = None, now
        stream = f"token/{token.id}"
        if any(isinstance(stored.data, types.TokenRevoked) for stored in self._record.read(stream=stream)):
            return _object(token, now), None
        event = types.TokenRevoked(
            token_id=token.id, name=token.name, role=token.role, expires_at=token.expires_at, by=by
        )
        return _object(token, now), self._append(token.id, event)

    def _append(self, token_id: str, event: types.TokenCreated | types.TokenRevoked) -> int:
        return self._record.append_many([Batch(f"token/{token_id}", [event])], durable=True)[-1]


def listed(file: TokenFile, now: int) -> tuple[TokenObject, ...]:
    """Every token there ever was, the newest first.

    Raises:
        RecordNotWritable: the file cannot be read.
    """
    tokens = sorted(file.content().tokens, key=lambda token: token.created_at, reverse=True)
    return tuple(_object(token, now) for token in tokens)


def token_name(name: str) -> str:
    """The name, if it can be a token's.

    Raises:
        ValueError: it cannot; the text says what it must be.
    """
    if not _NAME.fullmatch(name) or name == LOOPBACK.name:
        raise ValueError(
            "1 to 40 letters, digits and . _ @ -, beginning with a letter or digit; "
            f"{LOOPBACK.name} is who comes without a token"
        )
    return name


def _found(tokens: list[Stored], word: str, now: int) -> Stored:
    """The token of that id or the beginning of one, else the newest of that name, a valid one if there is one."""
    by_id = [token for token in tokens if token.id == word] or [
        token for token in tokens if len(word) >= 4 and token.id.startswith(word)
    ]
    named = sorted((token for token in tokens if token.name == word), key=lambda token: token.created_at)
    named = [token for token in named if _state(token, now) == "valid"] or named
    found = by_id if len(by_id) == 1 else named[-1:]
    if not found:
        said = f"{len(by_id)} tokens begin with {word}" if by_id else f"there is no token {word}"
        raise TokenNotFound(f"{said}; `steno token list --all` shows every one")
    return found[0]


def _state(token: Stored, now: int) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "expired" if token.expires_at is not None and token.expires_at <= now else "valid"


def _object(token: Stored, now: int) -> TokenObject:
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
