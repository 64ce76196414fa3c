"""What the settings of the HTTP service mean: each function gives the value, or says in ValueError what it must be."""

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

from engine.settings.values import SECOND, is_off

_NAME: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9_-]{0,62})?(\.[A-Za-z0-9][A-Za-z0-9_-]{0,62})*\.?")
_RATE: Final = re.compile(r"([0-9]{1,6})\s*/\s*(s|m|h)")
_SPANS: Final = {"s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}


def host(text: str) -> str:
    """An address or a host name to listen at, without brackets and port.

    Raises:
        ValueError: it is neither.
    """
    found = text.strip().removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(found)
    except ValueError:
        if not _NAME.fullmatch(found) or found.replace(".", "").isdecimal():
            raise ValueError("an address or a host name without a port: 127.0.0.1, ::1, 0.0.0.0, localhost") from None
    return found


def port(text: str) -> int:
    """A port; 0 stands for any that is free.

    Raises:
        ValueError: it is none.
    """
    found = text.strip()
    if not (found.isascii() and found.isdecimal() and len(found) <= 5 and int(found) <= 65_535):
        raise ValueError("a port from 1 to 65535, or 0 for any that is free")
    return int(found)


def origins(text: str) -> tuple[str, ...]:
    """Origins as a browser sends them (`https://front.example`, `http://localhost:3000`); none for `off`.

    Raises:
        ValueError: one of them is none.
    """
    if is_off(text):
        return ()
    return tuple(dict.fromkeys(_origin(part.strip()) for part in text.split(",")))


def _origin(text: str) -> str:
    try:
        parts = urlsplit(text)
        named = parts.hostname is not None and parts.username is None and parts.port != 0
    except ValueError:
        named = False
    bare = text.isascii() and text.isprintable() and not any(char.isspace() for char in text)
    if not (
        named and bare and parts.scheme in {"http", "https"} and text.count("/") == 2 and not set("?#*") & set(text)
    ):
        raise ValueError("origins with commas between, each scheme and host alone: https://front.example, or off")
    return text.lower()


def submit_rate(text: str) -> tuple[int, int] | None:
    """How many in how long: `30/m` is (30, 60 seconds in microseconds); None for `off`: no limit.

    Raises:
        ValueError: it is no rate.
    """
    if is_off(text):
        return None
    found = _RATE.fullmatch(text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise ValueError("a number above 0 in a second, minute or hour (1/s, 30/m, 500/h), or off for no limit")
    return int(found[1]), _SPANS[found[2]]
