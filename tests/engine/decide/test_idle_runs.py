"""When a run is warned and stopped because its GPUs are idle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from stenotest.dstack_history import Item, provider_id
from stenotest.event_world import HANDED, OURS, SOURCE, EventWorld, marked, on, requested

from steno.engine.decide.decisions import decide
from steno.engine.decide.idle_policy import NOTICE, STALE
from steno.engine.rules.why_ended import why
from steno.engine.state.policy import HOUR, MINUTE, Policy
from steno.engine.state.run import Requirements
from steno.engine.state.samples import Sample, pack
from steno.events import types
from steno.events.clock import SECOND

POLICY = Policy(busy_idle_timeout=30 * MINUTE)
RUNNING = marked(on("a"))
STEP = 30  # seconds between two samples


class IdleWorld(EventWorld):
    """A running run of ours, and what is decided of it."""

    def __init__(self, policy: Policy = POLICY, row: Item = RUNNING, **request: Any) -> None:
        super().__init__()
        self.policy = policy
        taken = types.SubmitSucceeded(run_id=OURS, provider="dstack", provider_id=provider_id("a"), name="a")
        self.event(requested(**request)).event(HANDED).event(taken).runs(row)

    @property
    def now(self) -> int:
        return self.at(self.story.now)

    def record(self, *samples: tuple[int, int | None]) -> None:
        """Samples arrive: when they were measured, and the use."""
        block = pack([Sample(at=at, device="0", use=use, memory=1) for at, use in samples])
        self.event(types.SamplesRecorded(run_id=OURS, provider="dstack", provider_id="x", source="t", block=block))

    def sample(self, use: int | None) -> IdleWorld:
        self.story.wait(STEP)
        self.record((self.now, use))
        return self

    def samples(self, minutes: float, use: int | None = 0) -> IdleWorld:
        for _ in range(round(minutes * 60 / STEP)):
            self.sample(use)
        return self

    def decided(self, policy: Policy | None = None) -> list[types.RunIdleWarned | types.StopRequested]:
        made = decide(self.world.state, SOURCE, policy or self.policy, self.now)
        return [each for each in made if isinstance(each, types.RunIdleWarned | types.StopRequested)]

    def act(self) -> list[str]:
        """Decide, and record it; the kinds."""
        made = self.decided()
        for each in made:
            self.event(each)
        return [type(each).__name__ for each in made]


def test_an_idle_run_is_warned_ten_minutes_before() -> None:
    """Not before; with the moment of its stop, which its own sentence and an anomaly name."""
    site = IdleWorld().samples(19.5)
    assert (site.act(), site.sample(0).decided()) == ([], [])
    (warning,) = site.sample(0).decided()
    times = {"since": site.now - 20 * MINUTE, "stops_at": site.now + NOTICE}
    assert warning == types.RunIdleWarned(run_id=OURS, provider="dstack", **times)
    assert (site.act(), site.act(), site.anomalies) == (["RunIdleWarned"], [], ["gpu_idle"])
    assert why(site.run) == (
        "It is running, but its GPUs have been idle since 2025-12-15T09:00:35Z: a policy stops it at "
        "2025-12-15T09:30:35Z unless they work before; look what it waits for: `steno logs a --tail 50`."
    )
    assert why(site.sample(50).run).startswith("It is running; ")


OTHERS: dict[str, Callable[[], IdleWorld]] = {
    "no such policy": lambda: IdleWorld(Policy()),
    "machines that cost nothing": lambda: IdleWorld(replace(POLICY, free=True)),
    "a task that opts out": lambda: IdleWorld(configuration=b'{"env":{"STENO_KEEP_IDLE":"steno:secret:00"}}'),
    "a run whose task has not begun": lambda: IdleWorld(row=marked(on("a", "pulling"))),
}
FIELDS: dict[str, dict[str, Any]] = {
    "a run that somebody else submitted": {"terms": None},
    "a run that is stopped already": {"stop_by": "user"},
    "a schedule": {"facts": None, "terms": Requirements(submitter="me", crons=("0 3 * * *",))},
    "a firing": {"schedule": "another"},
    "an array": {"tasks": ("another",)},
    "a machine for kernels": {"name": "kernels-mi300x-0123456789ab"},
}


@pytest.mark.parametrize("what", [*OTHERS, *FIELDS])
def test_other_runs_are_not_warned(what: str) -> None:
    """Though their GPUs are idle for an hour."""
    site = OTHERS.get(what, IdleWorld)()
    for name, value in FIELDS.get(what, {}).items():
        setattr(site.run, name, value)
    site.samples(60)
    assert (site.run.use is not None, site.decided()) == (True, [])


@pytest.mark.parametrize("use", [5, None])
def test_work_or_unknown_time_behind_the_idle_time_decides_nothing(use: int | None) -> None:
    """The newest sample counts."""
    site = IdleWorld().samples(60)
    assert len(site.decided()) == 1
    assert site.sample(use).decided() == []


def test_samples_older_than_a_quarter_of_an_hour_decide_nothing() -> None:
    """Until then the run has its ten minutes from the warning on."""
    site = IdleWorld().samples(60)
    site.story.wait(STALE / SECOND)
    (warning,) = site.decided()
    assert isinstance(warning, types.RunIdleWarned)
    assert warning.stops_at == site.now + NOTICE
    site.story.wait(1)
    assert site.decided() == []


def warned() -> IdleWorld:
    """A run that was warned just now."""
    site = IdleWorld().samples(20.5)
    assert site.act() == ["RunIdleWarned"]
    return site


def test_a_warned_run_that_stays_idle_is_stopped_with_its_own_reason() -> None:
    """At the moment that the warning names, once, and its end says why."""
    site = warned()
    assert site.samples(9.5).act() == []
    (stop,) = site.sample(0).decided()
    assert stop == types.StopRequested(
        run_id=OURS, provider="dstack", project="main", provider_id=provider_id("a"), name="a", by="policy",
        submitter="steno", idle_since=site.now - 30 * MINUTE,
    )  # fmt: skip
    assert (site.act(), site.sample(0).act()) == (["StopRequested"], [])
    ended = on("a", "terminated", reason="terminated_by_user", finished=site.story.now)
    site.runs(marked({**ended, "termination_reason": "stopped_by_user"}))
    assert (site.run.state, site.run.reason) == ("stopped", "gpu_idle")
    assert why(site.run).startswith("Its GPUs were idle for too long, and a policy stopped it (")


@pytest.mark.parametrize("use", [50, None])
def test_work_or_unknown_time_after_the_warning_begins_it_again(use: int | None) -> None:
    """A later stretch has a warning of its own."""
    site = warned().samples(1, use).samples(12)
    assert (site.act(), site.samples(9).act()) == ([], ["RunIdleWarned"])


def test_samples_of_a_clock_that_is_fast_stop_nothing_early() -> None:
    """The run has its ten minutes by the record's clock, too."""
    site = warned()
    site.record(*((site.now + minute * MINUTE, 0) for minute in range(1, 12)))
    assert site.act() == []


