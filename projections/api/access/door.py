"""Who asks: by token, by the session of a browser, or by being on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projections.api.access.hosts import is_loopback, names_loopback
from projections.api.access.who import LOOPBACK, Who
from projections.api.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from projections.api.access.tokens import Tokens

_FORWARDED: Final = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via"}
)
_TELLING: Final = _FORWARDED | {b"authorization", b"cookie"}
"""Headers that may say that it is somebody else."""
_NAMES: Final = 100
_MAKE_ONE: Final = "`steno token create` makes one"


class Door:
    """Tells who sent a request.

    Args:
        on_loopback: the server listens on loopback alone, so whoever comes without a token, and through no proxy, is
            on this machine.
    """

    def __init__(self, tokens: Tokens, *, on_loopback: bool) -> None:
        self._tokens = tokens
        self._on_loopback = on_loopback
        self._own_names: set[bytes] = set()
        """`Host` headers that were looked at before, and name this machine."""

    def at_once(self, headers: Mapping[bytes, bytes], peer: str | None, now: int) -> Who | None:
        """Who that is where nothing has to be looked up: most requests on loopback; None: `who` tells."""
        if (
            peer == "127.0.0.1"
            and self._on_loopback
            and headers.get(b"host") in self._own_names
            and _TELLING.isdisjoint(headers)
            and self._tokens.usable_at(now)
        ):
            return LOOPBACK
        return None

    def who(self, headers: Mapping[bytes, bytes], peer: str | None, now: int) -> Who:
        """Who that is, at this moment.

        Raises:
            Problem: nobody we know (401), or a page that had its own name point here (421).
        """
        self._tokens.expect_usable(now)
        if b"authorization" in headers:
            return self._by_token(headers[b"authorization"])
        if b"cookie" in headers:
            who = self._by_cookie(headers)
            if who is not None:
                return who
        return self._by_place(headers, peer)

    def cookie(self, headers: Mapping[bytes, bytes]) -> str | None:
        """The value of our session cookie, if the request has one."""
        name = self._tokens.cookie
        for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
            key, _, value = part.strip().partition("=")
            if key == name and value:
                return value
        return None

    def _by_token(self, given: bytes) -> Who:
        scheme, _, text = given.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            raise _unknown("the header Authorization must be `Bearer steno_…`", "invalid_request")
        who = self._tokens.bearer(text.strip())
        if who is None:
            raise _unknown(f"this token is unknown, revoked or expired; {_MAKE_ONE}", "invalid_token")
        return who

    def _by_cookie(self, headers: Mapping[bytes, bytes]) -> Who | None:
        value = self.cookie(headers)
        return None if value is None else self._tokens.session(value)

    def _by_place(self, headers: Mapping[bytes, bytes], peer: str | None) -> Who:
        if not self._on_loopback or peer is None or not (peer == "127.0.0.1" or is_loopback(peer)):
            raise _unknown(f"a token is needed: send `Authorization: Bearer steno_…`; {_MAKE_ONE}")
        if not _FORWARDED.isdisjoint(headers):
            raise _unknown(f"through a proxy a token is needed: let it add `Authorization`; {_MAKE_ONE}")
        host = headers.get(b"host")
        if host is None:
            raise Problem(400, "the header Host is missing", field="Host")
        if host not in self._own_names:
            if not names_loopback(host.decode("latin-1")):
                raise Problem(
                    421,
                    "without a token only this machine's own names are answered: 127.0.0.1, localhost, [::1]",
                    field="Host",
                )
            if len(self._own_names) < _NAMES:
                self._own_names.add(host)
        return LOOPBACK


def _unknown(detail: str, error: str | None = None) -> Problem:
    challenge = 'Bearer realm="steno"' + (f', error="{error}"' if error is not None else "")
    return Problem(401, detail, field="Authorization", headers=(("WWW-Authenticate", challenge),))
