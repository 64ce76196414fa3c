"""`why_not_warm` names every cause for which a run started cold; `why_up` why a machine has not gone."""

from typing import Any

from stenotest.dstack_history import START
from stenotest.simulation import Simulation, run_row, vm_row

from steno.engine.decide.why import why_not_warm, why_up
from steno.engine.state.policy import Policy
from steno.events import types
from steno.events.clock import SECOND

PLAIN = Policy(budget_total=None)
POOL = Policy(mode="pool", budget_total=None)


class EventWorld:
    """A stage told in rows: machines and runs by name, shown again at every look."""

    def __init__(self, policy: Policy = PLAIN) -> None:
        self.stage = Simulation(policy)
        for fleet in ("shared", "steno-slot-1", "steno-slot-2"):
            self.stage.ensured(fleet)
        self.vms: dict[str, dict[str, Any]] = {}
        self.jobs: dict[str, dict[str, Any]] = {}

    def look(self, seconds: int = 5, times: int = 1) -> None:
        for _ in range(times):
            self.stage.wait(seconds)
            self.stage.runs(*(run_row(name, **row) for name, row in reversed(self.jobs.items())))
            self.stage.machines(*(vm_row(name, **row) for name, row in self.vms.items()))

    def hand_over(self, name: str, **task: Any) -> int:
        self.stage.request(name, **task)
        self.stage.tell(types.RunPlaced(run_id=f"run-{name}", provider="dstack"))
        self.stage.taken(name)
        return self.stage.now

    def cold(
        self, name: str, on: str, *, submitter: str = "ada", task: dict[str, Any] | None = None, **row: Any
    ) -> None:
        submitted = self.hand_over(name, submitter=submitter, **(task or {}))
        self.stage.wait(5)
        self.vms[on] = {"status": "busy", "created": self.stage.now, **row}
        self.jobs[name] = {"status": "running", "on": on, "submitted": submitted}
        self.look()

    def over(self, name: str) -> None:
        self.stage.wait(1)
        on = self.jobs[name]["on"]
        self.jobs[name] |= {"status": "done", "finished": self.stage.now, "exit_status": 0}
        self.vms[on] |= {"status": "idle"}
        self.look(0)

    def gone(self, on: str, **row: Any) -> None:
        self.vms[on] |= {"status": "terminated", "finished_at": self.stage.now, **row}
        self.look()

    def why(self, name: str) -> tuple[str, ...]:
        return tuple(
            sentence.split(": ", 1)[-1] for sentence in why_not_warm(self.stage.world.state, self.stage.run(name))
        )

    def up(self, now: int | None = None) -> tuple[str, ...]:
        made = self.stage
        return why_up(made.world.state, made.vm("m"), made.policy, made.now if now is None else now)


def idle_machine(policy: Policy = PLAIN, **row: Any) -> EventWorld:
    """Run `a` has ended on the machine `m`; `row` as of `cold`."""
    world = EventWorld(policy)
    world.cold("a", "m", **row)
    world.over("a")
    return world


# -- why not warm -----------------------------------------------------------------------------------------------------


def test_the_first_run_of_all_had_no_machine_to_go_to() -> None:
    world = EventWorld()
    world.cold("a", "m")
    assert world.stage.run("a").start == "cold"
    assert world.why("a") == ("There was no earlier machine.",)


def test_a_warm_run_has_nothing_to_explain() -> None:
    world = idle_machine()
    submitted = world.hand_over("b")
    world.vms["m"]["status"] = "busy"
    world.jobs["b"] = {"status": "running", "on": "m", "submitted": submitted}
    world.look()
    assert world.stage.run("b").start == "warm"
    assert world.why("b") == ()


def test_a_window_that_was_over_says_by_how_long() -> None:
    world = idle_machine()
    world.look(50, 12)
    world.gone("m", reason="idle_timeout")
    world.stage.wait(115)
    world.cold("b", "n")
    (why,) = world.why("b")
    assert why.startswith("it had ended 2 m earlier (idle timeout); its idle window had ended ")


def test_a_machine_that_differs_says_in_what() -> None:
    world = idle_machine(gpu="MI210", spot=True)
    world.cold("b", "n", task={"resources": {"gpu": "MI300X"}, "backends": ["hotaisle"]})
    (why,) = world.why("b")
    assert why.split("; ") == [
        "GPU: MI300X requested, the machine has MI210",
        "backend: hotaisle requested, the machine has amddevcloud",
        "spot policy: on-demand requested, the machine is spot.",
    ]


def test_a_busy_machine_says_with_what() -> None:
    world = EventWorld()
    world.cold("a", "m")
    world.cold("b", "n")
    world.over("a")
    world.over("b")
    assert world.why("b") == ("it was busy with run a.",)


