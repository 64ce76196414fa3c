"""Strong entity tags: the hash of the bytes they stand for."""

from hashlib import blake2b

ANY = "*"


def etag_of(body: bytes) -> str:
    """The tag of a body, quoted as a header has it."""
    return f'"{blake2b(body, digest_size=12).hexdigest()}"'


def matches(header: str | None, etag: str) -> bool:
    """Whether `If-None-Match` names this tag: the client has these bytes already (RFC 9110, weak comparison)."""
    if header is None:
        return False
    named = {one.strip().removeprefix("W/") for one in header.split(",")}
    return etag in named or ANY in named
