"""Answers for people and programs about machines and money, from a recording of a genuine server."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from stenotest.in_process import InProcess

from steno.cli.program import steno
from steno.cli.wiring.app import App
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.engine.state.policy import Policy, dump_policy
from steno.engine.wire import DOLLAR
from steno.events.clock import SystemClock
from steno.events.store.record import Batch, Record
from steno.events.types import PolicyAdopted

TRACES = Path(__file__).parent.parent / "traces"
VM = "8c2f31a2-e1d6-5569-99c8-ae8419b951e5"


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> InProcess:
    """Commands about a record of two runs on one machine."""
    home = tmp_path_factory.mktemp("home")
    recorded(home / "record.db", TRACES / "dstack-0.22.5" / "warm_reuse.jsonl.zst")
    return InProcess(home)


def recorded(path: Path, trace: Path) -> None:
    """The record that a recorder would have made of what a trace holds: live, where an import makes an archive."""
    polls = [poll for _, poll in open_trace(trace) if poll is not None]
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        record.append_polls(polls)


LISTED = """\
MACHINE                 STATE                        GPU           UP     COST
lab-fleet-0 (not ours)  ● terminated · idle_timeout  MI300X  4 m 24 s  $0.1461
"""

BY_RUN = """\
RUN            PROVISIONING     BUSY     IDLE  TERMINATING      TIME    TOTAL
warm-a              $0.0088  $0.0654        –            –  2 m 14 s  $0.0742
warm-b                    –  $0.0244        –            –    44.1 s  $0.0244
(idle)                    –        –  $0.0428            –  1 m 18 s  $0.0428
(terminating)             –        –        –      $0.0047     8.6 s  $0.0047
total               $0.0088  $0.0897  $0.0428      $0.0047  4 m 24 s  $0.1461

The true cost is $0.1412–$0.1461; exact start and end times are unknown.
"""


def test_machines_are_listed_with_state_time_and_cost(call: InProcess) -> None:
    """A machine that somebody else's fleet made is marked: Steno never ends it."""
    assert call("vms", "--all").stdout.splitlines() == LISTED.splitlines()


def test_the_page_of_a_machine_has_its_address(call: InProcess) -> None:
    """It is how a person finds it at the cloud."""
    assert re.search(r"^address +127\.0\.22\.14$", call("vms", "lab-fleet-0").stdout, re.MULTILINE)


def test_costs_by_run_name_what_no_run_pays(call: InProcess) -> None:
    """Idle time and tear-down are rows of their own."""
    assert call("costs", "--by", "run").stdout.splitlines() == BY_RUN.splitlines()


@pytest.mark.parametrize("by", ["vm", "run", "day", "user", "gpu"])
def test_however_costs_are_cut_they_sum_to_the_machines(call: InProcess, by: str) -> None:
    """To the micro-dollar."""

    def micro(usd: str) -> int:
        return round(float(usd) * 1_000_000)

    answer = call.json("costs", "--by", by)
    machines = call.json("vms", "--all")["vms"]
    assert sum(micro(row["total_usd"]) for row in answer["rows"]) == micro(answer["total"]["total_usd"])
    assert micro(answer["total"]["total_usd"]) == sum(micro(vm["cost_usd"]) for vm in machines)
    for row in answer["rows"]:
        assert sum(micro(amount) for amount in row["lines"].values()) == micro(row["total_usd"])


def test_the_machine_object_is_that_of_replay(call: InProcess) -> None:
    """In the list and alone; beside it the facts and intents that the object leaves out."""
    replayed = call.json("replay")["vms"]
    assert call.json("vms", "--all")["vms"] == replayed
    alone = call.json("vms", "lab-fleet-0")
    assert {key: alone[key] for key in replayed[0]} == replayed[0]
    assert (alone["gpu"], alone["gpu_count"], alone["spot"], alone["ours"]) == ("MI300X", 1, False, False)
    assert alone["created_at"].startswith("2026-11-20T13:47:30")


@pytest.mark.parametrize("word", ["lab-fleet-0", VM, VM[:8], "0a1625b9-dce6-4032-9eac-12ee743e0139"])
def test_a_machine_is_found_by_any_word_for_it(call: InProcess, word: str) -> None:
    """Name, id, its beginning, the provider's id."""
    assert call.json("vms", word)["vm_id"] == VM


