"""`python without.py DEFENCE… < job.json`: the judge with these defences taken away, to show what each is worth."""

import json
import statistics
import sys
import tempfile
from pathlib import Path

from engine.kernel.machine import here, judge, measure
from engine.kernel.machine.frames import Teller

TAKEN_AWAY = {
    "comparison": lambda: setattr(judge.Judge, "_compared", _believed),
    "clock": lambda: setattr(measure, "suspicion", lambda _found: None),
    "around": lambda: setattr(measure, "suspicion", _only_in_calls),
    "twin": lambda: setattr(judge.Judge, "_idle", _by_its_own_word),
    "threads": lambda: setattr(here._Process, "threads", lambda _self: None),
    "room": lambda: setattr(judge, "_KEPT", 1),
    "users": lambda: (here.USERS.update(run=0, open=0), setattr(here, "keep_to_itself", lambda: None)),
}
"""Each by its name. Of the comparison the tests stay, as they were before every timed call was checked."""

suspicion = measure.suspicion
_compared = judge.Judge._compared


def _believed(self: judge.Judge, case: dict, outputs: bytes, right: dict) -> dict:
    return {"passed": True, "max_error": 0.0} if "repeats" in case else _compared(self, case, outputs, right)


def _only_in_calls(found: dict) -> str | None:
    """Nor by what passed and was worked for a call: a busy machine reads both late, when work after it has begun."""
    return suspicion({**found, "idle_ms": 0.0, "walls_ms": [], "works_ms": []})


def _by_its_own_word(self: judge.Judge, case: dict) -> dict:
    """How long an answer takes, asked of the solution."""
    cell = self._opened()
    self._configure(cell, case, "pings")
    overhead = statistics.median(max(self._ping(cell, "pings")) for _ in range(15))
    cell.end()
    return {"overhead_ms": overhead, "overhead_work_ms": overhead, "idle_ms": 0.0}


def main() -> int:
    for name in sys.argv[1:]:
        TAKEN_AWAY[name]()
    job = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        return judge.Judge(job, here.Here(Path(folder)), Teller(job["key"])).run()


if __name__ == "__main__":
    sys.exit(main())
