"""Troubles met while Steno was operated, as stories on genuine servers: the right end, the right words, the right
bill. All run at once, each in a project of its own.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from stenolab.lab import Gate, Lab
from stenolab.ledger import bills_of, micros, most_at_once, seconds
from stenolab.plugin import StenoAt
from stenolab.steno import Steno
from stenolab.versions import OLDEST
from stenotest.kernels import ADDITION

pytestmark = [pytest.mark.slow, pytest.mark.suffices(OLDEST)]

AT_ONCE = 3
ENDS = ("succeeded", "failed", "stopped")
RETRIED = {"retry": {"on_events": ["no-capacity", "interruption", "error"], "duration": "10m"}}
NO_KERNELS = "kernels-mi300x"  # the runs whose image cannot be pulled
CAP = {"STENO_MAX_VMS": "1", "STENO_BUDGET": "off", "STENO_IDLE_TIMEOUT": "10s"}

Begin = Callable[..., Steno]
"""Our command in the story's project, with further settings; `steno up` runs beside it."""


def words(steno: Steno, name: str) -> str:
    """`steno show`, line ends taken out."""
    return " ".join(steno("show", name).out.split())


def all_ended(steno: Steno, *names: str) -> dict[str, dict[str, Any]]:
    """The runs of these names, once each has its verdict."""

    def ended() -> dict[str, dict[str, Any]] | None:
        runs = steno.world().runs
        known = {name: runs[name] for name in names if name in runs}
        return known if len(known) == len(names) and all(run["state"] in ENDS for run in known.values()) else None

    return steno.until(ended, what="the runs to end")


def a_retried_run_gets_another_machine(lab: Lab, project: str, begin: Begin) -> None:
    """With one machine allowed, on the warm machine of the run before it, which vanishes under it."""
    steno = begin(**CAP)
    steno.submit("before", ["true"])
    first = steno.wait("before", "succeeded")
    gate = Gate(lab, project)
    steno.submit(
        "again", [f"[ -e $LAB_STATE/{project}-was ] || {{ touch $LAB_STATE/{project}-was; {gate.passed}; }}"], **RETRIED
    )
    steno.wait("again", "running")
    lab.cloud.kill(lab.hostname(project, "again") or "again", "gone")
    again = all_ended(steno, "again")["again"]
    assert (again["state"], again["reason"], again["attempts"] >= 2) == ("succeeded", "exit_zero", True)
    assert again["vm_id"] != first["vm_id"]
    # At the cloud the machine is gone at once; Steno's place for it is free once dstack has given it up.
    assert most_at_once(bills_of(lab, project)) == 1
    gate.open()


def a_schedule(lab: Lab, project: str, begin: Begin) -> None:
    """It holds no place while it waits; each firing is a run of its own, with verdict and bill; stopped as a whole."""
    steno = begin(**CAP)
    done = f"$LAB_STATE/{project}-fired"
    steno.submit("nightly", [f"[ ! -e {done} ] || exit 3; touch {done}"], schedule={"cron": "* * * * *"})
    steno.until(lambda: "next at" in words(steno, "nightly"), what="the schedule to be seen")
    steno.submit("by-day", ["true"])
    all_ended(steno, "by-day")

    def firings() -> list[dict[str, Any]] | None:
        runs = steno("replay", "--json").json()["runs"]
        # A firing that is due while the run before it has the only machine ends without capacity: it never ran.
        ended = [run for run in runs if "#" in (run["provider_id"] or "") and run["exit_status"] is not None]
        return ended if len(ended) >= 2 and all(run["state"] in ENDS for run in ended) else None

    first, second, *_ = steno.until(firings, what="two firings to end")
    assert [(run["state"], run["exit_status"]) for run in (first, second)] == [("succeeded", 0), ("failed", 3)]
    assert all(micros(run["cost_usd"]) > 0 for run in (first, second))
    steno("stop", "nightly")
    steno.until(lambda: lab.run(project, "nightly")["status"] == "terminated", what="the schedule to be stopped")
    assert steno.world().anomalies == []


def two_nodes_without_a_cluster(lab: Lab, project: str, begin: Begin) -> None:
    """It can never start: the person is told what dstack answered, and what comes after it runs."""
    steno = begin(**{**CAP, "STENO_MAX_VMS": "2"})
    steno.submit("pair", ["true"], nodes=2)
    steno.submit("single", ["true"])
    all_ended(steno, "single")
    steno.until(lambda: "offer" in words(steno, "pair"), what="dstack's answer")
    assert steno.world().runs["pair"]["state"] in ("requested", "queued")
    steno("stop", "pair")
    assert all_ended(steno, "pair")["pair"]["state"] == "stopped"


