"""Who sent a request: authenticated by token, by a browser's session, or by being on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projections.api.access.hosts import is_loopback, names_loopback
from projections.api.access.roles import LOOPBACK, Caller
from projections.api.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from projections.api.access.tokens import Tokens

_FORWARDED: Final = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via"}
)
_IDENTIFYING: Final = _FORWARDED | {b"authorization", b"cookie"}
"""Headers that may name another caller than whoever is on this machine."""
_HOSTS: Final = 100
"""`Host` headers remembered."""
_CREATE_ONE: Final = "create one with `steno token create`"


class Authentication:
    """Finds the caller of a request.

    Args:
        on_loopback: the server listens on loopback alone, so a request without a token that did not come
            through a proxy is from this machine.
    """

    def __init__(self, tokens: Tokens, *, on_loopback: bool) -> None:
        self._tokens = tokens
        self._on_loopback = on_loopback
        self._own_names: set[bytes] = set()
        """`Host` headers already found to name this machine."""

    def local_caller(self, headers: Mapping[bytes, bytes], peer: str | None, now: int) -> Caller | None:
        """The caller of a plain request on loopback, found without any look-up; None: ask `caller`."""
        if (
            peer == "127.0.0.1"
            and self._on_loopback
            and headers.get(b"host") in self._own_names
            and _IDENTIFYING.isdisjoint(headers)
            and self._tokens.usable_at(now)
        ):
            return LOOPBACK
        return None

    def caller(self, headers: Mapping[bytes, bytes], peer: str | None, now: int) -> Caller:
        """The caller, at this moment.

        Raises:
            Problem: 401, unknown; 421, a page of another site that resolves its own name to this machine; 503, the
                tokens file cannot be read.
        """
        self._tokens.expect_usable(now)
        if b"authorization" in headers:
            return self._by_token(headers[b"authorization"])
        if b"cookie" in headers:
            caller = self._by_cookie(headers)
            if caller is not None:
                return caller
        return self._by_address(headers, peer)

    def cookie(self, headers: Mapping[bytes, bytes]) -> str | None:
        """The value of our session cookie, if the request has one."""
        name = self._tokens.cookie
        for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
            key, _, value = part.strip().partition("=")
            if key == name and value:
                return value
        return None

    def _by_token(self, given: bytes) -> Caller:
        scheme, _, text = given.decode("latin-1").partition(" ")
        if scheme.lower() != "bearer":
            raise _unknown("the header Authorization must be `Bearer steno_…`", "invalid_request")
        caller = self._tokens.bearer(text.strip())
        if caller is None:
            raise _unknown(f"this token is unknown, revoked or expired; {_CREATE_ONE}", "invalid_token")
        return caller

    def _by_cookie(self, headers: Mapping[bytes, bytes]) -> Caller | None:
        value = self.cookie(headers)
        return None if value is None else self._tokens.session(value)

    def _by_address(self, headers: Mapping[bytes, bytes], peer: str | None) -> Caller:
        if not self._on_loopback or peer is None or not (peer == "127.0.0.1" or is_loopback(peer)):
            raise _unknown(f"a token is required: send `Authorization: Bearer steno_…`; {_CREATE_ONE}")
        if not _FORWARDED.isdisjoint(headers):
            raise _unknown(f"a token is required through a proxy: let the proxy send `Authorization`; {_CREATE_ONE}")
        host = headers.get(b"host")
        if host is None:
            raise Problem(400, "the header Host is missing", field="Host")
        if host not in self._own_names:
            if not names_loopback(host.decode("latin-1")):
                raise Problem(
                    421,
                    "without a token, Host must be a name of this machine: 127.0.0.1, localhost or [::1]",
                    field="Host",
                )
            if len(self._own_names) < _HOSTS:
                self._own_names.add(host)
        return LOOPBACK


def _unknown(detail: str, error: str | None = None) -> Problem:
    challenge = 'Bearer realm="steno"' + (f', error="{error}"' if error is not None else "")
    return Problem(401, detail, field="Authorization", headers=(("WWW-Authenticate", challenge),))
