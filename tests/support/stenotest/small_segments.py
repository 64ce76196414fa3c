"""Segments as small as can be: after every few events what is over leaves the engine's world, three to a segment.

With `STENO_TEST_SEGMENTS=small` the tests and every `steno` that they fork run so (`make test-long`). Nothing that they
look at may change.
"""

import importlib
import os

NAME = "STENO_TEST_SEGMENTS"
SMALL = {"SIZE": 3, "NEWEST": 0, "EVERY": 7, "AT_START": 1, "SETTLED": -1}
"""The constants of `engine.fold`. SETTLED: what was seen in the last event may leave too."""
MODULES = ("engine.fold.segments", "engine.fold.snapshot", "engine.fold.snapshot_store", "engine.live.live_world")


def shrink_if_asked() -> None:
    """Sets the constants in this process, in every module that has them.

    Raises:
        ValueError: the variable has another value than `small`, or no module has one of the constants any more.
    """
    asked = os.environ.get(NAME)
    if asked is None:
        return
    if asked != "small":
        raise ValueError(f"{NAME} is {asked!r}; the only value is 'small'")
    missing = set(SMALL)
    for module in map(importlib.import_module, MODULES):
        for constant in SMALL.keys() & vars(module).keys():
            setattr(module, constant, SMALL[constant])
            missing.discard(constant)
    if missing:
        raise ValueError(f"no module has {', '.join(sorted(missing))} any more")
