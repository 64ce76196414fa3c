"""A record that adopts rules is judged by them from there on, in every fold."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from stenotest.dstack_history import DstackHistory, Item, single
from stenotest.records import temporary_record
from stenotest.rule_texts import ADOPTIONS, adoption, rule_text
from stenotest.snapshots import save

from steno.engine.fold.poll_reader import Until
from steno.engine.fold.record_fold import RecordFold
from steno.engine.fold.snapshot_store import SnapshotStore
from steno.engine.live.adopted_rules import adopt, adoptions, in_force
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS, rules_named
from steno.engine.replay.replay import replay_record, world_of
from steno.engine.rules.rule_file import adopted_by, digest_of, rules_of
from steno.engine.rules.sets import CURRENT
from steno.engine.state.world import World
from steno.events.errors import UnreadableInput
from steno.events.store.append import Batch
from steno.events.store.record import Record
from steno.events.types import RulesAdopted
from steno.projections.read_models.past_worlds import opened, world_before
from steno.projections.read_models.world_table import load_whole_world

SITE = rules_of((rule_text(),))


@pytest.fixture
def record(tmp_path: Path) -> Iterator[Record]:
    with temporary_record(tmp_path, shapes=READINGS.shape) as opened:
        yield opened


class Story:
    """Runs of one source that end with exit status 137, one after the other."""

    def __init__(self, record: Record) -> None:
        self.record, self.history, self.items = record, DstackHistory(), list[Item]()

    def kills(self, name: str) -> "Story":
        """The list shows that this run ended so, beside those before."""
        reason = "container_exited_with_error"
        item = single(name, "failed", "failed", reason="job_failed", job_reason=reason, exit_status=137)
        item["id"] = f"00000000-0000-4000-8000-{len(self.items):012}"
        self.items.append(item)
        self.history.wait(5).listed(*self.items)
        self.record.append_polls([poll for _, poll in self.history.polls() if poll is not None])
        self.history.lines.clear()
        return self

    def adopts(self, event: RulesAdopted) -> "Story":
        self.record.append_many([Batch("rules", [event])])
        return self


def verdicts(state: World) -> dict[str | None, tuple[str | None, str | None]]:
    return {run.name: (run.reason, run.rule) for run in state.runs.all()}


def mixed(record: Record) -> Story:
    """A run under `current`, one under the site's rules, one under `current` again."""
    story = Story(record).kills("first").adopts(ADOPTIONS[0]).kills("second")
    return story.adopts(ADOPTIONS[2]).kills("third")


def test_what_follows_an_adoption_is_judged_by_it_and_what_came_before_is_not(record: Record) -> None:
    """A run stays as it was judged until an answer shows something new of it; `current` can be adopted again."""
    mixed(record)
    digest = digest_of([rule_text()])[:8]
    assert verdicts(world_of(record).state) == {
        "first": ("exit_nonzero", "current@1/failure-reported"),
        "second": ("out_of_memory", f"site@{digest}/killed-for-memory"),
        "third": ("exit_nonzero", "current@1/failure-reported"),
    }


def test_a_replay_under_a_named_rule_set_ignores_what_was_adopted(record: Record, tmp_path: Path) -> None:
    mixed(record)
    (tmp_path / "site.toml").write_text(rule_text())
    by_current = replay_record(record, "current").runs
    by_site = replay_record(record, str(tmp_path / "site.toml")).runs
    assert {run.reason for run in by_current} == {"exit_nonzero"}
    assert {run.reason for run in by_site} == {"out_of_memory"}


def test_a_live_world_that_adopts_while_it_follows_shows_what_a_replay_gives(record: Record) -> None:
    """Law: replay of the record gives exactly what the live engine showed, at every position."""
    live, story = LiveWorld(READINGS, record), Story(record)
    for step in ("first", ADOPTIONS[0], "second", ADOPTIONS[1], "third", ADOPTIONS[2], "fourth"):
        if isinstance(step, str):
            story.kills(step)
        else:
            story.adopts(step)
        live.catch_up()
        replayed = world_of(record).state
        assert verdicts(live.state) == verdicts(replayed)
        assert (live.state.rules, live.state.rule_texts) == (replayed.rules, replayed.rule_texts)
        assert in_force(record).name == live.state.rules


def test_a_world_resumed_from_a_snapshot_goes_on_with_the_rules_in_force(record: Record) -> None:
    """Two recorders of one record, one of which starts again, judge alike."""
    story = Story(record).kills("first").adopts(ADOPTIONS[0])
    whole = LiveWorld(READINGS, record)
    whole.catch_up()
    assert save(SnapshotStore(record), whole.state, every=1)
    story.kills("second")
    resumed = LiveWorld(READINGS, record, keep=True)
    assert (resumed.state.rules, resumed.state.rule_texts) == ("site", SITE.texts)
    resumed.catch_up()
    whole.catch_up()
    assert verdicts(resumed.state) == verdicts(whole.state) == verdicts(world_of(record).state)
    assert verdicts(resumed.state)["second"][0] == "out_of_memory"


def test_a_moment_is_shown_by_the_rules_of_that_moment(record: Record) -> None:
    """The read models and `?at=` fold the adoptions where they stand, also from a kept copy of the world."""
    mixed(record)
    head = record.head().position
    for position in range(1, head + 1):
        with opened(record, position) as store, store.reading():
            state = load_whole_world(store)
        assert state is not None
        replayed = world_of(record, until=Until(position=position)).state
        assert verdicts(state) == verdicts(replayed)
        assert (state.rules, state.rule_texts) == (replayed.rules, replayed.rule_texts)
        fold, begun = world_before(record, position)
        RecordFold(record, fold).run(Until(position=position))
        assert begun <= position
        assert verdicts(fold.state) == verdicts(replayed)


def test_rules_that_this_version_does_not_understand_leave_those_before_in_force(record: Record) -> None:
    later = adoption(rule_text(name="later").replace("format = 1", "format = 2"), name="later")
    Story(record).adopts(ADOPTIONS[0]).adopts(later).kills("a")
    assert verdicts(world_of(record).state)["a"][0] == "out_of_memory"
    assert [adopted_by(event) is not None for _, event in adoptions(record)] == [True, False]
    assert in_force(record) == SITE


def test_an_adoption_keeps_the_texts_of_all_sets_that_it_extends(record: Record) -> None:
    """The record alone gives the verdicts: no file is read again."""
    base = rule_text(name="base")
    row = '[[row]]\nwhen.deciding = { exit_status = 99 }\nthen = { state = "stopped", reason = "timed_out" }\n'
    rules = rules_of((rule_text(row, extends="base"), base))
    adopt(record, rules, why="99 is our own time limit", by="ada")
    Story(record).kills("a")
    ((_, event),) = adoptions(record)
    assert (event.text, event.extends) == (rules.texts[0], (base,))
    assert verdicts(world_of(record).state)["a"] == ("out_of_memory", f"base@{digest_of([base])[:8]}/killed-for-memory")


def test_rules_that_are_in_force_are_not_adopted_twice(record: Record) -> None:
    assert adopt(record, CURRENT, why="it is", by="ada") is None
    assert adopt(record, SITE, why="memory", by="ada") == 1
    assert adopt(record, SITE, why="memory", by="ada") is None
    assert record.head().position == 1


def test_rules_of_an_older_tool_cannot_be_adopted(record: Record) -> None:
    """They need more than a case: what a name was first, or the clock."""
    with pytest.raises(UnreadableInput, match="for replays"):
        adopt(record, rules_named("2025-12-sdk"), why="nostalgia", by="ada")
    assert record.head().position == 0
