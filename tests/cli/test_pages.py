"""Pages and pictures as a person sees them on a terminal."""

from pathlib import Path

import pytest
from click import unstyle
from hypothesis import given
from hypothesis import strategies as st
from stenotest.in_process import InProcess
from stenotest.run_objects import T, a_run
from stenotest.simulation import Simulation, vm_row

from steno.cli.render import paint, words
from steno.cli.render.pictures import draw
from steno.cli.render.vms import listing
from steno.engine.money.costs import Costs
from steno.engine.objects import BlindObject, vm_object
from steno.engine.state.changes import GapKind
from steno.events.clock import SECOND, duration, format_time
from steno.projections.answers.timeline import timeline

TRACES = Path(__file__).parent.parent / "traces" / "dstack-0.22.5"
PAGES = Path(__file__).with_name("pages")


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> InProcess:
    """`page("show", "bad-run")`: a command about a record of one failed run."""
    call = InProcess(tmp_path_factory.mktemp("home"))
    call.page("import", TRACES / "failure.jsonl.zst")
    return call


EXPLAINED = (PAGES / "explain.txt").read_text(encoding="utf-8")
DRAWN = (PAGES / "timeline.txt").read_text(encoding="utf-8")


def lines(text: str) -> list[str]:
    """The lines of a page; spaces at their ends are not seen."""
    return [line.rstrip() for line in text.splitlines()]


def test_explain_is_verdict_rule_polls_and_what_would_flip_it(page: InProcess) -> None:
    """The page is complete: no other source is needed."""
    assert lines(page("explain", "bad-run").stdout) == lines(EXPLAINED)


def test_a_timeline_shows_where_the_time_went(page: InProcess) -> None:
    """A bar for each state, on one scale."""
    assert lines(page("timeline", "bad-run").stdout) == lines(DRAWN)


def test_no_page_is_wider_than_the_terminal(page: InProcess) -> None:
    """Lines that wrap are not read."""
    for command in (["ps", "--all"], ["show", "bad-run"], ["timeline", "bad-run"], ["explain", "bad-run"], ["replay"]):
        done = page(*command)
        assert done.exit_code == 0, done.output
        assert [line for line in done.stdout.splitlines() if len(line) > 80] == [], command


def test_nothing_is_coloured_where_nobody_wants_it(page: InProcess) -> None:
    """NO_COLOR, and no terminal."""
    assert "\x1b" not in page("explain", "bad-run").output


ENDED = {"reason": "exit_zero", "exit_status": 0, "execution_seconds": 41.2, "provider_cost_usd": "0.034700"}
COLD = [
    ("queued", 4.0),
    ("provisioning", 6.0),
    ("pulling", 35.0),
    ("running", 37.5),
    ("finishing", 74.0),
    ("succeeded", 78.0),
]


def test_a_cold_run_is_drawn_on_one_scale() -> None:
    """Each bar begins where the one above ends."""
    run = a_run(*COLD, **ENDED)
    drawn = unstyle(draw(run, timeline(run, [], T), 80)).splitlines()
    assert drawn[0] == "matmul  ● succeeded · exit_zero · exit 0"
    bars = [line for line in drawn if "█" in line or "·  " in line]
    ends = [line.rstrip()[:68].rstrip() for line in bars]
    assert [len(end) for end in ends] == sorted(len(end) for end in ends)
    assert [line.split()[0] for line in bars][1:] == ["queued", "provisioning", "pulling", "running", "finishing"]
    assert "1 m 18 s" in "\n".join(drawn)


