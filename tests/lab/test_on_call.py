"""The 24 questions of `docs/on-call.md`: one story on a genuine dstack server, each command asked when an operator would
ask it, and each answer checked against what the lab and its cloud did.

`on_call` is the story, once for all tests of this module; its service goes on, for whoever looks at the dashboard.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from stenolab.lab import Gate, Lab
from stenolab.ledger import bill_of, micros, seconds
from stenolab.plugin import StenoAt
from stenolab.steno import Background, Steno
from stenotest.kernels import ADDITION
from stenotest.waiting import wait

from steno.cli.main import main
from steno.engine.state.samples import TASK, unpack

PAGE = Path(__file__).parents[2] / "docs" / "on-call.md"
ROW = re.compile(r"^\| (\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
COMMAND = re.compile(r"`(steno [^`]+)`")
PLACEHOLDER = re.compile(r"\b[A-Z]{1,8}\b")
SETTINGS = {
    "LOGNAME": "ada",
    "STENO_VMS_MODE": "pool",
    "STENO_MAX_VMS": "2",
    "STENO_IDLE_TIMEOUT": "10m",
    "STENO_BUDGET": "1400",
    "STENO_SAMPLES_EVERY": "1s",
    "STENO_LOCAL_PRICE": "1.99",
}
OWNERS = """
[limits.user.ada]
budget = "$500"
[limits.user.bob]
budget = "$300"
[limits.user.carl]
daily = "$20"
runs = 2
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A row of the table."""

    number: int
    text: str
    commands: tuple[str, ...]
    place: str


QUESTIONS = {
    int(number): Question(number=int(number), text=text, commands=tuple(COMMAND.findall(commands)), place=place)
    for number, text, commands, place in ROW.findall(PAGE.read_text())
}


@dataclass(kw_only=True)
class OnCall:
    """The story: its record, its service, and what each question was answered."""

    lab: Lab
    project: str
    steno: Steno
    url: str
    answers: dict[int, str] = field(default_factory=dict)
    """By number; the answers of all commands of the row, spaces evened."""
    vms: dict[str, str] = field(default_factory=dict)
    """Ids of machines: `gone` vanished, `kept` was kept."""
    kernel: str = ""
    moment: int = 0
    """A position while `train` ran on the machine that was about to vanish."""
    cloud: dict[str, Any] = field(default_factory=dict)
    """The cloud's own bill of the machine that vanished."""
    rate: str = "$3.98 an hour"

    def typed(self, command: str, **words: str) -> list[str]:
        """The words of a command of the table, with the story's names in it."""
        filled = (PLACEHOLDER.sub(lambda found: words[found[0]], word) for word in shlex.split(command)[1:])
        return list(filled)

    def ask(self, number: int, *, by: str = "ada", **words: str) -> str:
        """Type the row's commands, and keep the answer."""
        asked = [self.steno(*self.typed(each, **words), LOGNAME=by) for each in QUESTIONS[number].commands]
        self.answers[number] = " ".join(" ".join(f"{each.out} {each.err}".split()) for each in asked)
        print(f"{number}.", *(f"{each.command}\n{each.out}{each.err}" for each in asked))
        return self.answers[number]

    def submit(self, by: str, name: str, *commands: str) -> None:
        self.steno("submit", "-f", self.steno.task(name, commands, max_duration="1h"), LOGNAME=by)

    def vm(self, name: str) -> dict[str, Any]:
        """The machine object."""
        return next(vm for vm in self.steno.world().vms if vm["vm_id"] == self.vms[name])

    def explained(self, what: str, *words: str) -> str:
        """`steno explain`, once it has these words."""

        def text() -> str | None:
            answer = " ".join(self.steno("explain", what).out.split())
            return answer if all(word in answer for word in words) else None

        return self.steno.until(text, what=f"{words} of {what}")

    def wait_ended(self, name: str) -> None:
        self.steno.until(lambda: self.vm(name)["state"] == "terminated", what=f"the end of the machine {name}")

    def released(self, lever: str) -> None:
        """Release the lever that an answer names."""
        found = re.search(r"steno resume (\w+)`", lever)
        assert found is not None, lever
        assert f"released {found[1]}" in self.steno("resume", found[1]).out

    def position(self) -> int:
        """The newest event."""
        position: int = self.steno.json("ps")["position"]
        return position


