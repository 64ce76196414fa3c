"""Settings: the definition of one (its name, its variables, its default), and the parsers of their texts."""

import ipaddress
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from steno.events.clock import SECOND, parse_duration
from steno.events.errors import StenoError

_DOLLARS: Final = 1_000_000_000
_RATE: Final = 10_000  # dollars an hour that no machine costs
_MACHINES: Final = 10_000
_NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,9})?")
_OFF: Final = frozenset({"off", "none", "unlimited"})
_NAME: Final = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9_-]{0,62})?(\.[A-Za-z0-9][A-Za-z0-9_-]{0,62})*\.?")

ALERTS: Final = frozenset(
    {"run_end", "anomaly", "budget", "orphan"}
)  # kinds of notices that go to the webhook, if not said
_ALERTS: Final = (*("run_end", "anomaly", "budget", "orphan"), *("start", "stuck", "wait", "vanished"))  # that can go
ROUTED: Final = frozenset({"run_end", "stuck", "wait", "vanished", "budget"})  # those that go to another route
DAY_MINUTES: Final = 24 * 60

Parse = Callable[[str], Any]


def is_off(text: str) -> bool:
    """True if the text switches its setting off: `off`, `none`, `unlimited`."""
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


flag = one_of("true", "false")


def _number(text: str, *, least: int, most: int, expected: str = "a whole number") -> int:
    digits = text.strip()
    if not (digits.isascii() and digits.isdecimal() and len(digits) < 10 and least <= int(digits) <= most):
        raise ValueError(expected)
    return int(digits)


whole = partial(_number, least=1, most=_MACHINES, expected="a whole number above 0")
port = partial(_number, least=0, most=65_535, expected="a port from 1 to 65535, or 0 for any that is free")
machines = _or_off(
    partial(_number, least=0, most=_MACHINES), "a whole number of machines, 0 to start nothing, or off for no limit"
)
"""How many machines; None: no limit."""


def positive_duration(text: str) -> int:
    """A length of time above 0, in microseconds."""
    duration = parse_duration(text)
    if duration == 0:
        raise ValueError("a duration above 0: 90s, 10m, 24h")
    return duration


timeout = _or_off(parse_duration, "a duration up to a year, or off for never: 600 (seconds), 10m, 0, off")
"""A length of time in microseconds; None: never."""
busy_timeout = _or_off(positive_duration, "a duration above 0, or off for never: 2h, 90m, off")


def _bytes(text: str, *, least: float, expected: str) -> int:
    size = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?)\s*([KMGT]?)(i?)B?", text.strip(), re.IGNORECASE)
    step = 1024 if size is not None and size[3] else 1000
    count = -1 if size is None else float(size[1]) * step ** " KMGT".index(size[2].upper() or " ")
    if count < least:
        raise ValueError(expected)
    return int(count)


memory = partial(_bytes, least=64e6, expected="a size of at least 64MB: 16GB, 512MB")
"""Bytes: 16GB, 512MB, 16GiB; at least 64 MB."""
size = partial(_bytes, least=0, expected="a size: 8MB, 24MiB, 0")  # bytes: 8MB, 24MiB, 0


def days(text: str) -> int:
    """Days; 0: off."""
    expected = "a number of days up to 3650, or off"
    return 0 if text.strip().lower() == "off" else _number(text, least=0, most=3_650, expected=expected)


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
    digits = text.strip().removeprefix("$")
    amount = Decimal(digits) * 1_000_000 if _NUMBER.fullmatch(digits) else Decimal(-1)
    if amount != int(amount) or not least <= amount <= most * 1_000_000:
        raise ValueError(expected)
    return int(amount)


rate = partial(_dollars, expected=f"dollars an hour above 0 and up to {_RATE:,}: 1.99")
price = partial(_dollars, least=0, expected=f"dollars an hour from 0 to {_RATE:,}: 1.99, or 0 for free")
budget = _or_off(partial(_dollars, most=_DOLLARS), "dollars above 0 (1400.00), or off for no budget")
"""Above 0; None: no budget."""


_LIMIT: Final = "0 or more, or off for no limit"
limit_usd = _or_off(partial(_dollars, least=0, most=_DOLLARS), f"dollars, {_LIMIT}: $20, 99.50")
limit_hours = _or_off(partial(_dollars, least=0, most=_DOLLARS), f"GPU-hours, {_LIMIT}: 500, 0.5")
"""Millionths of GPU-hours."""
limit_count = _or_off(partial(_number, least=0, most=_MACHINES), f"a whole number, {_LIMIT}: 2")


