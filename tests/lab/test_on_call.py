"""The 24 questions of `docs/on-call.md`: each answer of the evening is checked against what the lab and its cloud did.

`on_call` is the evening, once for all tests of this module; its service goes on, for tests that look at the dashboard.
"""

import re
import shlex
from collections.abc import Callable, Iterator

import click
import pytest
from stenolab.browser import See
from stenolab.lab import Lab
from stenolab.ledger import micros, seconds
from stenolab.on_call import PAGE, QUESTIONS, ROW, SETTINGS, OnCall, an_evening
from stenolab.plugin import StenoAt

from steno.cli.program import steno as program
from steno.events.clock import SECOND, duration

pytestmark = pytest.mark.ci


@pytest.fixture(scope="module")
def on_call(dstack_22: Lab, steno_for_module: StenoAt) -> Iterator[OnCall]:
    """The evening, over; the service of `on_call.url` goes on."""
    project = dstack_22.project()
    with an_evening(dstack_22, project, steno_for_module(dstack_22, project, **SETTINGS)) as evening:
        yield evening


def placed(evening: OnCall) -> dict[str, int]:
    """Where in the record each run got its place, by name."""
    names = {run["run_id"]: name for name, run in evening.steno.world().runs.items()}
    return {names[event["data"]["run_id"]]: event["position"] for event in evening.steno.events("RunPlaced")}


def release(evening: OnCall, number: int) -> int:
    """Where in the record the lever of that question was released."""
    lever = re.search(r"steno resume (\w+)`", evening.answers[number])
    assert lever is not None
    events = evening.steno.events("LeverReleased")
    (position,) = [event["position"] for event in events if event["data"]["lever_id"].startswith(lever[1])]
    assert isinstance(position, int)
    return position


def drained_by(evening: OnCall, name: str) -> list[str]:
    events = evening.steno.events("VmDrainStarted")
    return [event["data"]["by"] for event in events if event["data"]["vm_id"] == evening.vms[name]]


def why_it_is_up(evening: OnCall, answer: str) -> None:
    assert "Why it still runs - It is busy with run train. Its bill" in answer


def who_burns_money(evening: OnCall, answer: str) -> None:
    """Two machines at the cloud's price: ada has one with a run, carl has one with one run of two, bob has none."""
    assert "now $3.98 an hour" in answer
    assert re.search(
        r"user/ada (\S+ ){6}\S+ 1 1 user/bob (\S+ ){6}\S+ 0 0 user/carl .* of \$20.00 \S+ 1 1 of 2", answer
    )
    costs = answer.partition("USER PROVISIONING")[2]
    assert re.search(r"\bada \$.* carl \$.* \(idle\) .* total \$", costs)
    assert "bob" not in costs


def the_month_is_not_known_yet(evening: OnCall, answer: str) -> None:
    """A record of an evening says so, and names what it needs."""
    assert re.search(r"cost of \d{4}-\d\d unknown: it needs 7 whole days, and this record has 0", answer)


def it_is_kept(evening: OnCall, answer: str) -> None:
    """Through a drain, to its release, and then no longer."""
    kept = evening.vms["kept"]
    assert re.search(rf"ada keeps machine {kept[:8]} at \S+ until \S+:00:00Z: debugging", answer)
    assert evening.vm("kept")["reason"] == "stopped_by_policy"
    (drained,) = [each for each in evening.steno.events("VmDrainStarted") if each["data"]["vm_id"] == kept]
    assert drained["position"] > release(evening, 4)


def nothing_new_starts(evening: OnCall, answer: str) -> None:
    """The run that went on came to its end, and each machine ended by the drain."""
    assert "ada began to drain everything" in answer
    assert "it is about 1 run now: waits" in answer
    assert evening.steno.world().runs["one"]["state"] == "succeeded"
    assert (drained_by(evening, "gone"), drained_by(evening, "kept")) == (["lever"], ["lever"])
    assert min(placed(evening)[name] for name in ("two", "three", "waits")) > release(evening, 5)


def one_user_is_paused(evening: OnCall, answer: str) -> None:
    """Runs of carl that came later got the places; after the release bob's was the first."""
    assert "ada paused runs of bob" in answer
    assert "it is about 1 run now: waits" in answer
    at = placed(evening)
    assert max(at["two"], at["three"]) < release(evening, 6) < at["waits"]


