"""Callers, and the tokens of a record in a running server: in memory, reloaded when the file changes."""

import hashlib
import hmac
import logging
import re
import secrets
import threading
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from steno.events.clock import SECOND, Clock
from steno.events.errors import RecordNotWritable
from steno.events.store.store import Store
from steno.projections.api.problems import Problem
from steno.projections.api.token_store import ANONYMOUS, TOKEN, Role, TokenBlob, TokenStore, digest

_log = logging.getLogger("steno.access")

_COOKIE: Final = re.compile(
    r"(?P<text>(?P<token>[^.]*)\.(?P<until>[0-9]{1,18})\.(?P<nonce>[^.]*))\.(?P<seal>[0-9a-f]{64})",
    re.ASCII | re.DOTALL,
)
LOOK_AGAIN: Final = SECOND // 4  # between checks of the file: the delay of a revocation
SESSION: Final = 12 * 3600 * SECOND  # how long a browser stays logged in, microseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    name: str  # the token's name, or `loopback`; the record names it as the submitter
    role: Role
    via: Literal["token", "session", "loopback"]
    token_id: str | None = None  # the token it authenticated with; None on loopback without one


LOOPBACK = Caller(name=ANONYMOUS, role=Role.ADMIN, via="loopback")  # a local caller without a token


class UsableToken(NamedTuple):
    """A token that is valid until `expires_at`."""

    who: Caller
    digest: bytes
    expires_at: int | None


class Tokens:
    """The tokens beside a record, kept in memory; the file's stamp is checked every `LOOK_AGAIN`. If the file cannot be
    read, no token is valid, and requests without a token are refused too.
    """

    def __init__(self, store: Store, clock: Clock) -> None:
        self.file = TokenStore(store)
        self._clock = clock
        self._lock = threading.Lock()
        self._stamp: object = None
        self._looked_at, self._look_at = 0, 0  # when the file was looked at, and when it is again
        self._known: dict[str, UsableToken] = {}
        self._ended: dict[str, int] = {}
        self._key = b""
        self.trouble: str | None = None  # why the file cannot be used, if so

    def expect_usable(self) -> None:
        """Raise `Problem` if the file cannot be read."""
        self.look()
        if self.trouble is not None:
            raise Problem(503, "this service cannot read its tokens now; its log says why")

    def usable(self, role: Role = Role.READ) -> int:
        """The number of valid tokens that have at least this role."""
        self.look()
        usable = (self._valid(token_id) for token_id in tuple(self._known))
        return sum(known is not None and known.who.role.covers(role) for known in usable)

    def bearer(self, text: str) -> Caller | None:
        """The owner of a token; None if unknown, revoked or expired."""
        match = TOKEN.fullmatch(text)
        if match is None:
            return None
        known = self._valid(match[1])
        return known.who if known is not None and hmac.compare_digest(digest(text), known.digest) else None

    def holds(self, who: Caller) -> bool:
        """True if the caller's token or session is still valid."""
        return who.token_id is None or self._valid(who.token_id) is not None

    @property
    def cookie(self) -> str:
        """The name of this record's session cookie: browsers share cookies between the ports of a host."""
        self.look()
        return "steno_" + hashlib.sha256(self._key).hexdigest()[:12]

    def opened(self, who: Caller) -> tuple[str, int]:
        """(cookie value, lifetime in seconds) of a new session of a token's owner."""
        known = None if who.token_id is None else self._valid(who.token_id)
        if known is None or who.token_id is None:
            raise Problem(401, "this token is unknown, revoked or expired: ask for another")
        now = self._clock.now()
        until = now + SESSION if known.expires_at is None else min(now + SESSION, known.expires_at)
        self.file.ensure_key()
        self.look(at_once=True)
        text = f"{who.token_id}.{until}.{secrets.token_hex(16)}"
        return f"{text}.{self._sealed(text, known)}", max(1, (until - now) // SECOND)

    def session(self, cookie: str) -> Caller | None:
        """The owner of a session; None if unknown or expired."""
        match = _COOKIE.fullmatch(cookie)
        known = None if match is None else self._valid(match["token"])
        if match is None or known is None or not self._key:
            return None
        if not hmac.compare_digest(match["seal"], self._sealed(match["text"], known)):
            return None
        if int(match["until"]) <= self._clock.now() or match["nonce"] in self._ended:
            return None
        return replace(known.who, via="session")

    def close(self, cookie: str) -> None:
        """End a session; its cookie becomes invalid in every process."""
        if self.session(cookie) is not None:
            _, until, nonce, _ = cookie.split(".")
            self.file.end_session(nonce, int(until), self._clock.now())
            self.look(at_once=True)

    def _sealed(self, text: str, known: UsableToken) -> str:
        return hmac.new(self._key, text.encode() + known.digest, hashlib.sha256).hexdigest()

    def _valid(self, token_id: str) -> UsableToken | None:
        self.look()
        known = self._known.get(token_id)
        over = known is None or (known.expires_at is not None and self._clock.now() >= known.expires_at)
        return None if over else known

    def look(self, *, at_once: bool = False) -> None:
        """Load a change of the file; `at_once`, or if the last look is `LOOK_AGAIN` ago."""
        now = self._clock.now()
        if not at_once and self._looked_at <= now < self._look_at:
            return
        with self._lock:
            self._looked_at, self._look_at = now, now + LOOK_AGAIN
            trouble, content, stamp = None, TokenBlob(), None
            try:
                stamp = self.file.blob.stamp()
                if stamp == self._stamp and self.trouble is None:
                    return
                content = self.file.read()
            except RecordNotWritable as error:
                trouble = str(error).rstrip(".")
            if trouble is not None and trouble != self.trouble:
                _log.error("%s: no request is taken until it is put right", trouble)
            self._key, self._ended = content.key, content.ended
            self._known = {
                token.id: UsableToken(
                    who=Caller(name=token.name, role=Role(token.role), via="token", token_id=token.id),
                    digest=bytes.fromhex(token.hash),
                    expires_at=token.expires_at,
                )
                for token in content.tokens
                if token.hash is not None
            }
            self._stamp, self.trouble = stamp, trouble