def a_machine_vanishes(told: OnCall, gates: dict[str, Gate]) -> Background:
    """Three runs on a machine, beside carl's on another; bob's waits behind them; then the first machine is gone."""
    steno = told.steno
    told.submit("ada", "good", "true")
    steno.wait("good", "succeeded")
    told.submit("ada", "crash", "echo 'CUDA out of memory'; exit 3")
    steno.wait("crash", "failed")
    told.submit("ada", "train", gates["train"].passed)
    told.submit("carl", "one", "echo hello", gates["one"].passed)
    told.vms |= {"gone": steno.wait("train", "running")["vm_id"], "kept": steno.wait("one", "running")["vm_id"]}
    told.submit("bob", "waits", "echo done")
    steno.wait("waits", "queued")
    follow = steno.start(*followed(told))
    for number in (18, 19):
        told.ask(number, RUN="waits")
    told.ask(1, VM=told.vms["gone"])
    told.ask(2)
    told.ask(4, VM=told.vms["kept"], TEXT="debugging")
    told.ask(6, USER="bob", TEXT="too many")
    told.ask(9, RUN="one", PORT="8888")
    told.ask(11, by="carl")

    def measured() -> bool:
        blocks = [event.block for event in steno.recorded("SamplesRecorded")]
        return any(sample.device != TASK for block in blocks for sample in unpack(block))

    steno.until(measured, what="samples of a GPU")
    told.moment = told.position()
    gone = told.vm("gone")["provider_id"]
    told.lab.cloud.kill(told.lab.hostname(told.project, "train") or "train", "gone")
    told.cloud = bill_of(told.lab, told.project, gone)
    steno.wait("train", "failed")
    return follow


def followed(told: OnCall) -> list[str]:
    """The command of question 10, for three runs."""
    runs = iter(("train", "one", "waits"))
    return [next(runs) if word == "RUN" else word for word in shlex.split(QUESTIONS[10].commands[0])[1:]]


def the_levers(told: OnCall, gates: dict[str, Gate]) -> None:
    """Each is pulled for real and released, with runs that wait for it."""
    steno = told.steno
    told.ask(5, TEXT="maintenance")
    told.wait_ended("gone")  # idle, as dstack sees it, and so ended at once
    gates["one"].open()
    steno.wait("one", "succeeded")
    told.explained(told.vms["kept"], "idle", "ada keeps it until")
    assert told.vm("kept")["state"] == "idle"
    told.released(told.answers[4])
    told.wait_ended("kept")
    told.released(told.answers[5])

    for name in ("two", "three"):
        told.submit("carl", name, gates[name].passed)
    told.submit("carl", "four", "true")
    for name in ("two", "three"):
        steno.wait(name, "running")
    told.explained("four", "carl", "2 runs")
    told.explained("waits", "ada paused runs of bob", "too many")
    told.ask(8, A="ada", B="bob", C="carl", TEXT="deadline")
    told.answers[8] += " ".join(steno("budget").out.split())
    told.released(told.answers[6])
    gates["three"].open()
    for name in ("waits", "four"):
        steno.wait(name, "succeeded")

    told.ask(7, TEXT="the bill")
    told.submit("bob", "after", "echo again", gates["after"].passed)
    steno.wait("two", "stopped")
    told.explained("after", "ada stopped everything", "the bill")
    assert "after" not in {run["run_spec"]["run_name"] for run in told.lab.runs(told.project)}
    told.released(told.answers[7])
    steno.wait("after", "running")


@pytest.fixture(scope="module")
def on_call(dstack_22: Lab, steno_for_module: StenoAt) -> Iterator[OnCall]:
    """The evening, told to its end; the service of `url` goes on, and the run `after` goes on running."""
    project = dstack_22.project()
    steno = steno_for_module(dstack_22, project, **SETTINGS)
    (steno.work / "steno.toml").write_text(OWNERS)
    (steno.work / "add.cpp").write_text(ADDITION)
    gates = {name: Gate(dstack_22, f"{project}-{name}") for name in ("train", "one", "two", "three", "after")}
    up = steno.up()
    url = wait(lambda: re.search(r"serving (http://\S+) ", up.out), what="the service")[1]
    told = OnCall(lab=dstack_22, project=project, steno=steno, url=url)
    follow = a_machine_vanishes(told, gates)
    the_levers(told, gates)
    ended = follow.finish()
    told.answers[10] = f"{ended.out}\n{ended.err}"
    words = ("--problem", "vector-add", "--checker", "--provider", "local", "--unsafe-here", "--wait", "--json")
    told.kernel = steno("kernel", "submit", "add.cpp", *words).json()["name"]
    report = steno.folder / "report.html"
    month = steno.json("report")["month"]
    later: dict[int, dict[str, str]] = {
        3: {},
        12: {},
        13: {"MONTH": month, "FILE": str(report)},
        14: {"VM": told.vms["gone"]},
        15: {},
        16: {"RUN": "crash"},
        17: {"RUN": "train", "MOMENT": str(told.moment)},
        20: {"RUN": "waits"},
        21: {},
        22: {"KERNEL": told.kernel},
        23: {},
        24: {"RUN": "train"},
    }
    for number, given in later.items():
        told.ask(number, **given)
    told.answers[13] += report.read_text()
    yield told
    gates["after"].open()


@pytest.mark.slow
def test_x(on_call: OnCall) -> None:
    print(on_call.answers)
    world = on_call.steno.world()
    print(on_call.cloud, on_call.vm("gone"), world.anomalies)
    print(on_call.steno("report", "--json").out)
    print(on_call.steno("costs", "--by", "run").out)
