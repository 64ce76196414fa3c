"""Pictures and words: what a person sees."""

import pytest
from click import unstyle
from hypothesis import given
from hypothesis import strategies as st
from stenotest.run_objects import T, a_run

from cli.render import paint, words
from cli.render.timeline import draw
from engine.fold.change import GapKind
from engine.objects import BlindObject
from events.clock import SECOND, format_time
from projections.models.timeline import timeline

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
        assert unstyle(line).endswith("6.0 s")
        hatched.add(line.partition(word)[0])
    assert len(hatched) == 2


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=8),
    st.integers(20, 200),
)
def test_a_picture_never_overflows_the_terminal(times: list[float], columns: int) -> None:
    """Whatever the times, no line is wider than the terminal (48 columns at least)."""
    states = ["queued", "provisioning", "pulling", "running", "queued", "provisioning", "running", "finishing"]
    run = a_run(*zip(states, sorted(times), strict=False))
    drawn = draw(run, timeline(run, [], T + round(2e6) * SECOND), columns)
    assert max(paint.width(line) for line in drawn.splitlines()[3:]) <= max(columns, 48)


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (0, "0 ms"),
        (48_000, "48 ms"),
        (100_000, "0.1 s"),
        (59_940_000, "59.9 s"),
        (59_960_000, "1 m 00 s"),
        (426_830_000, "7 m 07 s"),
        (3_600_000_000, "1 h 00 m"),
        (200_000_000_000, "2 d 07 h"),
    ],
)
def test_durations_read_to_two_units(span: int, text: str) -> None:
    """No digit that says nothing."""
    assert words.duration(span) == text


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
