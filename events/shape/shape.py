"""The shape of an answer, given by the engine as data: which values are volatile, which cold, which secret.

A path is keys joined by dots; `name[]` is every element of the list under `name`, `*` every key of an object:
`jobs[].attempts[].checked_at`, `task.env.*`.
"""

import re
from collections.abc import Callable
from functools import cache, cached_property
from typing import Final

import msgspec

LINES: Final = "lines"  # `BodyShape.items` of an answer that is a text


class BodyShape(msgspec.Struct, frozen=True, kw_only=True):
    kind: str  # what an item is: `run`, `vm`, `provider_event`, `fleet` or `other`
    items: str = ""  # "": the answer is an item; `[]`: a list of them; `LINES`: a text
    identity: str = "id"  # the key that names an item; of a line, the number of its column (`|` between), from 0
    volatile: tuple[str, ...] = ()  # paths whose values change without an event; kept with the poll
    cold: tuple[str, ...] = ()  # paths whose values rarely change; stored apart, once
    secret: tuple[str, ...] = ()  # paths of secrets besides the defaults of `steno.events.shape.secrets`


Router = Callable[[str, bytes], BodyShape | None]  # (path, req) → shape; None: stored as one part


def no_shapes(_path: str, _req: bytes, /) -> BodyShape | None:
    """The router that knows no endpoint."""
    return None


class Node:
    """A step of compiled paths."""

    def __init__(self) -> None:
        self.keys: dict[str, Node] = {}
        self.any: Node | None = None
        self.each: Node | None = None
        self.volatile = self.cold = self.secret = False

    def key(self, name: str) -> "Node | None":
        return self.keys.get(name, self.any)

    def may_hold_secret(self, text: bytes) -> bool:
        """True if a declared secret may be in JSON text at this step, by its unescaped keys: a quick look."""
        return self._guard.search(text) is not None

    @cached_property
    def _guard(self) -> re.Pattern[bytes]:
        names = _guarded(self, "")
        if "" in names:
            return re.compile(b"")
        if not names:
            return re.compile(b"(?!)")
        keys = b"|".join(re.escape(name.encode()) for name in sorted(names))
        return re.compile(rb'"(?:%s)"\s*:\s*(?!null|\{\s*\}|\[\s*\]|"")' % keys)


def _guarded(node: Node, name: str) -> set[str]:
    """The nearest keys above the secrets declared here and below."""
    if node.secret:
        return {name}
    names: set[str] = set()
    below = [*node.keys.items(), (name, node.any), (name, node.each)]
    for key, step in below:
        if step is not None:
            names |= _guarded(step, key)
    return names


@cache
def compile_paths(shape: BodyShape | None) -> Node:
    """The paths of a shape as one tree, walked beside an item."""
    root = Node()
    for mark in ("volatile", "cold", "secret") if shape is not None else ():
        for path in getattr(shape, mark):
            setattr(_step_to(root, path), mark, True)
    return root


@cache
def compile_answer(shape: BodyShape | None) -> Node:
    """As `compile_paths`, beside the whole answer."""
    node = compile_paths(shape)
    if shape is None or not shape.items or shape.items == LINES:
        return node
    whole = Node()
    whole.each = node
    return whole


def _step_to(node: Node, path: str) -> Node:
    for name in path.split("."):
        bare = name.rstrip("[]")
        if bare == "*":
            node.any = node.any or Node()
            node = node.any
        elif bare:
            node = node.keys.setdefault(bare, Node())
        for _ in range(name.count("[]")):
            node.each = node.each or Node()
            node = node.each
    return node
