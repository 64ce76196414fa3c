"""A genuine server at its own pace whose submissions take five seconds: we go on looking, and machines go in time."""

import itertools
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import pytest
from stenolab.lab import Gate, Lab
from stenolab.ledger import seconds
from stenolab.plugin import StenoAt
from stenolab.steno import Steno
from stenolab.versions import NEWEST
from stenotest.http_server import Handler, LocalServer

from steno.engine.control.effects import AT_ONCE
from steno.engine.control.poll_interval import Pace
from steno.engine.live.journal import Journal
from steno.engine.providers.registry import READINGS
from steno.engine.providers.task import Completed
from steno.engine.submit.requests import submit
from steno.events.clock import SECOND, RandomIds, SystemClock
from steno.events.store.record import Record

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.lab, pytest.mark.xdist_group(f"dstack-{NEWEST}")]

DELAY_S = 5.0
TIMEOUTS_S = (8, 15, 30)
MANY = 12
CROWDED_S = 5.0
"""Seconds that a machine that is busy with other tests may add to a time."""


@contextmanager
def slow_front(lab: Lab) -> Iterator[str]:
    """The address of a proxy in front of the server, which passes each submission on five seconds later."""

    class Front(Handler):
        def answer(self, body: bytes) -> None:
            if self.path.endswith("/runs/apply"):
                time.sleep(DELAY_S)
            with closing(HTTPConnection("127.0.0.1", lab.port)) as server:
                headers = {name: self.headers[name] for name in ("Authorization", "Content-Type") if self.headers[name]}
                server.request("POST", self.path, body, headers)
                answer = server.getresponse()
                content = answer.read()
            passed = {name: value for name, value in answer.getheaders() if name.lower() in ("content-type", "date")}
            self.reply(answer.status, content, passed)

    with closing(LocalServer(Front)) as front:
        yield front.url


def ask(steno: Steno, project: str, name: str) -> None:
    """Request a run that no machine fits: its submission takes its time, and it ends at once."""
    clock, ids = SystemClock(), RandomIds()
    task = {"type": "task", "name": name, "image": "x", "resources": {"gpu": "H100:8"}, "commands": ["true"]}
    with Record.open(steno.record, write=True, shapes=READINGS.shape, clock=clock) as record:
        submit(
            Journal(record),
            run_id=ids.new(),
            provider="dstack",
            project=project,
            task=Completed(name=name, configuration=task),
            submitter="lab",
        )


def looks(steno: Steno, path: str) -> list[float]:
    """When the polls of that path were answered, seconds since the epoch."""
    return [seconds(poll["t"]) for poll in steno("polls", "--json").lines() if poll["path"] == path]


def test_nobody_goes_blind_and_idle_machines_go_in_time(real_lab: Lab, steno_at: StenoAt, tmp_path: Path) -> None:
    """Timeouts of 8, 15 and 30 s fired at 17, 27 and 45 s, and runs were handed over one every 25 to 74 s."""
    lab = real_lab
    with ExitStack() as stack:
        front = stack.enter_context(slow_front(lab))
        places: dict[int, tuple[Steno, str, Gate]] = {}
        for timeout in TIMEOUTS_S:
            project = lab.project()
            steno = steno_at(
                lab,
                project,
                STENO_DSTACK_URL=front,
                STENO_DSTACK_TOKEN=lab.token,
                STENO_PROJECT=project,
                STENO_IDLE_TIMEOUT=f"{timeout}s",
                STENO_MAX_VMS="20",
                STENO_QUEUE_PATIENCE="0",
                STENO_BUDGET="off",
            )
            places[timeout] = (steno, project, Gate(lab, project))
            steno.start("record")
            steno.until(lambda steno=steno: steno.seen("PollRecorded"), what="a recorder")
            steno.submit("only", [places[timeout][2].passed])
        for steno, _, gate in places.values():
            steno.wait("only", "running")
            gate.open()
        for steno, project, _ in places.values():
            steno.wait("only", "succeeded")
            for number in range(MANY):
                ask(steno, project, f"slow-{number}")
        for steno, _, _ in places.values():

            def over(steno: Steno = steno) -> bool:
                return steno.seen("SubmitSucceeded") == MANY + 1 and steno.seen("VmStopSucceeded") == 1

            steno.until(over, what="every run to be handed over, and the machine to be told to go")
        for timeout, (steno, _, _) in places.items():
            replay = steno("replay", "--json").json()
            assert replay["blind"] == []
            gaps = {
                path: max(after - before for before, after in itertools.pairwise(looks(steno, path)))
                for path in ("/api/runs/list", "/api/instances/list")
            }
            (vm,) = replay["vms"]
            idle = next(seconds(interval["from"]) for interval in vm["intervals"] if interval["phase"] == "idle")
            events = steno.events("VmDrainStarted", "SubmitIntended", "SubmitSucceeded")
            drained = next(seconds(event["observed_at"]) for event in events if event["type"] == "VmDrainStarted")
            late = drained - idle - timeout
            handed = [seconds(event["observed_at"]) for event in events if event["type"] == "SubmitSucceeded"][1:]
            spread = handed[-1] - handed[0]
            print(f"{timeout} s: drained {late:.1f} s late, gaps {gaps}, {MANY} runs within {spread:.1f} s")
            assert max(gaps.values()) <= Pace().slow / SECOND + CROWDED_S
            assert late <= 2 * gaps["/api/instances/list"] + CROWDED_S
            assert spread <= (MANY / AT_ONCE) * (DELAY_S + CROWDED_S)
