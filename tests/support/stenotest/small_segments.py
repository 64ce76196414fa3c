"""Segments as small as can be: after every few events what is over leaves the engine's world, three to a segment.

With `STENO_TEST_SEGMENTS=small` the tests and every `steno` that they fork run so (`make test-long`). Nothing that they
look at may change.
"""

import importlib
import os

NAME = "STENO_TEST_SEGMENTS"
SMALL = {"SIZE": 3, "NEWEST": 0, "EVERY": 7, "AT_START": 1, "SETTLED": -1}
"""The constants of `steno.engine.fold`. SETTLED: what was seen in the last event may leave too."""
MODULES = (
    "steno.engine.state.segments",
    "steno.engine.fold.snapshot",
    "steno.engine.fold.snapshot_store",
    "steno.engine.live.live_world",
)


def shrink_if_asked() -> None:
    """Sets the constants in this process, in every module that has them.

    Raises:
        ValueError: the variable has another value than `small`, or no module has one of the constants any more.
    """
    value = os.environ.get(NAME)
    if value is None:
        return
    if value != "small":
        raise ValueError(f"{NAME} is {value!r}; the only value is 'small'")
    missing = set(SMALL)
    for module in map(importlib.import_module, MODULES):
        for constant in SMALL.keys() & vars(module).keys():
            setattr(module, constant, SMALL[constant])
            missing.discard(constant)
    if missing:
        raise ValueError(f"no module has {', '.join(sorted(missing))} any more")
