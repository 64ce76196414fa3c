"""One question to a provider and its answer (or its failure), before anybody interprets it."""

import msgspec


class Poll(msgspec.Struct, frozen=True, kw_only=True):
    """A poll exactly as it happened.

    `started_at` and `observed_at` are our clock (microseconds, UTC) when the question left and when the answer was
    whole. `path` is the endpoint asked (`/api/runs/list`); `req` the JSON text of the request's body; `body` the JSON
    text of the answer, or None where no answer came (then `status` is None and `error` says why). An answer that is
    not JSON is kept as a JSON string of its text (`text` is True).
    """

    source: str
    """Who was asked: `dstack/<project>`, `local/<host>`, `slurm/<cluster>`."""
    path: str
    req: bytes = b"null"
    started_at: int
    observed_at: int
    status: int | None
    error: str | None = None
    body: bytes | None = None
    text: bool = False
    ep: str | None = None
    """A free label of the recorder; routes nothing."""
    answered: bool
    """A 2xx of the expected shape, or `resource_not_exists`: the source told us something (PollRecorded). Else
    PollFailed."""
    sweep: str | None = None
    """Shared by the pages of one sweep (a hex id); None for a poll that is no page of a list."""
    complete: bool = False
    """True on the last page of a sweep that has read every page of its filter."""
    server_time: int | None = None
    """The provider's HTTP `Date`, where it sent one: for clock skew only."""
    extra: dict[str, msgspec.Raw] = msgspec.field(default_factory=dict)
    """Keys of a trace line we do not know; kept as they came."""
