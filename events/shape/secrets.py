"""Replaces secrets in JSON text by commitments, before anything is stored.

It works token by token, so that all else stays as it came (number texts, key order, repeated keys), also in text that
only looks like JSON. These are secret: every value under a shape's declared paths, and anywhere the values of `env`,
`registry_auth` and `creds`, strings named like a password or token, and private keys.
"""

import json
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from steno.events.shape.shape import Node

PREFIX: Final = "steno:secret:"
COMMITMENT: Final = re.compile(rb"steno:secret:[0-9a-f]{64}")

Replace = Callable[[bytes], bytes]  # a secret's JSON token (string or number) → its replacement

_HOLDERS: Final = frozenset({"env", "environment", "registry_auth", "creds", "credentials"})
_NAMED: Final = frozenset(
    {
        "password", "passwd", "token", "access_token", "refresh_token", "secret", "secret_key", "client_secret",
        "api_key", "apikey", "private_key", "private", "authorization",
    }
)  # fmt: skip
_STRING: Final = rb'"(?:[^"\\]++|\\.)*+"'
_TOKEN: Final = re.compile(  # a value with its key, or an end of object or list: one step
    rb"(?:(%s)\s*:\s*)?(?:([{\[])|(%s)|([^\s{}\[\],:\"]+))|([}\]])" % (_STRING, _STRING), re.DOTALL
)
_KEY, _OPENS, _CLOSES = 1, 2, 5

_PEM: Final = re.compile(
    rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|(?=\"$)|$)", re.DOTALL
)

_LETTERS: Final = "".join(sorted({name[0] for name in _HOLDERS | _NAMED}))  # most keys fail at the first
_WORTH_A_LOOK: Final = re.compile(
    rf'"(?=[{_LETTERS}{_LETTERS.upper()}])(?i:(?:{"|".join(sorted(_HOLDERS))})"\s*:\s*[\[{{]\s*[^\]}}\s]'
    rf'|(?:{"|".join(sorted(_NAMED))})"\s*:\s*["\d-])'.encode()
)
_SHORTEST: Final = 8  # bytes of a value that is replaced in output
_LITERALS: Final = frozenset({b"true", b"false", b"null", b"\x00", b"\x01", b'""'})


class _Frame(NamedTuple):
    """An open object or list of the walk."""

    node: Node | None
    secret: bool
    assigned: bool = False  # its strings are `NAME=value`


def scrub(text: bytes, replace: Replace, node: Node | None = None, *, secret: bool = False) -> bytes:
    """`text` with every secret replaced. `node`: its place in a shape; `secret`: the whole text is secret."""
    # A quick look does not recognise an escaped key.
    suspect = secret or b"PRIVATE KEY" in text or b"\\u00" in text or _WORTH_A_LOOK.search(text) is not None
    if not suspect and (node is None or not node.may_hold_secret(text)):
        return text
    # The root frame holds one value, at `node` itself.
    frame = root = _Frame(None, secret)
    stack: list[_Frame] = []
    has_keys, copied = b"PRIVATE KEY" in text, 0
    out: list[bytes] = []
    for token in _TOKEN.finditer(text):
        group = token.lastindex or 0
        if group == _CLOSES:
            frame = stack.pop() if stack else root
            continue
        key = token[_KEY]
        name, holder, named = _NO_KEY if key is None else _read_key(key)
        below = node if frame is root else _step(frame.node, key, name)
        inside = frame.secret or (below is not None and below.secret)
        if group == _OPENS:
            stack.append(frame)
            frame = _Frame(below, inside or holder, holder and token[group] == b"[")
        elif inside or named or has_keys:
            new = _replaced(token[group], replace, secret=inside or named, assigned=frame.assigned)
            out += (text[copied : token.start(group)], new)
            copied = token.end(group)
    return b"".join((*out, text[copied:]))


def _step(node: Node | None, key: bytes | None, name: str) -> Node | None:
    if node is None:
        return None
    return node.each if key is None else node.key(name)


def _replaced(raw: bytes, replace: Replace, *, secret: bool, assigned: bool = False) -> bytes:
    """The replacement of a token, which may hold a private key even if it is not secret itself."""
    if raw in _LITERALS:
        return raw
    if not secret:
        return _PEM.sub(lambda key: replace(b'"' + key.group() + b'"')[1:-1], raw)
    if assigned and raw.startswith(b'"'):
        # `NAME=value` keeps its name; a name alone (the caller's own value) is not a secret.
        name, equals, value = raw.partition(b"=")
        return name + equals + _replaced(b'"' + value, replace, secret=True)[1:] if equals else raw
    return raw if COMMITMENT.fullmatch(raw.strip(b'"')) else replace(raw)


def is_secret_name(key: str) -> bool:
    """True if a value under a key of this name is always secret."""
    return key.lower() in _HOLDERS or key.lower() in _NAMED


@lru_cache(maxsize=4096)
def _read_key(token: bytes) -> tuple[str, bool, bool]:
    """A key's text, and whether it is a holder or a name, in any letter case."""
    text = secret_bytes(token).decode("utf-8", "replace")
    return text, text.lower() in _HOLDERS, text.lower() in _NAMED


_NO_KEY: Final = ("", False, False)


def secret_bytes(token: bytes) -> bytes:
    """The unescaped value of a JSON token: what a secret's commitment covers."""
    if not token.startswith(b'"'):
        return token
    try:
        return str(json.loads(token)).encode("utf-8", "surrogatepass")
    except ValueError:
        return token[1:-1]


def masked(text: bytes, values: Sequence[bytes]) -> tuple[bytes, int]:
    """The text with a `*` for each byte of these values, the longest first, so that places stay; and how much of it
    stays so, whatever follows: a value may begin at its end. Values below 8 bytes stay: `1` is in any text.
    """
    values = [value for value in values if len(value) >= _SHORTEST]
    for value in values:
        text = text.replace(value, b"*" * len(value))
    for at in range(max(0, len(text) - len(values[0]) + 1) if values else len(text), len(text)):
        if any(value.startswith(text[at:]) for value in values):
            return text, at
    return text, len(text)
