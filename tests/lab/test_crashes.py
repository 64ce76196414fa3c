"""`kill -9` at every boundary, against a genuine server: the server has the run once or not at all, and one machine is
ended by one request.
"""

import os
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from stenolab.lab import GPU, IMAGE, Lab
from stenolab.ledger import bills_of
from stenotest import steno_process
from stenotest.inline_executor import InlineExecutor
from stenotest.waiting import LIMIT_S

from steno.engine.control.controller import Controller
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.dstack.provider import DstackProvider
from steno.engine.providers.dstack.settings import address
from steno.engine.providers.registry import READINGS
from steno.engine.providers.task import Completed
from steno.engine.state.policy import Policy
from steno.engine.state.states import VmState
from steno.engine.submit.requests import submit
from steno.events.clock import SECOND, RandomIds, SystemClock
from steno.events.store.record import Record

pytestmark = pytest.mark.slow

KILL_AT = Path(__file__).parents[1] / "engine" / "control" / "kill_at.py"
KILL_STOP_AT = Path(__file__).with_name("kill_stop_at.py")
# After each step, which is before the next: the slot, the intent, the call and the outcome. The policy and, past the
# first look, the plan and the place are `long`; what else comes before has nothing to do with a server:
# tests/engine/control/test_crashes.py.
SUBMISSION = (tuple(range(36, 49, 4)), pytest.param((6, *range(28, 36, 2), *range(38, 49, 4)), marks=pytest.mark.long))
# Intended, asked, answered; before the drain and drained.
STOP = ((4, 6, 8), pytest.param((1, 2), marks=pytest.mark.long))
KILLED = -9
ASK_ONCE = Policy(mode="pool", idle_timeout=None, queue_patience=0, budget_total=None)
SETTINGS = {"STENO_PROVIDER": "dstack", "STENO_VMS_MODE": "pool", "STENO_QUEUE_PATIENCE": "0", "STENO_BUDGET": "off"}


def killed(script: Path, folder: Path, home: Path, boundary: int, *words: str, **settings: str) -> int:
    """The exit code of `steno`, killed at that boundary, over a record in `folder`."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("STENO_", "DSTACK_", "AMD_"))}
    env |= {"HOME": str(home), "STENO_RECORD": str(folder / "record.db"), **SETTINGS, **settings}
    options = {"env": env, "cwd": folder, "timeout": LIMIT_S, "stdin": subprocess.DEVNULL}
    return steno_process.run((str(boundary), *words), program=script.read_text(), **options).returncode


@contextmanager
def recording(lab: Lab, project: str, folder: Path, policy: Policy) -> Iterator[Controller]:
    """A recorder of that project over the record in `folder`, in this process."""
    clock = SystemClock()
    provider = DstackProvider(address(lab.url, lab.token, project), clock=clock, ids=RandomIds(), read_timeout=LIMIT_S)
    opened = Record.open(folder / "record.db", write=True, create=True, shapes=READINGS.shape, clock=clock)
    with closing(provider), opened as record:
        live, executor = LiveWorld(READINGS, record), InlineExecutor(clock)
        yield Controller(live=live, provider=provider, clock=clock, policy=policy, executor=executor)
        assert record.verify().ok


def kinds(folder: Path) -> list[str]:
    """The types of the record's events, in order."""
    with Record.open(folder / "record.db", write=False, shapes=READINGS.shape, clock=SystemClock()) as record:
        return [event.type for event in record.read()]


