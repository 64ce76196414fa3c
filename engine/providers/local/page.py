"""One answer of this machine."""

import msgspec

SHORT = 100
"""Ended things in a listing that is not the whole history: as many as a page of dstack's has at most."""
WHOLE = 1_000_000
"""The `limit` that says: all of them."""


class AnswerPage(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    req: bytes
    body: bytes
    complete: bool
    """Nothing was left out."""


def page(host: str, items: list[bytes], *, limit: int, complete: bool) -> AnswerPage:
    """The answer made of these items, each JSON text."""
    return AnswerPage(req=question(host, limit), body=b"[" + b",".join(items) + b"]", complete=complete)


def question(host: str, limit: int) -> bytes:
    """What is asked, as JSON text."""
    return msgspec.json.encode({"project_name": host, "limit": limit})
