"""Named kinds of work and how long their machines are kept warm, as settings."""

from typing import Final

import msgspec


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """What a task of this kind asks for where it says nothing itself; dstack's own words."""

    idle_duration: str
    creation_policy: str | None = None
    help: str


PROFILES: Final[dict[str, Profile]] = {
    "development": Profile(idle_duration="5m", help="you run it again within minutes"),
    "batch": Profile(idle_duration="15m", help="jobs that come every ten to fifteen minutes"),
    "infrequent": Profile(idle_duration="2m", help="now and then"),
    "one-off": Profile(idle_duration="1m", help="once"),
    "no-reuse": Profile(idle_duration="0m", creation_policy="create", help="a new machine, given back at once"),
}
