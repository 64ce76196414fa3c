"""An evening on call, on a genuine dstack server: runs that fail, wait and are followed, a machine that vanishes,
levers that are pulled and released; and each command of `docs/on-call.md`, typed when an operator would type it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stenotest.kernels import ADDITION
from stenotest.waiting import wait

from steno.engine.state.samples import TASK, unpack
from stenolab.lab import Gate, Lab
from stenolab.ledger import bill_of
from stenolab.steno import Background, Steno

PAGE = Path(__file__).parents[3] / "docs" / "on-call.md"
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

    def typed(self, command: str, **words: str) -> list[str]:
        """The words of a command of the table, with the story's names in it."""
        return [PLACEHOLDER.sub(lambda placeholder: words[placeholder[0]], word) for word in shlex.split(command)[1:]]

    def ask(self, number: int, *, by: str = "ada", **words: str) -> str:
        """Type the row's commands, and keep the answer."""
        outcomes = [self.steno(*self.typed(each, **words), LOGNAME=by) for each in QUESTIONS[number].commands]
        self.answers[number] = " ".join(" ".join(f"{each.out} {each.err}".split()) for each in outcomes)
        print(f"{number}. {QUESTIONS[number].text}", *(f"{each.out}{each.err}" for each in outcomes), sep="\n")
        return self.answers[number]

    def ask_all(self, words: Mapping[int, Mapping[str, str]]) -> None:
        """Questions that change nothing, two at a time."""
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda number: self.ask(number, **words[number]), words))

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
        named = re.search(r"steno resume (\w+)`", lever)
        assert named is not None, lever
        assert f"released {named[1]}" in self.steno("resume", named[1]).out

    def position(self) -> int:
        """The newest event."""
        position: int = self.steno.json("ps")["position"]
        return position


def a_machine_vanishes(evening: OnCall, gates: dict[str, Gate]) -> Background:
    """Three runs on a machine, beside carl's on another; bob's waits behind them; then the first machine is gone."""
    steno = evening.steno
    for name, command in (("good", "true"), ("crash", "echo 'CUDA out of memory'; exit 3")):
        evening.submit("ada", name, command)
        steno.wait(name, "succeeded", "failed")
        evening.vms["gone"] = steno.world().runs[name]["vm_id"]
        steno.until(lambda: evening.vm("gone")["state"] == "idle", what="the machine to be warm for the next")
    evening.submit("ada", "train", gates["train"].passed)
    evening.submit("carl", "one", "echo hello", gates["one"].passed)
    evening.vms |= {"gone": steno.wait("train", "running")["vm_id"], "kept": steno.wait("one", "running")["vm_id"]}
    evening.submit("bob", "waits", "echo done")
    steno.wait("waits", "queued")
    follow = steno.start(*followed(evening))
    evening.explained("waits", "While it waited", "of runs of ada", "of runs of carl")
    evening.ask_all({1: {"VM": evening.vms["gone"]}, 2: {}, 18: {"RUN": "waits"}, 19: {"RUN": "waits"}})

    def measured() -> bool:
        train = steno.world().runs["train"]["run_id"]
        blocks = [event.block for event in steno.recorded("SamplesRecorded") if event.run_id == train]
        return len({each.at for block in blocks for each in unpack(block) if each.device != TASK}) >= 3

    steno.until(measured, what="samples of the GPU of train")
    evening.moment = evening.position()
    gone = evening.vm("gone")["provider_id"]
    evening.lab.cloud.kill(evening.lab.hostname(evening.project, "train") or "train", "gone")
    evening.cloud = bill_of(evening.lab, evening.project, gone)
    evening.ask(4, VM=evening.vms["kept"], TEXT="debugging")  # until dstack gives the machine up
    evening.ask(6, USER="bob", TEXT="too many")
    evening.ask(9, RUN="one", PORT="8888")
    evening.ask(11, by="carl")
    words = ("--problem", "vector-add", "--checker", "--provider", "local", "--unsafe-here", "--wait", "--json")
    evening.kernel = steno("kernel", "submit", "add.cpp", *words).json()["name"]
    steno.wait("train", "failed")
    return follow


def followed(evening: OnCall) -> list[str]:
    """The command of question 10, for three runs."""
    runs = iter(("train", "one", "waits"))
    return [next(runs) if word == "RUN" else word for word in shlex.split(QUESTIONS[10].commands[0])[1:]]


def the_levers(evening: OnCall, gates: dict[str, Gate]) -> None:
    """Each is pulled for real and released, with runs that wait for it."""
    steno = evening.steno
    evening.ask(5, TEXT="maintenance")
    evening.wait_ended("gone")  # idle, as dstack sees it, and so ended at once
    gates["one"].open()
    steno.wait("one", "succeeded")
    steno.until(lambda: evening.vm("kept")["state"] == "idle", what="the machine to be idle")
    evening.explained(evening.vms["kept"], "ada keeps it until")
    evening.released(evening.answers[4])
    evening.wait_ended("kept")
    evening.released(evening.answers[5])

    for name in ("two", "three"):
        evening.submit("carl", name, gates[name].passed)
    evening.submit("carl", "four", "true")
    for name in ("two", "three"):
        steno.wait(name, "running")
    evening.explained("four", "carl", "2 runs")
    evening.explained("waits", "ada paused runs of bob", "too many")
    evening.ask(8, A="ada", B="bob", C="carl", TEXT="deadline")
    evening.answers[8] += " ".join(steno("budget").out.split())
    evening.released(evening.answers[6])
    gates["three"].open()
    for name in ("waits", "four"):
        steno.wait(name, "succeeded")

    evening.ask(7, TEXT="the bill")
    evening.submit("bob", "after", "echo again", gates["after"].passed)
    steno.wait("two", "stopped")
    evening.explained("after", "ada stopped everything", "the bill")
    assert "after" not in {run["run_spec"]["run_name"] for run in evening.lab.runs(evening.project)}
    evening.released(evening.answers[7])
    steno.wait("after", "running")


@contextmanager
def an_evening(lab: Lab, project: str, steno: Steno) -> Iterator[OnCall]:
    """The evening, with every question asked; the service of `url` goes on, and so does the run `after`."""
    (steno.work / "steno.toml").write_text(OWNERS)
    (steno.work / "add.cpp").write_text(ADDITION)
    gates = {name: Gate(lab, f"{project}-{name}") for name in ("train", "one", "two", "three", "after")}
    up = steno.up()
    url = wait(lambda: re.search(r"serving (http://\S+) ", up.out), what="the service")[1]
    evening = OnCall(lab=lab, project=project, steno=steno, url=url)
    follow = a_machine_vanishes(evening, gates)
    the_levers(evening, gates)
    ended = follow.finish()
    evening.answers[10] = " ".join(f"{ended.out} {ended.err}".split())
    report = steno.folder / "report.html"
    month = steno.json("report")["month"]
    later: dict[int, dict[str, str]] = {
        3: {},
        12: {},
        13: {"MONTH": month, "FILE": str(report)},
        14: {"VM": evening.vms["gone"]},
        15: {},
        16: {"RUN": "crash"},
        17: {"RUN": "train", "MOMENT": str(evening.moment)},
        20: {"RUN": "waits"},
        21: {},
        22: {"KERNEL": evening.kernel},
        23: {},
        24: {"RUN": "train"},
    }
    evening.ask_all(later)
    evening.answers[13] += report.read_text()
    yield evening
    gates["after"].open()