def everything_is_stopped(evening: OnCall, answer: str) -> None:
    """The run that went on ended; the next one waited, and started after the release."""
    assert "ada stopped everything" in answer
    assert placed(evening)["after"] > release(evening, 7)
    world = evening.steno.world().runs
    assert (world["two"]["reason"], world["after"]["state"]) == ("stopped_by_user", "running")


def the_budget_moved_and_the_limit_holds(evening: OnCall, answer: str) -> None:
    assert "moved $100.00: user/ada has $400.00" in answer
    assert re.search(r"user/ada \S+ of \$400.00 .* user/bob \S+ of \$400.00 ", answer)
    assert re.search(r"user/carl .* of \$20.00 \S+ 2 2 of 2", answer)
    runs = evening.steno.world().runs
    assert placed(evening)["four"] > runs["three"]["transitions"][-1]["position"], (
        "carl's third run waited for one of two"
    )


def the_way_to_the_port(evening: OnCall, answer: str) -> None:
    assert "http://127.0.0.1:8888, once this runs: dstack attach one ssh -N -L 8888:127.0.0.1:8888 one" in answer


def three_runs_are_followed(evening: OnCall, answer: str) -> None:
    """Each with its output and its end, also the run that had not started."""
    assert re.search(r"one \| hello .*waits \| done ", answer)
    for end in ("train ● failed · unreachable", "one ● succeeded · exit_zero", "waits ● succeeded · exit_zero"):
        assert end in answer


def mine_only(evening: OnCall, answer: str) -> None:
    assert " one ● running dstack " in answer
    assert answer.count("●") == 1


def what_changed(evening: OnCall, answer: str) -> None:
    assert (
        "10 runs submitted, 9 ended (3 without success), 5 machines came, 2 machines ended, 1 machine vanished"
        in answer
    )
    for line in ("two ● stopped", "train ● failed dstack lost the connection", "crash ● failed It exited 3"):
        assert line in answer
    assert "pulled a lever: pause runs of bob (too many)" in answer


def the_month_for_finance(evening: OnCall, answer: str) -> None:
    """The users who paid, and why runs failed."""
    for text in ("<html", "GPU costs in ", "carl", "bob", "exit_nonzero", "gpu out of memory"):
        assert text in answer


def last_reached_and_paid_after(evening: OnCall, answer: str) -> None:
    """No moment before the last sample of the run on it; the cloud's own bill, to its end, lies within ours."""
    vm, runs = evening.vm("gone"), evening.steno.world().runs
    reached = re.search(r"had not reached it since (\S+): it was last reached at (\S+Z)\.", answer)
    assert reached is not None
    assert seconds(runs["train"]["started_at"]) < seconds(reached[2]) <= seconds(reached[1])
    (after,) = [each for each in vm["intervals"] if each["phase"] == "unconfirmed"]
    paid = re.search(r"unconfirmed .*? \$([\d.]+)", answer)
    assert paid is not None
    assert abs(float(paid[1]) - micros(after["cost_usd"]) / 1e6) < 0.0001
    assert abs(seconds(after["from"]) - seconds(reached[1])) < 1
    assert micros(vm["cost_low_usd"]) <= evening.cloud["micro_dollars"] <= micros(vm["cost_high_usd"])


def another_idle_timeout(evening: OnCall, answer: str) -> None:
    """This source had nine runs, and four of them were cold."""
    assert re.search(r" 9 runs, .* recorded \$[\d.]+ 4 .* idle-timeout=5m \$[\d.]+ \d ", answer)


def the_rule_and_its_flips(evening: OnCall, answer: str) -> None:
    for text in ("job 0 exited 3", "current@1/failure-reported", "exit_status 3", "exited 0 → succeeded/exit_zero"):
        assert text in answer
    assert "still been running → no verdict yet (running)" in answer


def then_it_was_running(evening: OnCall, answer: str) -> None:
    assert answer.startswith("train ● running ")
    assert "instance_unreachable" not in answer


def whose_machines(evening: OnCall, answer: str) -> None:
    assert re.search(r"These have the places: \S+ \(train of ada since \S+\), \S+ \(one of carl since \S+\)\.", answer)
    paid = re.search(r"While it waited \([^)]+\), other machines of \S+ cost \$\S+: (.*?)\. ", answer)
    assert paid is not None
    assert sorted(re.findall(r"\$[\d.]+ of runs of (\w+)", paid[1])) == ["ada", "carl"]


