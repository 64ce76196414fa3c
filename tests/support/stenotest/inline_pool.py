"""A pool that works on every piece here, one after another, and counts them."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class InlinePool:
    """As many pieces at once as `size`; `maps` is how many pieces each call had."""

    size: int
    least: int = 0
    maps: list[int] = field(default_factory=list)

    def map(self, work: Callable[[Any], Any], pieces: Sequence[Any], done: Callable[[Any], None]) -> list[Any]:
        self.maps.append(len(pieces))
        values = []
        for piece in pieces:
            values.append(pickle.loads(pickle.dumps(work))(pickle.loads(pickle.dumps(piece))))
            done(piece)
        return values