def test_create_is_cause_enough() -> None:
    """Existing machines do not matter."""
    world = idle_machine()
    world.cold("b", "n", task={"creation_policy": "create"})
    assert world.why("b") == ("it always gets a new machine.",)


def test_a_run_the_provider_had_no_capacity_for_says_when_it_is_asked_again() -> None:
    world = EventWorld()
    world.hand_over("a")
    world.stage.tell(
        types.RunRequeued(
            run_id="run-a", provider="dstack", provider_id="p-a", attempt=2, not_before=world.stage.now + 15 * SECOND
        )
    )
    why = why_not_warm(world.stage.world.state, world.stage.run("a"))
    assert why[0].startswith("It waits (capacity): the provider had none")
    assert why[0].endswith(", not before 2025-12-15T09:00:15Z.")


def test_a_draining_machine_takes_no_run() -> None:
    world = idle_machine()
    vm_id = world.stage.vm_id("m")
    world.stage.tell(types.VmDrainStarted(vm_id=vm_id, provider="dstack", by="user"))
    world.cold("b", "n")
    assert world.why("b") == ("it was draining (user), so no new run was placed on it.",)


def test_another_users_machine_is_not_shared() -> None:
    world = idle_machine(Policy(mode="pool", share="user", budget_total=None), submitter="ada", fleet="steno-slot-1")
    world.cold("b", "n", submitter="bob", fleet="steno-slot-2")
    assert world.why("b") == ("runs of other users were on it (`vms.share` is `user`).",)


def test_what_was_in_the_way_is_what_was_then() -> None:
    """Later runs of other users on the machine change nothing of why this one was cold."""
    world = EventWorld(Policy(mode="pool", share="user", budget_total=None))
    world.cold("a", "m", submitter="ada", fleet="steno-slot-1")
    world.cold("b", "n", submitter="ada", fleet="steno-slot-2")
    world.over("a")
    world.jobs["theirs"] = {"status": "running", "on": "m", "submitted": world.stage.now}
    world.vms["m"]["status"] = "busy"
    world.look()
    assert world.why("b") == ("it was busy with run a.",)


def test_a_run_that_waits_says_for_what() -> None:
    world = EventWorld(Policy(max_vms=1, budget_total=None))
    world.cold("a", "m")
    world.stage.request("b")
    world.stage.settle()
    why = why_not_warm(world.stage.world.state, world.stage.run("b"))
    assert why[0] == "It waits (cap): the machine limit (1, `vms.max`) is reached."
    assert why[1].endswith("it was busy with run a.")


def test_a_foreign_machine_is_no_candidate() -> None:
    world = EventWorld()
    world.vms["theirs"] = {"fleet": "theirs", "created": START - SECOND}
    world.look()
    world.cold("a", "m")
    assert world.why("a") == ("Steno did not create the machine.",)


def test_an_unreachable_machine_is_passed_over() -> None:
    world = idle_machine()
    world.vms["m"]["unreachable"] = True
    world.look()
    world.cold("b", "n")
    assert world.why("b") == ("it was unreachable for the provider.",)


FITS = "it was idle and fits by what is recorded"


def test_the_provider_is_said_to_have_chosen_only_where_it_did() -> None:
    """A run that it was never given, or that has no machine yet, says nothing of its choice."""
    world = idle_machine()
    world.stage.request("b")
    assert world.why("b") == (f"{FITS}; the run has not been submitted to dstack yet.",)
    world.stage.tell(types.RunPlaced(run_id="run-b", provider="dstack"))
    world.stage.taken("b")
    world.jobs["b"] = {"status": "provisioning", "submitted": world.stage.now}
    world.look()
    assert world.why("b") == (f"{FITS}; dstack shows no machine for the run.",)
    world.vms["n"] = {"status": "busy", "created": world.stage.now}
    world.jobs["b"] |= {"status": "running", "on": "n"}
    world.look()
    assert world.stage.run("b").start == "cold"
    assert world.why("b") == (f"{FITS}; dstack chose another machine.",)


def test_a_run_that_ended_before_it_was_handed_over_had_no_machine_to_go_to() -> None:
    world = idle_machine()
    world.stage.request("b")
    world.stage.tell(types.IntentAbandoned(run_id="run-b", provider="dstack", intent="submit", why="stopped"))
    assert world.why("b") == ("It was never submitted to dstack, so no machine was chosen for it.",)


