"""What a setting is: its name, its variables, its default, and what its text must be."""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from engine.settings.values import Parse
from events.errors import StenoError

Values = dict[str, tuple[str, str]]  # setting name → (value, where it comes from)


class Known(msgspec.Struct, frozen=True, kw_only=True):
    """One setting Steno knows."""

    name: str  # as in `steno.toml` (`api.url` is `url` under `[api]`), flags and `steno config`
    variables: tuple[str, ...] = ()  # environment variables that set it, the strongest first
    default: str | None = None
    site_default: str | None = None  # its default where a variable of the first site, `AMD_…`, sets any setting
    help: str
    secret: bool = False
    presence_only: bool = False  # only whether it is set is ever kept
    question: str | None = None  # what `steno init` asks where the setting's provider is chosen
    parse: Parse | None = None  # gives the value its text means; ValueError says what it must be


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
