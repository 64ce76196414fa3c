"""Where a dstack server is and who we are there, checked once so that no later error can carry the token."""

import ipaddress
import re
from urllib.parse import quote, urlsplit

import msgspec

from engine.errors import NotConfigured

_TOKEN = re.compile(r"[\x21-\x7e]+")
_PROJECT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,49}")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A server, a token and a project; made by `address()` only."""

    url: str
    """`http(s)://host[:port][/prefix]`, without a slash at the end."""
    token: str
    project: str
    loopback: bool
    """The server is this machine: no proxy stands between."""

    def __repr__(self) -> str:
        return f"Address(url={self.url!r}, project={self.project!r})"

    def path(self, rest: str) -> str:
        """The path of a project route: `/api/project/<project>/<rest>`."""
        return f"/api/project/{quote(self.project, safe='')}/{rest}"


def address(url: str, token: str, project: str) -> Address:
    """The checked address.

    Raises:
        NotConfigured: the URL is not http or https, or the token or project has characters none can have.
    """
    try:
        parts = urlsplit(url.strip())
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise NotConfigured(f"dstack server URL {url!r} cannot be read; write it as http://host:port") from None
    if parts.scheme not in ("http", "https") or not host:
        raise NotConfigured(f"dstack server URL {url!r} must start with http:// or https:// and name a host")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise NotConfigured("dstack server URL must be plain: no user, password, query or fragment in it")
    if not _TOKEN.fullmatch(token):
        raise NotConfigured("dstack token has a space, a line break or a letter outside ASCII; copy it again")
    if not _PROJECT.fullmatch(project):
        raise NotConfigured(f"{project!r} is not a valid dstack project name; use letters, digits, '-' and '_'")
    return Address(url=url.strip().rstrip("/"), token=token, project=project, loopback=_loopback(host))


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
