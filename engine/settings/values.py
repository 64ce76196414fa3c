"""The meaning of a setting's text: each function gives the value, or a ValueError that says what it must be."""

import ipaddress
import re
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from events.clock import SECOND, parse_duration

_DOLLARS: Final = 1_000_000_000
_RATE: Final = 10_000  # dollars an hour that no machine costs
_MACHINES: Final = 10_000
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")
_OFF: Final = frozenset({"off", "none", "unlimited"})
_NAME: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9_-]{0,62})?(\.[A-Za-z0-9][A-Za-z0-9_-]{0,62})*\.?")

ALERTS: Final = frozenset({"run_end", "anomaly", "budget", "orphan"})  # kinds of notices that can go to the webhook

Parse = Callable[[str], Any]


def is_off(text: str) -> bool:
    """Whether the text switches its setting off: `off`, `none`, `unlimited`."""
    return text.strip().lower() in _OFF


def _or_off(parse: Parse, expected: str, off: object = None) -> Parse:
    """Parses like `parse`, and gives `off` for a text that switches the setting off."""

    def read(text: str) -> Any:
        if is_off(text):
            return off
        try:
            return parse(text)
        except (ValueError, KeyError):
            raise ValueError(expected) from None

    return read


def one_of(*choices: str) -> Parse:

    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return read


def _number(text: str, *, least: int, most: int, expected: str = "a whole number") -> int:
    found = text.strip()
    if not (found.isascii() and found.isdecimal() and len(found) < 10 and least <= int(found) <= most):
        raise ValueError(expected)
    return int(found)


whole = partial(_number, least=1, most=_MACHINES, expected="a whole number above 0")
port = partial(_number, least=0, most=65_535, expected="a port from 1 to 65535, or 0 for any that is free")
machines = _or_off(whole, "a whole number of machines above 0, or off for no limit")
"""How many machines; None: no limit."""


def positive_duration(text: str) -> int:
    """A length of time above 0, in microseconds."""
    duration = parse_duration(text)
    if duration == 0:
        raise ValueError("a duration above 0: 90s, 10m, 24h")
    return duration


timeout = _or_off(parse_duration, "a duration up to a year, or off for never: 600 (seconds), 10m, 0, off")
"""A length of time in microseconds; None: never."""


def memory(text: str) -> int:
    """Bytes: 16GB, 512MB, 16GiB; at least 64 MB."""
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", text.strip(), re.IGNORECASE)
    step = 1024 if found is not None and found[3] else 1000
    size = 0 if found is None else float(found[1]) * step ** " KMGT".index(found[2].upper() or " ")
    if size < 64e6:
        raise ValueError("a size of at least 64MB: 16GB, 512MB")
    return int(size)


def cpus(text: str) -> float:
    """Processors, also a part of one."""
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", text.strip()) or float(text) < 0.1:
        raise ValueError("a number of processors of at least 0.1: 4, 1.5")
    return float(text)


def isolation(text: str) -> str:
    """Always on."""
    if text.strip().lower() not in {"true", "1", "yes", "on"}:
        raise ValueError("true: strangers' kernels never run without a container (your own: --unsafe-here)")
    return "true"


def _submit_rate(text: str) -> tuple[int, int]:
    count, _, unit = text.strip().lower().partition("/")
    return _number(count, least=1, most=999_999), SECOND * {"s": 1, "m": 60, "h": 3600}[unit.strip()]


submit_rate = _or_off(
    _submit_rate, "a number above 0 in a second, minute or hour (1/s, 30/m, 500/h), or off for no limit"
)
"""How many in how long: `30/m` is (30, 60 seconds in microseconds); None: no limit."""


# -- money: micro-dollars


def _dollars(text: str, *, least: int = 1, most: int = _RATE, expected: str = "dollars") -> int:
    found = text.strip().removeprefix("$")
    amount = Decimal(found) * 1_000_000 if _NUMBER.fullmatch(found) else Decimal(-1)
    if amount != int(amount) or not least <= amount <= most * 1_000_000:
        raise ValueError(expected)
    return int(amount)


rate = partial(_dollars, expected=f"dollars an hour above 0 and up to {_RATE:,}: 1.99")
price = partial(_dollars, least=0, expected=f"dollars an hour from 0 to {_RATE:,}: 1.99, or 0 for free")
budget = _or_off(partial(_dollars, most=_DOLLARS), "dollars above 0 (1400.00), or off for no budget")
"""Above 0; None: no budget."""


def _thresholds(text: str) -> tuple[int, ...]:
    found = set()
    for part in text.split(","):
        share, percent, rest = part.strip().partition("%")
        thousandths = (
            Decimal(share) * (10 if percent else 1000) if _NUMBER.fullmatch(share) and not rest else Decimal(0)
        )
        if not 0 < thousandths <= 1000 or thousandths != int(thousandths):
            raise ValueError
        found.add(int(thousandths))
    return tuple(sorted(found))


thresholds = _or_off(
    _thresholds,
    "shares of the budget above 0 and up to 1, to three decimals, with commas between: 0.5, 0.8, or off",
    (),
)  # in parts per thousand, ascending, each once


# -- words and addresses


def _alerts(text: str) -> frozenset[str]:
    found = frozenset(part.strip() for part in text.split(","))
    if not found <= ALERTS:
        raise ValueError
    return found


alerts = _or_off(_alerts, "some of run_end, anomaly, budget, orphan, with commas between, or off", frozenset())
"""The kinds of notices that go to the webhook."""


def host(text: str) -> str:
    """An address or a host name to listen at, without brackets and port."""
    found = text.strip().removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(found)
    except ValueError:
        if not _NAME.fullmatch(found) or found.replace(".", "").isdecimal():
            raise ValueError("an address or a host name without a port: 127.0.0.1, ::1, 0.0.0.0, localhost") from None
    return found


def _web(text: str) -> SplitResult:
    parts = urlsplit(text)
    plain = text.isascii() and text.isprintable() and " " not in text
    if not plain or parts.scheme not in {"http", "https"} or not parts.hostname or (parts.port or 0) < 0:
        raise ValueError
    return parts


def webhook(text: str) -> str:
    try:
        _web(text.strip(" "))
    except ValueError:
        raise ValueError("an address: https://example.org/hook") from None
    return text.strip()


def _origins(text: str) -> tuple[str, ...]:
    found = dict.fromkeys(part.strip() for part in text.split(","))
    for origin in found:
        parts = _web(origin)
        if parts.username is not None or parts.port == 0 or origin.count("/") != 2 or set("?#*") & set(origin):
            raise ValueError
    return tuple(dict.fromkeys(map(str.lower, found)))


origins = _or_off(
    _origins, "origins with commas between, each scheme and host alone: https://front.example, or off", ()
)
"""Origins as a browser sends them (`https://front.example`, `http://localhost:3000`)."""
