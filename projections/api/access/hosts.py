"""Host names and addresses: which of them are loopback, and which page sent a request."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from engine.settings.settings import Settings

_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~-]+)(?::([0-9]{1,5}))?")


def is_loopback(address: str) -> bool:
    """Whether a literal address is loopback, IPv4-mapped IPv6 included."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback


def listens_on_loopback(host: str) -> bool:
    """Whether a server at this host or address can be reached from this machine only."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False  # `bound` reports the error
    return all(is_loopback(str(entry[4][0])) for entry in found)


def trusts_loopback(settings: Settings) -> bool:
    """Whether requests from this machine need no token: the server is on loopback, and `api.loopback` allows it."""
    return settings.value("api.loopback") != "token" and listens_on_loopback(settings.value("api.host") or "")


def names_loopback(host: str) -> bool:
    """Whether a `Host` header names this machine; protects against DNS rebinding."""
    found = _HOST.fullmatch(host)
    if found is None:
        return False
    name = found[1].strip("[]").rstrip(".").lower()
    return name == "localhost" or name.endswith(".localhost") or is_loopback(name)


def same_host(origin: str, host: str) -> bool:
    """Whether `Origin` and `Host` are the same host and port; the scheme may be a proxy's."""
    try:
        parts = urlsplit(origin)
        port = parts.port
    except ValueError:
        return False
    default = {"http": 80, "https": 443}.get(parts.scheme)
    found = _HOST.fullmatch(host)
    if parts.hostname is None or default is None or found is None:
        return False
    named = found[1].strip("[]").lower()
    return parts.hostname == named and (port or default) == int(found[2] or default)
