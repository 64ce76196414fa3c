"""A question to a provider and its answer or failure, uninterpreted; how much an answer may hold."""

import re

import msgspec

MAX_DEPTH = 200  # the deepest answers have under 20; the interpreter stops at 1,000 frames
MAX_VALUES = 1_000_000  # the widest have 30,000; 32 MB of `[],` decode to 700 MB of lists
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?', re.DOTALL)
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """A poll exactly as it happened.

    `started_at` and `observed_at` are our clock (microseconds, UTC) when the question left and the answer was whole.
    `path` is the endpoint (`/api/runs/list`); `req` and `body` are JSON text. Without an answer `body` and `status` are
    None, and `error` says why. An answer that is not JSON is kept as a JSON string (`text` is True).
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
    ep: str | None = None  # a free label of the recorder, without effect
    answered: bool  # a 2xx of the expected shape, or `resource_not_exists`: PollRecorded, else PollFailed
    sweep: str | None = None  # shared by the pages of one sweep (a hex id); None: not a page
    complete: bool = False  # on the last page of a sweep that has read every page
    server_time: int | None = None  # the provider's HTTP `Date`: for clock skew only
    stamp: bytes | None = None  # of an imported or stored poll: epoch and boot time at `observed_at` (`clock.Stamp`)
    extra: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)  # unknown keys of a trace line


def too_deep(text: bytes) -> bool:
    """True if `text` nests deeper than `MAX_DEPTH`.

    Measured without recursion: at the interpreter's limit not only the decoder fails, but also any finalizer that the
    collector runs there. Strings are cut out (slow) only if the brackets alone look too deep.
    """
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return False
    return _unclosed(text) and _unclosed(_STRING.sub(b"", text))


def too_wide(text: bytes) -> bool:
    """True if `text` may hold more than `MAX_VALUES` values; counts commas and brackets inside strings too."""
    return len(text) > MAX_VALUES and sum(map(text.count, (b",", b"[", b"{"))) > MAX_VALUES


def _unclosed(text: bytes) -> bool:
    """True if more than `MAX_DEPTH` rounds of closing the innermost brackets leave some open."""
    left = text.translate(None, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        before = len(left)
        if before <= MAX_DEPTH:
            return False
        left = left.replace(b"[]", b"").replace(b"{}", b"")
        if len(left) == before:
            break
    return len(left) > MAX_DEPTH