def test_the_past_is_told_as_it_was(call: InProcess) -> None:
    """`--at` leaves out what came later: an open machine, its cost so far, its run's start."""
    then = call.json("vms", "lab-fleet-0", "--at", "2026-11-20T13:48:30Z")
    assert (then["state"], then["intervals"][-1]["to"]) == ("busy", None)
    assert float(then["cost_usd"]) < 0.04
    assert call.json("budget", "--at", "2026-11-20T13:48:30Z")["rate_now_usd_per_hour"] == "1.990000"
    assert call.json("metrics", "--at", "2026-11-20T13:48:30Z")["active_vms"] == 1
    assert call.json("metrics")["active_vms"] == 0
    before = call.json("costs", "--at", "2026-11-20T13:47:29Z")
    assert before["total"]["total_usd"] == "0.000000"


def test_the_metrics_are_numbers(call: InProcess) -> None:
    """The first site's keys in its order."""
    answer = call.json("metrics", AMD_GRANT_CREDITS_TOTAL="1400")
    assert list(answer) == [
        "total_cost_usd",
        "remaining_credits_usd",
        "credits_used_pct",
        "tasks_completed",
        "cold_starts",
        "warm_reuses",
        "active_vms",
    ]
    assert all(isinstance(value, int | float) and not isinstance(value, bool) for value in answer.values())
    assert (answer["tasks_completed"], answer["cold_starts"], answer["warm_reuses"]) == (2, 1, 1)
    assert answer["remaining_credits_usd"] == pytest.approx(1400 - answer["total_cost_usd"])


def test_the_budget_is_that_of_the_settings(call: InProcess) -> None:
    """A smaller one is crossed; none has no end."""
    small = call.json("budget", AMD_GRANT_CREDITS_TOTAL="0.16", AMD_COST_ALERT_THRESHOLD="0.5,0.95")
    assert (small["total_usd"], small["spent_usd"]) == ("0.160000", "0.146129")
    assert [alert["reached"] for alert in small["alerts"]] == [True, False]
    none = call.json("budget", AMD_GRANT_CREDITS_TOTAL="off")
    assert (none["total_usd"], none["remaining_usd"], none["exhausted_at"]) == (None, None, None)
    assert "█" in call("budget", AMD_GRANT_CREDITS_TOTAL="0.16").stdout


