"""A stage told in rows: runs are brought to machines by hand, and every look shows all of them again."""

from typing import Any

from steno.engine.decide.decisions import Decision
from steno.engine.state.policy import Policy
from steno.events import types
from steno.events.clock import SECOND
from stenotest.simulation import Simulation, run_row, vm_row


class RowSimulation:
    """`rows` and `shown` are what the next look shows of machines and runs; `shared` and eleven slots are ours."""

    def __init__(self, policy: Policy) -> None:
        self.stage = Simulation(policy)
        for fleet in ("shared", *(f"steno-slot-{n}" for n in range(1, 12))):
            self.stage.ensured(fleet)
        self.rows: dict[str, dict[str, Any]] = {}
        self.shown: dict[str, dict[str, Any]] = {}

    def starts(self, name: str, on: str, *, fleet: str = "shared", **row: Any) -> None:
        """The run was handed over and runs on that machine, a new one unless it is known."""
        if f"p-{name}" not in {run.provider_id for run in self.stage.world.state.runs.all()}:
            self.stage.taken(name)
        self.stage.wait(1)
        self.rows[on] = {"created": self.stage.now, "fleet": fleet, **row} | self.rows.get(on, {}) | {"status": "busy"}
        self.shown[name] = {"status": "running", "on": on, "submitted": self.stage.now - SECOND // 2}
        if self.rows[on]["created"] == self.stage.now:
            self.shown[name]["submitted"] = self.stage.now - SECOND
        self.look()

    def ends(self, name: str, **ending: Any) -> None:
        """The run is over and its machine idle."""
        self.stage.wait(1)
        on = self.shown[name]["on"]
        self.shown[name] |= {"status": "done", "finished": self.stage.now, "exit_status": 0, **ending}
        self.rows[on]["status"] = "idle"
        self.look()

    def look(self) -> None:
        """A poll of all runs and one of all machines."""
        self.stage.runs(*(run_row(name, **row) for name, row in reversed(self.shown.items())))
        self.stage.machines(*(vm_row(name, **row) for name, row in self.rows.items()))

    def warm(self, name: str, on: str, *, submitter: str = "ada", fleet: str = "shared", **row: Any) -> None:
        """A machine made for a run of that name, which is over."""
        self.stage.request(name, submitter=submitter)
        self.stage.tell(types.RunPlaced(run_id=f"run-{name}", provider="dstack"))
        self.starts(name, on, fleet=fleet, **row)
        self.ends(name)


def holds(decisions: tuple[Decision, ...]) -> list[tuple[str, str]]:
    """(run id, why) of the runs that are held."""
    return [(decision.run_id, decision.why) for decision in decisions if isinstance(decision, types.RunHeld)]


def places(decisions: tuple[Decision, ...]) -> list[types.RunPlaced]:
    """The runs that are placed."""
    return [decision for decision in decisions if isinstance(decision, types.RunPlaced)]