def test_old_idleness_is_no_second_look() -> None:
    """A run that was idle for hours before a process decided is stopped by a sample behind the warning only."""
    site = IdleWorld().samples(120)
    assert site.act() == ["RunIdleWarned"]
    site.story.wait(NOTICE / SECOND)
    assert site.act() == []
    site.record(*((site.now - minute * MINUTE, 0) for minute in range(10)))
    assert site.act() == ["StopRequested"]


def test_a_longer_timeout_counts_at_once() -> None:
    """The stop waits for the timeout that is in force."""
    site = warned().samples(15)
    assert (len(site.decided()), site.decided(Policy(busy_idle_timeout=8 * HOUR))) == (1, [])


ENTRY = st.tuples(
    st.integers(1, 25), st.sampled_from([0, 0, 0, 0, 50, None]), st.sampled_from(["live", "live", "late", "blind"])
)


@given(st.lists(ENTRY, min_size=2, max_size=5), st.sampled_from([2, 10, 15]), st.sampled_from([0, 0, -5, 50]))
def test_a_stop_has_a_warning_and_a_newer_idle_sample(
    history: list[tuple[int, int | None, str]], minutes: int, ahead: int
) -> None:
    """Law, for samples each minute by any clock, some late, some while no process decides: the warning is ten
    minutes or half the timeout earlier, a sample was measured since, all samples of the timeout before the newest show
    no work, and what was decided is not decided again.
    """
    site, notice = IdleWorld(Policy(busy_idle_timeout=minutes * MINUTE)), min(NOTICE, minutes * MINUTE // 2)
    warned: dict[int, int] = {}
    seen: list[tuple[int, int | None]] = []
    held: list[tuple[int, int | None]] = []
    for count, use, mode in history:
        for step in range(count):
            site.story.wait(60)
            held.append((site.now, use))
            if mode != "late" or step == count - 1:
                site.record(*((at + ahead * MINUTE, value) for at, value in held))
                seen, held = [*seen, *held], []
            for each in [] if mode == "blind" else site.decided():
                site.event(each)
                assert site.decided() == []
                if isinstance(each, types.RunIdleWarned):
                    warned[each.since] = site.now
                    continue
                begun = warned[each.idle_since or 0]
                assert site.now - begun >= notice
                assert seen[-1][0] > begun
                assert {value for at, value in seen if at > seen[-1][0] - minutes * MINUTE} == {0}