def test_the_budget_in_force_is_shown_and_what_this_shell_sets_otherwise_named(call: InProcess, tmp_path: Path) -> None:
    """A process has adopted $50; the source of the kernels' machines, adopted later, has no budget of its own."""
    place = tmp_path / "record.db"
    recorded(place, TRACES / "dstack-0.22.5" / "warm_reuse.jsonl.zst")
    with Record.open(place, write=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        for source, policy in (("dstack/main", Policy(budget_total=50 * DOLLAR)), ("kernels/main", Policy())):
            adopted = PolicyAdopted(source=source, policy=dump_policy(policy))
            record.append_many([Batch(f"source/{source}", (adopted,))])
    assert call.json("budget", STENO_RECORD=str(place))["total_usd"] == "50.000000"
    done = call("budget", STENO_RECORD=str(place))
    assert "$50.00" in done.stdout
    assert "budget.total is off in this shell (not set)" in done.stderr
    same = call("budget", STENO_RECORD=str(place), STENO_BUDGET="50")
    assert (same.stdout, same.stderr) == (done.stdout, "")
    assert call.json("metrics", STENO_RECORD=str(place))["remaining_credits_usd"] > 49


def test_the_csv_is_focus_and_sums_to_the_total(call: InProcess) -> None:
    """Every charge a line, columns as the specification names them."""
    rows = list(csv.DictReader(io.StringIO(call("costs", "--format", "csv").stdout)))
    assert {"BilledCost", "ChargePeriodStart", "ResourceId", "ServiceCategory", "Tags"} <= rows[0].keys()
    assert round(sum(float(row["BilledCost"]) for row in rows), 6) == 0.146129
    assert {json.loads(row["Tags"])["line"] for row in rows} == {"provisioning", "busy", "idle", "terminating"}


def test_reconciliation_explains_every_micro_dollar(call: InProcess) -> None:
    """The causes sum to the difference, of each run and of everything."""
    answer = call.json("costs", "--reconcile")
    for run in [*answer["runs"], answer["total"]]:
        difference = round(float(run["ours_usd"]) * 1e6) - round(float(run["theirs_usd"]) * 1e6)
        assert sum(round(float(line["amount_usd"]) * 1e6) for line in run["lines"]) == difference
    assert {"idle", "tear-down"} <= {line["cause"] for line in answer["total"]["lines"]}
    assert "idle" in call("costs", "--reconcile").stdout


def test_an_estimate_starts_from_what_the_record_measured(call: InProcess) -> None:
    """Its median start; below it stands what was measured, beside the targets in the documents' own words."""
    answer = call.json("estimate")
    measures = {measure["name"]: measure for measure in answer["measures"]}
    assert (measures["cold start"]["target"], measures["cold start"]["met"]) == ("< 5 min", True)
    assert 39 < measures["cold start"]["median"] == answer["inputs"]["provisioning_seconds"] < 40
    assert measures["warm start"]["target"] == "< 10 s"
    page = call("estimate").stdout
    assert "the median of this record" in page
    assert "Measured in this record" in page
    assert "given" in call("estimate", "--start", "3m").stdout


def test_an_estimate_follows_the_settings(call: InProcess) -> None:
    """Price, idle timeout and budget."""
    words = ("estimate", "-n", "10", "-m", "0.5", "--start", "2m")
    before = call.json(*words)
    assert (before["cold_usd"], before["months"][0]["cost_usd"]) == ("0.082917", "24.875000")
    dearer = call.json(*words, AMD_MI300X_HOURLY_RATE="3.98", AMD_VM_IDLE_TIMEOUT="off", AMD_GRANT_CREDITS_TOTAL="500")
    assert dearer["inputs"]["usd_per_hour"] == "3.980000"
    assert (dearer["inputs"]["idle_timeout_seconds"], dearer["reuse_pays_from_runs"]) == (None, None)
    assert dearer["months"][0]["budget_months"] == 10.1
    refused = call("estimate", "--gpu", "H100")
    assert refused.exit_code == 2
    assert "no price for H100: set rates.H100" in refused.output
    for spelled in ("amd:MI300X", "AMD Instinct MI300X VF", "mi300x"):
        assert call.json(*words, "--gpu", spelled)["cold_usd"] == before["cold_usd"]
    for spelled in ("amd:MI300X:2", "MI300X:2", "MI300X,MI210", ""):
        refused = call("estimate", "--gpu", spelled)
        assert refused.exit_code == 2
        assert f"--gpu: {spelled!r} is not a GPU model" in refused.output


@pytest.mark.parametrize(
    "words", [("--reconcile", "--by", "run"), ("--reconcile", "--format", "csv"), ("--format", "csv", "--by", "run")]
)
def test_two_pages_at_once_are_a_usage_error(call: InProcess, words: tuple[str, ...]) -> None:
    """Two options of which one would have no effect are refused."""
    assert call("costs", *words).exit_code == 2


def test_explain_of_a_machine_says_why_and_shows_the_bill(call: InProcess) -> None:
    """In sentences, and as JSON."""
    page = call("explain", "lab-fleet-0").stdout
    assert "Why it has ended" in page
    assert "idle_timeout" in page
    assert "Its bill" in page
    assert call.json("explain", "lab-fleet-0")["vm"]["vm_id"] == VM


def test_explain_of_a_cold_run_says_why_it_was_not_warm(call: InProcess) -> None:
    """And of a warm one nothing."""
    assert call.json("explain", "warm-a")["not_warm"] == ["There was no earlier machine."]
    assert call.json("explain", "warm-b")["not_warm"] == []


def test_a_run_is_shown_with_its_machine(call: InProcess) -> None:
    """In `show`, `ps` and `timeline`."""
    assert "lab-fleet-0, cold start" in call("show", "warm-a").stdout
    assert "lab-fleet-0" in call("ps", "--all", COLUMNS="120").stdout
    phases = call.json("timeline", "warm-a")["machine"]["phases"]
    assert [phase["phase"] for phase in phases] == ["provisioning", "busy"]


def test_no_page_about_money_is_wider_than_the_terminal(call: InProcess) -> None:
    """Lines that wrap are not read."""
    pages = [
        ("vms", "--all"),
        ("vms", "lab-fleet-0"),
        ("costs",),
        ("costs", "--by", "run"),
        ("costs", "--reconcile"),
        ("estimate",),
        ("budget",),
        ("metrics",),
        ("explain", "lab-fleet-0"),
        ("timeline", "warm-a"),
        ("replay",),
    ]
    for words in pages:
        done = call(*words)
        assert done.exit_code == 0, done.output
        assert [line for line in done.stdout.splitlines() if len(line) > 80] == [], words
        assert "\x1b" not in done.output


def test_a_machine_that_is_gone_needs_no_ending(call: InProcess) -> None:
    """Stopping it is done already; a word that it is gone would contradict the record."""
    assert call.json("vms", "stop", "lab-fleet-0") == {
        "vm_id": VM,
        "name": "lab-fleet-0",
        "state": "terminated",
        "asked": False,
        "told": False,
    }
    assert "already shown the end" in str(call("vms", "gone", "lab-fleet-0", "--at", "5m").exception)


def test_somebodys_word_ends_the_bill_of_a_machine_nobody_sees(call: InProcess, tmp_path: Path) -> None:
    """Not before it was there, not in the future; from then on it is gone, and costs no more."""
    record = {"STENO_RECORD": str(tmp_path / "record.db")}
    assert call("import", TRACES / "dstack-0.22.5" / "unreachable.jsonl.zst", **record).exit_code == 0
    before = call.json("vms", "lab-fleet-0", **record)
    for wrong in ("2026-11-20T13:40:00Z", "2099-01-01T00:00:00Z", "whenever"):
        assert call("vms", "gone", "lab-fleet-0", "--at", wrong, **record).exit_code != 0
    assert call.json("vms", "lab-fleet-0", **record) == before

    answer = call.json("vms", "gone", "lab-fleet-0", "--at", "2026-11-20T13:45:44Z", **record)
    assert (answer["vm_id"], answer["ended_at"]) == (before["vm_id"], "2026-11-20T13:45:44.000000Z")
    after = call.json("vms", "lab-fleet-0", **record)
    assert (after["state"], after["intervals"][-1]["to"]) == ("terminated", answer["ended_at"])
    assert float(after["cost_usd"]) < float(before["cost_usd"])
    assert call.json("metrics", **record)["active_vms"] == 0


@pytest.mark.parametrize("words", [("vms", "nosuch"), ("vms", "stop", "nosuch"), ("explain", "nosuch")])
def test_a_word_for_nothing_says_what_there_is(call: InProcess, words: tuple[str, ...]) -> None:
    """A line with the command that lists them."""
    assert "nosuch" in str(call(*words).exception)


def test_subcommands_and_machines_are_completed(call: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    """`steno vms <TAB>` gives both, `steno vms stop <TAB>` machines, and an id once it is begun."""
    monkeypatch.setenv("STENO_RECORD", call.json("config")["settings"]["record"]["value"])
    assert call("vms", "--all").exit_code == 0  # the read model is there

    def completed(*words: str, begun: str = "") -> list[str]:
        completions = ShellComplete(steno, {"obj": App()}, "steno", "_STENO_COMPLETE").get_completions(
            list(words), begun
        )
        return [completion.value for completion in completions]

    assert set(completed("vms")) >= {"stop", "gone", "lab-fleet-0"}
    assert completed("vms", "stop", begun="lab") == ["lab-fleet-0"]
    assert completed("vms", "gone", begun=VM[:3]) == [VM]
    assert completed("explain", begun="lab") == ["lab-fleet-0"]


def test_a_page_heads_with_the_providers_id_and_with_stenos_own(call: InProcess) -> None:
    """The id after the provider's name is the id that its own tools take."""
    machine = call.json("vms", "--all")["vms"][0]
    head = call("explain", machine["vm_id"]).stdout.splitlines()[1:3]
    assert head == [f"{machine['source']} {machine['provider_id']}", f"machine id {machine['vm_id']}"]
    run = call.json("show", machine["runs"][0])
    for command in ("explain", "timeline"):
        head = call(command, run["run_id"]).stdout.splitlines()[1:3]
        assert head == [f"dstack {run['provider_id']}", f"run id {run['run_id']}"], command


def test_a_machine_that_nobody_looks_at_is_said_to_be_unseen(call: InProcess, tmp_path: Path) -> None:
    """In the list and alone, as text and as JSON, in the words of `ps`; a machine that has gone is not watched."""
    path = tmp_path / "record.db"
    recorded(path, TRACES / "dstack-0.22.5" / "unreachable.jsonl.zst")
    here = {"STENO_RECORD": str(path)}
    unseen = "dstack/unreachable is blind: last answer "
    for words in (("vms",), ("vms", "lab-fleet-0"), ("ps", "--all")):
        assert (unseen in call(*words, **here).stderr) is (words[0] == "vms"), words
    assert call.json("vms", **here)["sources"] == call.json("ps", **here)["sources"]
    assert call.json("vms", **here)["sources"][0]["observability"] == "blind"
    assert call.json("vms", "lab-fleet-0", **here)["observability"] == "blind"
    last = str(max(call.json("explain", "lab-fleet-0", **here)["position"], 1))
    assert unseen not in call("vms", "--at", last, **here).stderr
    assert call.json("vms", "--at", last, **here)["sources"][0]["observability"] == "fresh"
    assert call("vms", "gone", "lab-fleet-0", "--at", "2026-11-20T13:45:44Z", **here).exit_code == 0
    assert unseen not in call("vms", **here).stderr
