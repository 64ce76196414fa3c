"""One question to a provider and its answer (or its failure), before anybody interprets it; how much one may hold."""

import re

import msgspec

MAX_DEPTH = 200
"""The deepest answers are under 20; the interpreter's own limit is 1,000 frames in all."""

MAX_VALUES = 1_000_000
"""The widest answers have 30,000: 100 runs of 266 values. 32 MB of `[],` would decode to 700 MB of lists."""

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """A poll exactly as it happened.

    `started_at` and `observed_at` are our clock (microseconds, UTC) when the question left and when the answer was
    whole. `path` is the endpoint asked (`/api/runs/list`); `req` the JSON text of the request's body; `body` the JSON
    text of the answer, or None where no answer came (then `status` is None and `error` says why). An answer that is
    not JSON is kept as a JSON string of its text (`text` is True).
    """

    source: str  # who was asked: `<provider>/<project>`, `local/<host>`
    path: str
    req: bytes = b"null"
    started_at: int
    observed_at: int
    status: int | None
    error: str | None = None
    body: bytes | None = None
    text: bool = False
    ep: str | None = None  # a free label of the recorder; routes nothing
    answered: bool
    """A 2xx of the expected shape, or `resource_not_exists`: the source told us something (PollRecorded). Else
    PollFailed."""
    sweep: str | None = None  # shared by the pages of one sweep (a hex id); None for a poll that is no page of a list
    complete: bool = False  # True on the last page of a sweep that has read every page of its filter
    server_time: int | None = None  # the provider's HTTP `Date`, where it sent one: for clock skew only
    extra: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    """Keys of a trace line we do not know; kept as they came."""


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
