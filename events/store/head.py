"""Where a record ends: enough to prove later that nothing before was changed."""

import msgspec


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The newest position and the hash of the whole chain up to it."""

    position: int
    """0 for an empty record."""
    hash: str
    """64 hex digits."""