@pytest.mark.parametrize("boundaries", SUBMISSION, ids=["at the server", "the others"])
def test_a_submission_killed_anywhere_is_at_the_server_once(
    dstack_22: Lab, tmp_path: Path, boundaries: tuple[int, ...]
) -> None:
    """The next recorder of that record submits it if it is missing and finds it otherwise; one slot is made for it."""
    codes = []
    for boundary in boundaries:
        project, folder, name = dstack_22.project(), tmp_path / str(boundary), f"killed-{boundary}"
        folder.mkdir()
        dstack_22.cloud.rule(f"-{project}-", no_capacity=True)  # it ends at once
        words = ("submit", "--name", name, "--gpu", "MI300X:8", "--image", IMAGE, "--", "true")
        codes.append(killed(KILL_AT, folder, dstack_22.home(project), boundary, *words))
        with recording(dstack_22, project, folder, ASK_ONCE) as controller:
            for _ in range(2):
                controller.round()
            state = controller.world.state
        recorded = kinds(folder)
        requested, taken = recorded.count("RunRequested"), recorded.count("SubmitSucceeded")
        there = dstack_22.runs(project)
        assert (requested, taken, len(there)) in ((0, 0, 0), (1, 1, 1)), boundary
        assert [run.provider_id for run in state.runs.all()] == [run["id"] for run in there]
        slots = [fleet["name"] for run in there for fleet in run["run_spec"]["configuration"]["fleets"]]
        assert slots == ["steno-slot-1"] * taken
        assert bills_of(dstack_22, project) == []
    assert codes == [KILLED] * len(boundaries)


@pytest.mark.parametrize("boundaries", STOP, ids=["at the server", "the others"])
def test_a_stop_of_a_machine_killed_anywhere_is_one_stop(
    dstack_22: Lab, tmp_path: Path, boundaries: tuple[int, ...]
) -> None:
    """The next recorder ends the machine if it still lives, and asks the server for nothing if it does not."""
    lab, places = dstack_22, {}
    for boundary in boundaries:
        places[boundary] = (lab.project(), tmp_path / str(boundary))
        places[boundary][1].mkdir()
        make_idle_machine(lab, *places[boundary], wait=False)
    for place in places.values():
        make_idle_machine(lab, *place, wait=True)

    before, codes = deletions(lab), []
    for boundary, (project, folder) in places.items():
        words = ("record", "--interval", "0.2")
        codes.append(killed(KILL_STOP_AT, folder, lab.home(project), boundary, *words, STENO_IDLE_TIMEOUT="1s"))
        policy = Policy(mode="pool", idle_timeout=SECOND, queue_patience=0, budget_total=None)
        with recording(lab, project, folder, policy) as controller:

            def gone(controller: Controller = controller) -> bool:
                controller.round()
                return [vm.state for vm in controller.world.state.vms.all()] == [VmState.TERMINATED]

            lab.wait(gone, what=f"the machine to be gone after kill {boundary}")
        recorded = kinds(folder)
        assert [recorded.count(kind) for kind in ("VmDrainStarted", "VmStopIntended", "VmStopSucceeded")] == [1, 1, 1]
        assert "VmStopFailed" not in recorded
        (bill,) = bills_of(lab, project)
        assert bill["deleted"] is not None
        assert len(lab.runs(project)) == 1
    assert codes == [KILLED] * len(boundaries)
    assert deletions(lab) - before == len(boundaries)


def make_idle_machine(lab: Lab, project: str, folder: Path, *, wait: bool) -> None:
    """A run of ours over the record in `folder` and, with `wait`, its machine idle after it."""
    task = {"type": "task", "name": "only", "image": IMAGE, "resources": {"gpu": GPU}, "commands": ["true"]}
    with recording(lab, project, folder, ASK_ONCE) as controller:
        if not wait:
            submit(
                controller.journal,
                run_id=RandomIds().new(),
                provider="dstack",
                project=project,
                task=Completed(name="only", configuration=task),
                submitter="lab",
            )
            controller.round()
            return

        def idle() -> bool:
            controller.round()
            return [vm.state for vm in controller.world.state.vms.all()] == [VmState.IDLE]

        lab.wait(idle, what="an idle machine")


def deletions(lab: Lab) -> int:
    """How often anybody asked this server to end machines."""
    return (lab.folder / "server.log").read_text(errors="replace").count("Deleting fleets")
