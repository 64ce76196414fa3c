"""Requests from pages of other sites: CSRF checks, and CORS for the origins in `api.cors`."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from projections.api.access.authentication import HOST
from projections.api.problems import Problem

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
                403, "this request is from a page of another site; api.cors lists the allowed ones", field=field
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
        asked = method == "OPTIONS" and b"access-control-request-method" in headers
        return _PREFLIGHT if asked and headers.get(b"origin", b"").lower() in self.listed else None


def _same_host(origin: str, host: str) -> bool:
    """Whether `Origin` and `Host` are the same host and port; a proxy may have its own scheme."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return False
    default = {"http": 80, "https": 443}.get(parts.scheme)
    found = HOST.fullmatch(host)
    if parts.hostname is None or default is None or found is None:
        return False
    named = found[1].strip("[]").lower()
    return parts.hostname == named and (port or default) == int(found[2] or default)
