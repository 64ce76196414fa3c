"""Authentication of requests: by token, by browser session, or by coming from this machine."""

import ipaddress
import re
import socket
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from starlette.types import Scope

from engine.settings.settings import Settings
from projections.api.problems import Problem
from projections.api.roles import LOOPBACK, Caller
from projections.api.tokens import Tokens

_FORWARDED: Final = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via"}
)
_IDENTIFYING: Final = _FORWARDED | {b"authorization", b"cookie"}  # may identify another caller
HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::([0-9]{1,5}))?")  # `Host`: name, port
_CREATE_ONE: Final = "create one with `steno token create`"


class Authentication:
    """Finds the caller of a request. `on_loopback`: the server listens on loopback only, so a request without a token
    or a proxy is from this machine.
    """

    def __init__(self, tokens: Tokens, *, on_loopback: bool) -> None:
        self._tokens = tokens
        self._on_loopback = on_loopback

    def local_caller(self, scope: Scope, headers: Mapping[bytes, bytes], now: int) -> Caller | None:
        """The caller of a plain loopback request, without a look-up; None: use `caller`."""
        if (
            _peer(scope) == "127.0.0.1"
            and self._on_loopback
            and scope["http_version"] == "1.1"
            and names_loopback(headers.get(b"host", b""))
            and _IDENTIFYING.isdisjoint(headers)
            and self._tokens.usable_at(now)
        ):
            return LOOPBACK
        return None

    def caller(self, scope: Scope, headers: Mapping[bytes, bytes], now: int) -> Caller:
        """The caller now. Raises `Problem`: 401 unknown; 421 another site whose name resolves to this machine; 503 the
        tokens file cannot be read.
        """
        self._tokens.expect_usable(now)
        if b"authorization" in headers:
            scheme, _, text = headers[b"authorization"].decode("latin-1").partition(" ")
            if scheme.lower() != "bearer":
                raise _unknown("the header Authorization must be `Bearer steno_…`", "invalid_request")
            return self.bearer(text.strip(), "Authorization")
        cookie = self.cookie(headers) if b"cookie" in headers else None
        caller = None if cookie is None else self._tokens.session(cookie)
        return caller if caller is not None else self._by_address(scope, headers)

    def cookie(self, headers: Mapping[bytes, bytes]) -> str | None:
        """The value of Steno's session cookie, if sent."""
        parts = headers.get(b"cookie", b"").decode("latin-1").split(";")
        pairs = (part.strip().partition("=") for part in reversed(parts))  # the first one counts
        return {key: value for key, _, value in pairs if value}.get(self._tokens.cookie)

    def bearer(self, text: str, field: str) -> Caller:
        """The owner of a token; raises `Problem` 401 if it has none."""
        caller = self._tokens.bearer(text)
        if caller is None:
            raise _unknown(f"this token is unknown, revoked or expired; {_CREATE_ONE}", "invalid_token", field)
        return caller

    def _by_address(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Caller:
        peer = _peer(scope)
        if not self._on_loopback or peer is None or not (peer == "127.0.0.1" or is_loopback(peer)):
            raise _unknown(f"a token is required: send `Authorization: Bearer steno_…`; {_CREATE_ONE}")
        if not _FORWARDED.isdisjoint(headers) or _is_plain_proxy(scope, headers):
            raise _unknown(f"a token is required through a proxy: let the proxy send `Authorization`; {_CREATE_ONE}")
        host = headers.get(b"host")
        if host is None:
            raise Problem(400, "the header Host is missing", field="Host")
        if not names_loopback(host):
            detail = "without a token, Host must be a name of this machine: 127.0.0.1, localhost or [::1]"
            raise Problem(421, detail, field="Host")
        return LOOPBACK


def _peer(scope: Scope) -> str | None:
    client = scope["client"]
    return None if client is None else str(client[0])


def _is_plain_proxy(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    """Whether it is as nginx without settings sends it: HTTP/1.0, `Connection: close`, no header of its own."""
    return scope["http_version"] == "1.0" and headers.get(b"connection", b"").lower() == b"close"


def _unknown(detail: str, error: str | None = None, field: str = "Authorization") -> Problem:
    challenge = 'Bearer realm="steno"' + (f', error="{error}"' if error is not None else "")
    return Problem(401, detail, field=field, headers=(("WWW-Authenticate", challenge),))


# -- addresses of this machine


def is_loopback(address: str) -> bool:
    """Whether a literal address is loopback, including IPv4-mapped IPv6."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def listens_on_loopback(host: str) -> bool:
    """Whether a server at this host or address is reachable from this machine only."""
    try:
        return all(is_loopback(str(entry[4][0])) for entry in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM))
    except OSError:
        return False  # `bound` reports the error


def trusts_loopback(settings: Settings) -> bool:
    """Whether local requests need no token: the server is on loopback, and `api.loopback` allows it."""
    return settings.value("api.loopback") != "token" and listens_on_loopback(settings.value("api.host") or "")


@lru_cache(maxsize=100)
def names_loopback(host: bytes) -> bool:
    """Whether a `Host` header names this machine; protects against DNS rebinding."""
    found = HOST.fullmatch(host.decode("latin-1"))
    if found is None:
        return False
    name = found[1].strip("[]").rstrip(".").lower()
    return name == "localhost" or name.endswith(".localhost") or is_loopback(name)