def test_a_slot_that_steno_reserved_is_not_the_providers_choice() -> None:
    world = idle_machine(POOL, fleet="steno-slot-1")
    world.stage.request("b")
    world.stage.tell(types.RunPlaced(run_id="run-b", provider="dstack", slot="steno-slot-2"))
    world.stage.taken("b")
    submitted = world.stage.now
    world.stage.wait(5)
    world.vms["n"] = {"status": "busy", "created": world.stage.now, "fleet": "steno-slot-2"}
    world.jobs["b"] = {"status": "running", "on": "n", "submitted": submitted}
    world.look()
    assert world.why("b") == (f"{FITS}; Steno had chosen steno-slot-2 for the run.",)
    world.over("b")
    assert world.why("b") == (f"{FITS}; Steno had chosen steno-slot-2 for the run.",)


# -- why up ------------------------------------------------------------------------------------------------------------


def test_a_busy_machine_is_up_for_its_run() -> None:
    world = EventWorld()
    world.cold("a", "m")
    assert world.up() == ("It is busy with run a.",)


def test_an_idle_machine_says_how_much_of_which_timeout_it_has_used() -> None:
    world = idle_machine(task={"idle_duration": "5m"})
    world.look(50, 2)
    (up,) = world.up()
    assert up.endswith("polls show 1 m 40 s of the 5 m timeout (idle_duration of run a, for which it was created).")
    world.look(50, 5)
    assert world.up()[-1] == "Its timeout has passed: it is drained in the next round."


def test_a_timeout_that_is_off_says_whose() -> None:
    world = idle_machine(task={"idle_duration": "off"})
    assert world.up()[0].endswith("its timeout is off: idle_duration of run a, for which it was created.")


def test_a_draining_machine_waits_for_its_last_look_and_then_for_the_provider() -> None:
    world = idle_machine()
    world.look(50, 12)
    world.stage.settle()
    assert world.up()[-1] == "It is stopped once a poll that began after the drain shows it empty."
    world.look()
    world.stage.settle()
    assert world.up()[-1] == "The stop request was sent; the provider's answer is not recorded yet."
    world.stage.stop_refused("m")
    assert world.up()[-1] == "The provider refused to stop it (once): Fleet is in use. Steno tries again."
    world.look(20)
    world.stage.settle()
    world.stage.stop_taken("m")
    world.vms["m"]["status"] = "terminating"
    world.look()
    assert world.up()[0].startswith("It is being stopped; the provider accepted the stop request at ")


def test_blindness_comes_first() -> None:
    world = idle_machine()
    up = world.up(now=world.stage.now + 3600 * SECOND)
    assert up[0] == (
        "dstack/main is blind: last answer 1 h ago, not polled since. Until it answers, no idle timer advances and "
        "nothing is stopped."
    )


def test_what_is_not_ours_is_said_to_be_so() -> None:
    world = EventWorld()
    world.vms["m"] = {"fleet": "theirs"}
    world.look()
    world.stage.wish("m")
    assert world.up()[0] == "Steno did not create it: it is listed and billed, and Steno never stops it."


def test_a_foreign_run_keeps_a_machine_that_a_user_wants_gone() -> None:
    world = idle_machine()
    world.jobs["theirs"] = {"status": "running", "on": "m", "submitted": world.stage.now}
    world.vms["m"]["status"] = "busy"
    world.look()
    world.stage.wish("m")
    assert "was not submitted through Steno, so Steno stops neither the run nor the machine." in world.up()[1]


def test_an_unconfirmed_a_missing_and_a_gone_machine_say_what_they_are() -> None:
    world = idle_machine()
    world.vms["m"]["status"] = "terminating"
    world.look(50, 20)
    assert world.up()[0].startswith("It should be gone, but no poll shows that: it is still billed.")
    rows = world.vms.pop("m")
    world.look()
    assert world.up()[-1].endswith("that alone does not end its bill.")
    world.vms["m"] = rows
    world.gone("m")
    assert world.up()[0].startswith("It has been gone since ")


def test_a_machine_that_vanished_says_when_it_was_last_reached() -> None:
    """Whatever reason its provider gives for the end."""
    world = EventWorld()
    world.cold("a", "m")
    world.vms["m"]["unreachable"] = True
    world.look()
    world.gone("m")
    gone, unreached = world.up()
    assert gone.startswith("It has been gone since ")
    assert unreached.startswith("The provider had not reached it since ")


def test_a_machine_of_unknown_status_is_not_said_to_be_gone() -> None:
    world = EventWorld()
    world.cold("a", "m", status="hibernating")
    assert world.up()[0].startswith("Steno does not know what its provider's status `hibernating` means: it is billed")


def test_a_machine_with_a_run_on_its_way_says_which() -> None:
    world = idle_machine(POOL, fleet="steno-slot-1")
    world.stage.request("b")
    world.stage.settle()
    assert world.up()[0].startswith("run b has been placed and may start on it")
