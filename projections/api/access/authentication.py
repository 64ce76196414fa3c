"""Authentication of requests, by token, by browser session, or by coming from this machine; the role that each
request needs; and checks of requests from pages of other sites: CSRF, and CORS for the origins in `api.cors`.
"""

import ipaddress
import re
import socket
from collections.abc import Mapping
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from starlette.types import Scope

from steno.engine.settings.settings import Settings
from steno.projections.api.problems import Problem
from steno.projections.api.token_store import Role
from steno.projections.api.tokens import LOOPBACK, Caller, Tokens

_FORWARDED: Final = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto", b"x-real-ip", b"via"}
)
HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::([0-9]{1,5}))?")  # `Host`: name, port
_CREATE_ONE: Final = "create one with `steno token create`"

_READS: Final = frozenset({"GET", "HEAD", "OPTIONS"})

_PUBLIC: Final = re.compile(r"/(healthz|readyz|api/session)")
_GUARDED: Final = re.compile(r"/(api|metrics|openapi\.json)(/.*)?", re.DOTALL)  # others: static files

_SUBMITTERS: Final = re.compile(r"/api/runs(/.*)?|/api/amd/submit", re.DOTALL)  # others: admins only
_ADMINS: Final = re.compile(r"/api/tokens(/.*)?", re.DOTALL)  # reads too: who may do what is for admins
_SUBMITS: Final = re.compile(r"/api/runs(/[^/]+/rerun)?|/api/amd/submit")  # limited by `api.submit_rate`


class Authentication:
    """Finds the caller of a request. `on_loopback`: the server listens on loopback only, so a request without a token
    or a proxy is from this machine.
    """

    def __init__(self, tokens: Tokens, *, on_loopback: bool) -> None:
        self._tokens = tokens
        self._on_loopback = on_loopback

    def caller(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Caller:
        """The caller now. Raises `Problem`: 401 unknown; 421 another site whose name resolves to this machine; 503 the
        tokens file cannot be read.
        """
        self._tokens.expect_usable()
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
    """True if it is as nginx without settings sends it: HTTP/1.0, `Connection: close`, no header of its own."""
    return scope["http_version"] == "1.0" and headers.get(b"connection", b"").lower() == b"close"


def _unknown(detail: str, error: str | None = None, field: str = "Authorization") -> Problem:
    challenge = 'Bearer realm="steno"' + (f', error="{error}"' if error is not None else "")
    return Problem(401, detail, field=field, headers=(("WWW-Authenticate", challenge),))


# -- roles


def needed(method: str, path: str) -> Role | None:
    """The role a request needs; None: open to all."""
    if _ADMINS.fullmatch(path):
        return Role.ADMIN
    if path.startswith("/api/") and method == "GET" and path != "/api/session":
        return Role.READ
    if _PUBLIC.fullmatch(path):
        return None
    if method in _READS:
        return Role.READ if _GUARDED.fullmatch(path) else None
    return Role.SUBMIT if _SUBMITTERS.fullmatch(path) else Role.ADMIN


def submits_a_run(method: str, path: str) -> bool:
    """True if a request counts against `api.submit_rate`."""
    return method == "POST" and _SUBMITS.fullmatch(path) is not None


# -- addresses of this machine


def is_loopback(address: str) -> bool:
    """True if a literal address is loopback, including IPv4-mapped IPv6."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = ip.ipv4_mapped if isinstance(ip, ipaddress.IPv6Address) else None
    return (mapped or ip).is_loopback


def listens_on_loopback(host: str) -> bool:
    """True if a server at this host or address is reachable from this machine only."""
    try:
        return all(is_loopback(str(entry[4][0])) for entry in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM))
    except OSError:
        return False  # `bound` reports the error


def trusts_loopback(settings: Settings) -> bool:
    """True if local requests need no token: the server is on loopback, and `api.loopback` allows it."""
    return settings.value("api.loopback") != "token" and listens_on_loopback(settings.value("api.host") or "")


@lru_cache(maxsize=100)
def names_loopback(host: bytes) -> bool:
    """True if a `Host` header names this machine; protects against DNS rebinding."""
    match = HOST.fullmatch(host.decode("latin-1"))
    if match is None:
        return False
    name = match[1].strip("[]").rstrip(".").lower()
    return name == "localhost" or name.endswith(".localhost") or is_loopback(name)


_EXPOSED: Final = b"ETag, Location, Retry-After, Steno-Position"
_PREFLIGHT: Final = (
    (b"access-control-allow-methods", b"GET, POST, DELETE"),
    (b"access-control-allow-headers", b"Authorization, Content-Type, Idempotency-Key, If-None-Match, Last-Event-ID"),
    (b"access-control-max-age", b"600"),
)

Headers = tuple[tuple[bytes, bytes], ...]


class CrossOrigin:
    """Rules for pages of other origins; those in `api.cors` count as same-origin, without cookies."""

    def __init__(self, listed: tuple[str, ...]) -> None:
        self.listed = frozenset(origin.encode() for origin in listed)

    def check_read(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse (403) a read by another site's page with rights that the browser adds: loopback, or a session. The
        page cannot see the answer, but could hold streams open and measure times. Links are allowed: only the user sees
        the answer.
        """
        if headers.get(b"sec-fetch-mode") != b"navigate" or headers.get(b"sec-fetch-dest") != b"document":
            self.check(headers)

    def check(self, headers: Mapping[bytes, bytes]) -> None:
        """Refuse (403) a request from another site's page. A browser states the origin and no page can change it; other
        clients state none.
        """
        origin, site = headers.get(b"origin"), headers.get(b"sec-fetch-site")
        if origin is not None and origin.lower() in self.listed:
            ours = True
        elif site is not None:
            ours = site.lower() in {b"same-origin", b"none"}
        else:
            ours = origin is None or _same_host(origin.decode("latin-1"), headers.get(b"host", b"").decode("latin-1"))
        if not ours:
            field = "Origin" if origin is not None else "Sec-Fetch-Site"
            raise Problem(
                403, "this request is from a page of another site; api.cors lists the allowed origins", field=field
            )

    def answer(self, headers: Mapping[bytes, bytes]) -> Headers:
        """Headers that let a listed page read an answer."""
        if not self.listed:
            return ()
        origin = headers.get(b"origin", b"")
        if origin.lower() not in self.listed:
            return ((b"vary", b"Origin"),)
        return (
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", _EXPOSED),
            (b"vary", b"Origin"),
        )

    def preflight(self, method: str, headers: Mapping[bytes, bytes]) -> Headers | None:
        """The headers that answer a CORS preflight of a listed page; None: it is not one."""
        is_preflight = method == "OPTIONS" and b"access-control-request-method" in headers
        return _PREFLIGHT if is_preflight and headers.get(b"origin", b"").lower() in self.listed else None


def _same_host(origin: str, host: str) -> bool:
    """True if `Origin` and `Host` are the same host and port; a proxy may have its own scheme."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return False
    default = {"http": 80, "https": 443}.get(parts.scheme)
    match = HOST.fullmatch(host)
    if parts.hostname is None or default is None or match is None:
        return False
    named = match[1].strip("[]").lower()
    return parts.hostname == named and (port or default) == int(match[2] or default)
