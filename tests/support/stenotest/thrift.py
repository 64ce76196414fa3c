"""What a process of the tests need not do again and again."""

import functools
import gc
import ssl
from typing import Any

import certifi


def read_authorities_once() -> None:
    """Every HTTP client that trusts the usual authorities reads their file, which takes 16 ms: from here on the first
    one's context is that of all in this process and of those forked from it.
    """
    make, usual = ssl.create_default_context, {"cafile": certifi.where()}
    once = functools.cache(lambda: make(**usual))

    def made(*args: Any, **options: Any) -> ssl.SSLContext:
        return once() if not args and options == usual else make(*args, **options)

    ssl.create_default_context = made
    made(**usual)


def pass_over_what_stays() -> None:
    """The collector of garbage no longer looks through what there is now."""
    gc.collect()
    gc.freeze()
