"""What a setting's text means: each function gives the value, or says in ValueError what it must be."""

import ipaddress
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final
from urllib.parse import urlsplit

from events.clock import SECOND, UNITS, parse_duration

_DOLLARS: Final = 1_000_000_000
_RATE: Final = 10_000
"""Dollars an hour that no machine costs."""
_MACHINES: Final = 10_000

_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")
_OFF: Final = frozenset({"off", "none", "unlimited"})

ALERTS: Final = frozenset({"run_end", "anomaly", "budget", "orphan"})
"""Kinds of notices that can go to the webhook."""

_NAME: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9_-]{0,62})?(\.[A-Za-z0-9][A-Za-z0-9_-]{0,62})*\.?")
_SUBMIT_RATE: Final = re.compile(r"([0-9]{1,6})\s*/\s*(s|m|h)")

Parse = Callable[[str], object]


def is_off(text: str) -> bool:
    """Whether the text switches its setting off: `off`, `none`, `unlimited`."""
    return text.strip().lower() in _OFF


def whole(text: str) -> int:
    """A whole number above 0.

    Raises:
        ValueError: it is none.
    """
    found = text.strip()
    if not (found.isascii() and found.isdecimal() and 0 < len(found) < 10 and 0 < int(found) <= _MACHINES):
        raise ValueError("a whole number above 0")
    return int(found)


def machines(text: str) -> int | None:
    """How many machines; None for `off`: no limit.

    Raises:
        ValueError: no whole number from 1 to 10,000.
    """
    if is_off(text):
        return None
    try:
        return whole(text)
    except ValueError:
        raise ValueError("a whole number of machines above 0, or off for no limit") from None


def positive_duration(text: str) -> int:
    """A length of time above 0, in microseconds.

    Raises:
        ValueError: it is none.
    """
    duration = parse_duration(text)
    if duration == 0:
        raise ValueError("a duration above 0: 90s, 10m, 24h")
    return duration


def timeout(text: str) -> int | None:
    """A length of time in microseconds; None for `off`: never.

    Raises:
        ValueError: it is neither.
    """
    if is_off(text):
        return None
    try:
        return parse_duration(text)
    except ValueError:
        raise ValueError("a duration up to a year, or off for never: 600 (seconds), 10m, 0, off") from None


def _dollars(text: str, most: int) -> int | None:
    """Micro-dollars; None where the text is no amount from 0 to `most` dollars with at most six decimals."""
    found = text.strip().removeprefix("$")
    if not _NUMBER.fullmatch(found):
        return None
    amount = Decimal(found) * 1_000_000
    return int(amount) if amount == int(amount) and amount <= most * 1_000_000 else None


def rate(text: str) -> int:
    """Micro-dollars an hour, above 0.

    Raises:
        ValueError: it is no such price.
    """
    amount = _dollars(text, _RATE)
    if not amount:
        raise ValueError(f"dollars an hour above 0 and up to {_RATE:,}: 1.99")
    return amount


def price(text: str) -> int:
    """Micro-dollars an hour; 0 is free.

    Raises:
        ValueError: it is no such price.
    """
    amount = _dollars(text, _RATE)
    if amount is None:
        raise ValueError(f"dollars an hour from 0 to {_RATE:,}: 1.99, or 0 for free")
    return amount


def budget(text: str) -> int | None:
    """Micro-dollars above 0; None for `off`: no budget.

    Raises:
        ValueError: it is neither.
    """
    if is_off(text):
        return None
    amount = _dollars(text, _DOLLARS)
    if not amount:
        raise ValueError("dollars above 0 (1400.00), or off for no budget")
    return amount


def thresholds(text: str) -> tuple[int, ...]:
    """Shares of the budget in parts per thousand, ascending, each once; none for `off`.

    Raises:
        ValueError: one of them is no share above 0 and up to 1, to three decimals.
    """
    if is_off(text):
        return ()
    found = set()
    for part in text.split(","):
        one = part.strip()
        if not _NUMBER.fullmatch(one.removesuffix("%")):
            raise ValueError("shares of the budget above 0 and up to 1, with commas between: 0.5, 0.8, or off")
        thousandths = Decimal(one.removesuffix("%")) * (10 if one.endswith("%") else 1000)
        if not 0 < thousandths <= 1000 or thousandths != int(thousandths):
            raise ValueError("shares of the budget above 0 and up to 1, to three decimals: 0.5, 0.8, or off")
        found.add(int(thousandths))
    return tuple(sorted(found))


def webhook(text: str) -> str:
    """An http or https address.

    Raises:
        ValueError: it is none.
    """
    try:
        parts = urlsplit(text.strip())
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and text.isascii() and text.isprintable()
        fits = fits and not any(char.isspace() for char in text.strip())
        _ = parts.port
    except ValueError:
        fits = False
    if not fits:
        raise ValueError("an address: https://example.org/hook")
    return text.strip()


def alerts(text: str) -> frozenset[str]:
    """The kinds of notices that go to the webhook; none for `off`.

    Raises:
        ValueError: one of the words is none of `ALERTS`.
    """
    if is_off(text):
        return frozenset()
    found = frozenset(part.strip() for part in text.split(","))
    if not found <= ALERTS:
        raise ValueError("some of run_end, anomaly, budget, orphan, with commas between, or off")
    return found


def one_of(*choices: str) -> Parse:
    """A reader that takes these words and no other."""

    def parse(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return parse


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
    found = _SUBMIT_RATE.fullmatch(text.strip().lower())
    if found is None or int(found[1]) == 0:
        raise ValueError("a number above 0 in a second, minute or hour (1/s, 30/m, 500/h), or off for no limit")
    return int(found[1]), SECOND * UNITS[found[2]]
