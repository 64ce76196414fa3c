"""How deeply a JSON text is nested and how many values it holds, asked before anything decodes it."""

from __future__ import annotations

import re

MAX_DEPTH = 200
"""The deepest answers of dstack and Slurm are under 20; the interpreter's own limit is 1,000 frames in all."""

MAX_VALUES = 1_000_000
"""The widest answers of dstack have 30,000: 100 runs of 266 values. 32 MB of `[],` would decode to 700 MB of lists."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def too_deep(text: bytes, limit: int = MAX_DEPTH) -> bool:
    """True if `text` nests deeper than `limit`.

    A decoder that runs into the interpreter's limit raises RecursionError, but a finalizer that the collector happens
    to run down there fails too, and that failure belongs to nobody. So a text is measured first, without recursion, at
    the speed of `bytes.translate`; strings are only cut out where the brackets alone look too deep.
    """
    if text.count(b"[") + text.count(b"{") <= limit:
        return False
    return _unclosed(text, limit) and _unclosed(_STRING.sub(b"", text), limit)


def too_wide(text: bytes, limit: int = MAX_VALUES) -> bool:
    """True if `text` may hold more than `limit` values; commas and brackets inside strings count too."""
    return sum(map(text.count, (b",", b"[", b"{"))) > limit


def _unclosed(text: bytes, limit: int) -> bool:
    """True if more than `limit` rounds of closing the innermost brackets leave some open."""
    left = text.translate(None, _NOT_BRACKETS)
    for _ in range(limit):
        before = len(left)
        if before <= limit:
            return False
        left = left.replace(b"[]", b"").replace(b"{}", b"")
        if len(left) == before:
            break
    return len(left) > limit
