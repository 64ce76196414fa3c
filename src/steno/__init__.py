"""Steno: a flight recorder and control engine for GPU runs.

Public are these five names and what docs/providers.md lists beside them; the rest may change with any version. Each is
imported when it is first used.

The four packages are folders at the top of the source tree. Here are links to them, which an editable
install uses; a wheel has the folders themselves (`pyproject.toml`).
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from steno import testing
    from steno.engine.rules import sets as rules
    from steno.projections import frames
    from steno.projections.client import AsyncStenoClient as AsyncClient
    from steno.projections.client import StenoClient as Client

__all__ = ["AsyncClient", "Client", "frames", "rules", "testing"]

_PLACES = {
    "AsyncClient": ("steno.projections.client", "AsyncStenoClient"),
    "Client": ("steno.projections.client", "StenoClient"),
    "frames": ("steno.projections.frames", ""),
    "rules": ("steno.engine.rules.sets", ""),
    "testing": ("steno.testing", ""),
}


def __getattr__(name: str) -> object:
    if name not in _PLACES:
        raise AttributeError(f"module 'steno' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _PLACES[name]
    loaded = import_module(module)
    return getattr(loaded, attribute) if attribute else loaded