def test_silence_of_the_source_is_drawn_under_the_scale() -> None:
    """A stretch nobody saw is marked, with its length; in another word, colour and hatching if nobody polled."""
    run, hatched = a_run(*COLD, **ENDED), set()
    for kind, word, fill in ((GapKind.NO_ANSWER, "no answer", "░"), (GapKind.NOT_POLLED, "not polled", "╱")):
        times = {"start": format_time(T + 20 * SECOND), "end": format_time(T + 26 * SECOND)}
        gap = BlindObject(source="dstack/main", kind=kind, **times)
        drawn = draw(run, timeline(run, [gap], T), 80)
        line = next(line for line in drawn.splitlines() if unstyle(line).startswith(word))
        assert fill in line
        assert unstyle(line).endswith(" 6 s")
        hatched.add(line.partition(word)[0])
    assert len(hatched) == 2


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=8), st.integers(20, 200))
def test_a_picture_never_overflows_the_terminal(times: list[float], columns: int) -> None:
    """Whatever the times, no line is wider than the terminal (48 columns at least)."""
    states = ["queued", "provisioning", "pulling", "running", "queued", "provisioning", "running", "finishing"]
    run = a_run(*zip(states, sorted(times), strict=False))
    drawn = draw(run, timeline(run, [], T + round(2e6) * SECOND), columns)
    assert max(paint.width(line) for line in drawn.splitlines()[3:]) <= max(columns, 48)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (0, "0 s"),
        (48_000, "48 ms"),
        (100_000, "0.1 s"),
        (12_000_000, "12 s"),
        (59_940_000, "59.9 s"),
        (59_960_000, "1 m"),
        (426_830_000, "7 m 07 s"),
        (3_600_000_000, "1 h"),
        (86_400_000_000, "24 h"),
        (200_000_000_000, "2 d 07 h"),
        (-90_000_000, "-1 m 30 s"),
    ],
)
def test_durations_read_to_two_units(span: int, text: str) -> None:
    """No digit that says nothing."""
    assert duration(span) == text


def test_money_keeps_the_places_that_say_something() -> None:
    """The cent is always there, a millionth only where it counts."""
    assert [words.money(usd) for usd in ("0.034700", "12.500000", "3.000000", "0.000001", None)] == [
        "$0.0347",
        "$12.50",
        "$3.00",
        "$0.000001",
        "–",
    ]


def test_a_table_lines_up_painted_cells() -> None:
    """Colour has no width."""
    drawn = paint.table(["A", "N"], [[paint.state("failed"), "1"], ["x", "100"]], right=[1])
    assert unstyle(drawn).splitlines() == ["A         N", "failed    1", "x       100"]


COMMAND = "`steno logs two-words --tail 50`"


@given(
    before=st.lists(st.sampled_from(["it", "waits", "at", "the-provider;"]), max_size=30), columns=st.integers(20, 100)
)
def test_a_command_is_never_broken(before: list[str], columns: int) -> None:
    """However narrow the terminal is; nothing else is lost or added."""
    text = " ".join([*before, COMMAND, "shows it."])
    lines = paint.wrapped(text, columns)
    assert any(COMMAND in line for line in lines)
    assert " ".join(lines) == text


@pytest.mark.parametrize(
    ("first", "second", "cells"),
    [
        ({"backend": "runpod"}, {}, ("runpod atl1", "amddevcloud atl1", "amddevcloud atl1")),
        ({"region": "nyc1"}, {}, ("amddevcloud nyc1", "amddevcloud atl1", "amddevcloud atl1")),
        ({}, {}, ("host-m1", "host-m2", "host-m3")),
        ({"hostname": None}, {"hostname": None}, ("m1", "m2", "m3")),
    ],
)
def test_where_tells_two_machines_of_one_name_apart(
    first: dict[str, str], second: dict[str, str], cells: tuple[str, ...]
) -> None:
    """By cloud and region, else by address, else by the provider's id; the source is the same here. The column has the
    same fact of a machine whose name is its own.
    """
    made = Simulation()
    made.machines(vm_row("m1", **first), vm_row("m2", **second), vm_row("m3", name="alone"))
    vms = [made.vm("m1"), made.vm("m2"), made.vm("m3")]
    state = made.world.state
    costs = Costs(state)
    table = listing([vm_object(vm, costs.bill(vm.vm_id)) for vm in vms], state.vms.__getitem__, lambda _: made.now, 200)
    head, *rows = unstyle(table).splitlines()
    at = head.index("WHERE")
    assert tuple(row[at:].split("  ")[0].strip() for row in rows) == cells