def why_it_waits(evening: OnCall, answer: str) -> None:
    assert "It waits in Steno's queue: the machine limit (2, `vms.max`) is reached." in answer
    assert "It is number 1 in the queue" in answer
    assert "It is not known when it starts" in answer


def how_long_it_waited(evening: OnCall, answer: str) -> None:
    """From the request until it was submitted, after both machines of the beginning had ended."""
    run, kept = evening.steno.world().runs["waits"], evening.vm("kept")
    spans = evening.steno.json("timeline", "waits")["spans"]
    waited = {each["state"]: float(each["seconds"]) for each in spans if each["state"] in ("requested", "queued")}
    requested = seconds(run["submitted_at"])
    assert seconds(kept["intervals"][-1]["to"]) - requested < sum(waited.values())
    seen = evening.steno.json("show", "waits")["transitions"][-1]["at"]  # a poll may show it when it is over
    assert sum(waited.values()) <= seconds(seen) - requested + 1e-6
    assert re.search(rf"queued \S+ {duration(round(waited['queued'] * SECOND))} ", answer)


def a_machine_vanished(evening: OnCall, answer: str) -> None:
    name = evening.vm("gone")["name"]
    assert "1 machine vanished" in answer
    assert re.search(rf"{name} \(MI300X:1\) vanished at \S+, last reached at \S+;", answer)


def what_the_kernel_cost(evening: OnCall, answer: str) -> None:
    """Its time at the machine's price, and at most the longest time between two polls more."""
    run = evening.steno.shown(evening.kernel)
    cost = micros(run["cost_usd"]) / 1e6
    ran = seconds(run["finished_at"]) - seconds(run["submitted_at"])
    assert 0 < cost <= (ran + 15) * 1.99 / 3600
    assert f"cost ${cost:.4f}" in answer


def the_host_that_fails(evening: OnCall, answer: str) -> None:
    """Two of the three runs on the machine that vanished."""
    assert "Ended runs by machine" in answer
    host = rf"\| {evening.vm('gone')['name']} \(\S+\) \| 2 of 3 without success \| 3 \|"
    assert re.search(host, answer), answer


def the_gpu_was_used(evening: OnCall, answer: str) -> None:
    """The lab's GPU works at 90 %, with 8 GB, wherever it was measured; nothing counts as idle."""
    use = re.search(r"GPUs working (\d+) %, idle 0 %, unknown \d+ % of", answer)
    assert use is not None
    assert int(use[1]) > 0
    assert "highest of a GPU: memory 8.0 GB" in answer
    assert re.search(r" train \$0.00 – – – \$", answer)


CHECKS: dict[int, Callable[[OnCall, str], None]] = {
    1: why_it_is_up,
    2: who_burns_money,
    3: the_month_is_not_known_yet,
    4: it_is_kept,
    5: nothing_new_starts,
    6: one_user_is_paused,
    7: everything_is_stopped,
    8: the_budget_moved_and_the_limit_holds,
    9: the_way_to_the_port,
    10: three_runs_are_followed,
    11: mine_only,
    12: what_changed,
    13: the_month_for_finance,
    14: last_reached_and_paid_after,
    15: another_idle_timeout,
    16: the_rule_and_its_flips,
    17: then_it_was_running,
    18: whose_machines,
    19: why_it_waits,
    20: how_long_it_waited,
    21: a_machine_vanished,
    22: what_the_kernel_cost,
    23: the_host_that_fails,
    24: the_gpu_was_used,
}


@pytest.mark.slow
@pytest.mark.parametrize("number", CHECKS)
def test_a_question_has_one_answer_and_it_is_right(on_call: OnCall, number: int) -> None:
    """By what the lab did, and what its cloud charged."""
    answer = on_call.answers[number]
    print(answer)
    CHECKS[number](on_call, answer)


