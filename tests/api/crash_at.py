"""`steno …` whose HTTP server fails once a file is there: `python crash_at.py FILE HOW WORDS…`.

HOW is `raises` (an error in the server's own loop) or `returns` (it ends without one).
"""

import sys
from pathlib import Path

import uvicorn

there, how, *words = sys.argv[1:]
_tick = uvicorn.Server.on_tick


async def on_tick(self: uvicorn.Server, counter: int) -> bool:
    """As uvicorn's, ten times a second in its loop."""
    if Path(there).exists():
        if how == "raises":
            raise RuntimeError("the loop is broken")
        return True
    return await _tick(self, counter)


uvicorn.Server.on_tick = on_tick  # type: ignore[method-assign]
sys.argv = ["steno", *words]
if __name__ == "__main__":
    from steno.cli.main import main

    main()