def _thresholds(text: str) -> tuple[int, ...]:
    shares = set()
    for part in text.split(","):
        share, percent, rest = part.strip().partition("%")
        thousandths = (
            Decimal(share) * (10 if percent else 1000) if _NUMBER.fullmatch(share) and not rest else Decimal(0)
        )
        if not 0 < thousandths <= 1000 or thousandths != int(thousandths):
            raise ValueError
        shares.add(int(thousandths))
    return tuple(sorted(shares))


thresholds = _or_off(
    _thresholds,
    "shares of the budget above 0 and up to 1, to three decimals, with commas between: 0.5, 0.8, or off",
    (),
)  # in parts per thousand, ascending, each once


# -- words and addresses


def _alerts(text: str) -> frozenset[str]:
    kinds = frozenset(part.strip() for part in text.split(","))
    if not kinds <= {*_ALERTS, "end"}:
        raise ValueError
    return frozenset("run_end" if kind == "end" else kind for kind in kinds)


alerts = _or_off(_alerts, f"some of {', '.join(_ALERTS)}, with commas between, or off", frozenset())
"""The kinds of notices that go to a route; `end` is `run_end`."""


class QuietHours(NamedTuple):
    """Every day from one minute of the day to another, which may be of the next day."""

    since: int
    until: int
    zone: ZoneInfo | None  # None: that of this machine


def quiet_hours(text: str) -> QuietHours:
    expected = "hours of the day, and a time zone if it is not this machine's: 22:00-07:00, 22:00-07:00 Europe/Paris"
    times = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d) ?- ?([01]?\d|2[0-3]):([0-5]\d)(?: +(\S+))?", text.strip())
    if times is None:
        raise ValueError(expected)
    since, until = (60 * int(times[hour]) + int(times[hour + 1]) for hour in (1, 3))
    try:
        zone = None if times[5] is None else ZoneInfo(times[5])
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(expected) from None
    if since == until:
        raise ValueError(expected)
    return QuietHours(since, until, zone)


def route_url(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://\S+", text.strip()):
        raise ValueError("an address: https://example.org/hook, mailto://user:password@server?to=you@example.org")
    return text.strip()


def host(text: str) -> str:
    """An address or a host name to listen at, without brackets and port."""
    name = text.strip().removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address(name)
    except ValueError:
        if not _NAME.fullmatch(name) or name.replace(".", "").isdecimal():
            raise ValueError("an address or a host name without a port: 127.0.0.1, ::1, 0.0.0.0, localhost") from None
    return name


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
    unique = dict.fromkeys(part.strip() for part in text.split(","))
    for origin in unique:
        parts = _web(origin)
        if parts.username is not None or parts.port == 0 or origin.count("/") != 2 or set("?#*") & set(origin):
            raise ValueError
    return tuple(dict.fromkeys(map(str.lower, unique)))


origins = _or_off(
    _origins, "origins with commas between, each scheme and host alone: https://front.example, or off", ()
)
"""Origins as a browser sends them (`https://front.example`, `http://localhost:3000`)."""


Values = dict[str, tuple[str, str]]  # setting name → (value, where it comes from)


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that Steno knows."""

    name: str  # as in `steno.toml` (`api.url` is `url` under `[api]`), flags and `steno config`
    variables: tuple[str, ...] = ()  # environment variables that set it, the strongest first
    default: str | None = None
    site_default: str | None = None  # its default where a variable of the first site, `AMD_…`, sets any setting
    help: str
    secret: bool = False
    presence_only: bool = False  # only whether it is set is ever kept
    question: str | None = None  # what `steno init` asks where the setting's provider is chosen
    parse: Parse | None = None  # gives the value its text means; ValueError says what it must be


def setting(name: str, *variables: str, **more: Any) -> Callable[..., Known]:
    """A setting without its help, which the caller gives."""
    return partial(Known, name=name, variables=variables, **more)


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one provider, and what follows from them."""

    provider: str
    known: tuple[Known, ...] = ()  # their names begin with `<provider>.`
    variables: Mapping[str, tuple[str, ...]] = {}
    """Further variables of general settings, weaker than those of Steno: setting name → variables."""
    own_files: Callable[[Values, Path], StenoError | None] = lambda _values, _home: None
    """Fills in what the provider's own files say, for values without a stronger source; the second argument is the
    user's home. Gives the error to raise if a needed value is then missing.
    """
    schedules: bool = False
    """It has a queue of its own and gives each run its machine: Steno's limit of machines does not apply."""
    hosted: bool = False
    """Its machines are runs of another provider, which bears their cost and has their limits; each holds one run."""
    rates: str | None = None  # the setting without which none of its machines has a price; None: it gives prices itself
    prices: Callable[[Callable[[str], str | None]], Mapping[str, int]] = lambda _value: {}
    """Price of one GPU of each model by the provider's settings, micro-dollars an hour; the argument gives a value."""
    hourly: str | None = None
    """The setting with the price of each of its machines, micro-dollars an hour (0: free); None: each has its own."""