def hopeless_runs_beside_good_ones(lab: Lab, project: str, begin: Begin) -> None:
    """Four runs that no offer fits drain no machine, and eight others run."""
    steno = begin(**{**CAP, "STENO_MAX_VMS": "2"})
    for number in range(4):
        steno.submit(f"hopeless-{number}", ["true"], max_price=0.01)
    good = [f"good-{number}" for number in range(8)]
    with ThreadPoolExecutor(2) as users:
        list(users.map(lambda name: steno.submit(name, ["true"]), good))
    runs = all_ended(steno, *good)
    assert {run["state"] for run in runs.values()} == {"succeeded"}
    assert len(bills_of(lab, project)) <= 4  # two, and one more where an idle minute passed
    assert "no offer" in words(steno, "hopeless-0")
    drains = [event["data"]["by"] for event in steno.events("VmDrainStarted")]
    assert set(drains) <= {"idle"}


def a_machine_vanishes(lab: Lab, project: str, begin: Begin) -> None:
    """The sentence names the machine's end, and the cloud's bill lies within ours."""
    steno = begin(**CAP)
    steno.submit("alone", ["sleep 600"])
    steno.wait("alone", "running")
    lab.cloud.kill(lab.hostname(project, "alone") or "alone", "gone")
    run = all_ended(steno, "alone")["alone"]
    assert (run["state"], run["reason"]) in (("failed", "unreachable"), ("failed", "interrupted"))
    sentence = words(steno, "alone")
    assert any(word in sentence for word in ("reach", "interrupted")), sentence
    steno.until(lambda: steno.world().vms[0]["state"] == "terminated", what="the machine to be given up")
    (vm,), (bill,) = steno.world().vms, bills_of(lab, project)
    assert vm["reason"] != "idle_timeout"
    assert micros(vm["cost_low_usd"]) <= bill["micro_dollars"] <= micros(vm["cost_high_usd"])


def a_kernel_machine_fails(lab: Lab, _project: str, begin: Begin) -> None:
    """The kernel says which machine failed; the next is requested 15 s later, whatever is polled meanwhile."""
    lab.cloud.rule(NO_KERNELS, pull_error=True)
    steno = begin(STENO_KERNEL_WARM="on")
    (steno.work / "add.hip").write_text(ADDITION)
    submitted = steno(
        "kernel", "submit", steno.work / "add.hip", "--problem", "vector-add", "--gpu", "MI300X", "--checker"
    )
    kernel = submitted.out.strip()

    def machines() -> list[dict[str, Any]]:
        runs = steno.world().runs.items()
        return [run for name, run in runs if name.startswith("kernels-mi300x-")]

    def ended(sentence: str) -> str | None:
        return sentence if "did not keep its machine" in sentence else None

    steno.until(lambda: len(machines()) > 1, what="the second machine to be requested")
    first, second, *_ = sorted(machines(), key=lambda run: run["submitted_at"])
    pause = seconds(second["submitted_at"]) - seconds(first["transitions"][-1]["at"])
    assert pause >= 15
    sentence = steno.until(lambda: ended(words(steno, kernel)), what="the second machine to fail")
    assert "(provider error; see `steno logs kernels-mi300x-" in sentence
    assert "the next request is at" in sentence


STORIES = (
    hopeless_runs_beside_good_ones,
    a_kernel_machine_fails,
    a_retried_run_gets_another_machine,
    a_schedule,
    two_nodes_without_a_cluster,
    a_machine_vanishes,
)
LONG = {"a_retried_run_gets_another_machine", "a_machine_vanishes"}
"""`test_every_ending` has these ends, without their bills."""
CI = {"a_schedule", "hopeless_runs_beside_good_ones"}


@pytest.fixture(scope="module")
def stories(
    request: pytest.FixtureRequest, dstack: Lab, steno_for_module: StenoAt
) -> Iterator[dict[str, Future[None]]]:
    """All that were chosen, begun together."""
    names = {item.callspec.params.get("story") for item in request.session.items if item.path == request.path}

    def tell(story: Callable[[Lab, str, Begin], None]) -> None:
        project = dstack.project()

        def begin(**settings: str) -> Steno:
            steno = steno_for_module(dstack, project, STENO_VMS_MODE="pool", **settings)
            steno.up("--no-api")
            return steno

        story(dstack, project, begin)

    with ThreadPoolExecutor(AT_ONCE) as tellers:
        yield {story.__name__: tellers.submit(tell, story) for story in STORIES if story.__name__ in names}
    dstack.cloud.unrule(NO_KERNELS)


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(name, marks=pytest.mark.long if name in LONG else pytest.mark.ci if name in CI else ())
        for name in (story.__name__ for story in STORIES)
    ],
)
def test_it_ends_with_the_right_words_and_bill(stories: dict[str, Future[None]], story: str) -> None:
    stories[story].result()