PLACES: dict[int, tuple[str, tuple[str, ...]]] = {
    1: ("/machines/{now}", ("It is busy with run after.",)),
    2: ("/machines", (" up, $",)),
    3: ("/report", ("Forecast", "unknown: it needs 7 whole days")),
    4: ("/machines/{now}", ("Keep…",)),
    5: ("/", ("Drain…",)),
    6: ("/", ("Pause…",)),
    7: ("/", ("Stop…",)),
    8: ("/costs", ("Owners with limits", "user/carl", "Move budget…")),
    9: ("/runs/{after}", ("Reach a port…",)),
    10: ("/", ("Running now", "after")),
    11: ("/runs?user=carl", ("three", "four")),
    12: ("/changes", ("It exited 3", "moved $100.00 from user/ada to user/bob")),
    13: ("/report", ("By user", "Failures by cause")),
    14: ("/machines/{gone}", ("it was last reached at", "unconfirmed")),
    15: ("/costs?range=all&whatif=idle-timeout", ("9 runs. The recorded policy, predicted alike",)),
    16: ("/runs/{crash}?tab=why", ("What would have changed it", "succeeded/exit_zero")),
    17: ("/runs/{train}?at={moment}", ("running",)),
    18: ("/runs/{waits}?at={moment}&tab=why", ("one of carl since", "of runs of ada")),
    19: ("/runs/{waits}?at={moment}&tab=why", ("number 1 in the queue",)),
    20: ("/runs/{waits}", ("Timeline", "queued")),
    21: ("/changes", ("vanished",)),
    22: ("/runs/{kernel}?tab=cost", ("Charges",)),
    23: ("/report", ("Ended runs by machine", "2 of 3 without success")),
    24: ("/runs/{train}", ("Use of its GPUs",)),
}
"""The page of a question, and what stands there."""


@pytest.mark.slow
def test_each_place_shows_it(on_call: OnCall, see: See) -> None:
    """In a browser, after the evening; `at` puts a page to the moment before the machine vanished."""
    runs, seen = on_call.steno.world().runs, see(on_call.url)
    words = {name: run["run_id"] for name, run in runs.items()}
    words |= {"kernel": words[on_call.kernel], "now": runs["after"]["vm_id"], "gone": on_call.vms["gone"]}
    assert list(PLACES) == list(QUESTIONS)
    for number, (path, texts) in PLACES.items():
        print(number, path)
        page = seen.go(path.format_map(words | {"moment": str(on_call.moment)}))
        for text in texts:
            page.locator("#page").get_by_text(text).first.wait_for()
    assert (seen.complaints, seen.elsewhere()) == ([], [])


@pytest.mark.slow
def test_a_lever_is_pulled_and_released_on_the_page(on_call: OnCall, see: See) -> None:
    """By the service of `up`; the record has who and why."""
    page = see(on_call.url).go("/")
    page.get_by_role("button", name="Pause…").click()
    sheet = page.get_by_role("dialog", name="Pause")
    sheet.get_by_label("Of the user").fill("bob")
    sheet.get_by_label("Why").fill("at the desk")
    sheet.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Release Pause: user bob").click()
    (pulled,) = [each["data"] for each in on_call.steno.events("LeverPulled") if each["data"]["why"] == "at the desk"]
    assert (pulled["action"], pulled["user"], pulled["by"]) == ("pause", "bob", "loopback")
    page.get_by_role("button", name="Release it").click()
    released = {pulled["lever_id"]}
    on_call.steno.until(
        lambda: released <= {each["data"]["lever_id"] for each in on_call.steno.events("LeverReleased")},
        what="its release",
    )


def test_the_table_has_every_question_with_commands_that_exist() -> None:
    """1 to 24, each once, each with a place; every command and every option of it is in the program."""
    assert [int(row[1]) for row in ROW.finditer(PAGE.read_text())] == list(range(1, 25)) == list(CHECKS)
    assert len({question.text for question in QUESTIONS.values()}) == 24
    for question in QUESTIONS.values():
        assert question.commands, question
        assert question.place.strip(), question
        for typed in question.commands:
            words, context = shlex.split(typed)[1:], click.Context(program)
            command = program.get_command(context, words.pop(0))
            while isinstance(command, click.Group) and words and (inner := command.get_command(context, words[0])):
                command = inner
                words.pop(0)
            if isinstance(command, click.Group):
                command = command.get_command(context, "list")
            assert command is not None, typed
            options = {option for parameter in command.params for option in parameter.opts}
            assert {word for word in words if word.startswith("-")} <= options, typed
