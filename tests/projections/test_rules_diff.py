"""Two rule sets compared by the cases of each run: the same answer as two whole folds, from a part of the events."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stenotest.case_rules import ENUM, MOVES, NO_METADATA, STALE, TERMINATED, with_moves
from stenotest.dstack_history import DstackHistory, Item, single
from stenotest.histories import History, histories
from stenotest.records import temporary_record

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.fold.record_fold import RecordFold
from steno.engine.providers.registry import READINGS
from steno.engine.replay.result import Opinion, Replay
from steno.engine.rules.case_space import differ
from steno.engine.rules.cases import AttemptCase, RunCase, decode_case
from steno.engine.rules.sets import CURRENT, RuleSet
from steno.engine.state.case_log import cases_seen
from steno.engine.state.run import Run
from steno.engine.state.world import World
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.answers.rules_diff import RulesDiff, diff_by_cases, diff_in_full, why_in_full
from steno.projections.read_models import projection_writer
from steno.projections.read_models.projector import caught_up
from steno.projections.read_models.view import View

Polls = Callable[[str], tuple[Poll, ...]]
Recorded = Callable[[Path, Sequence[Poll]], Record]


Draw = Callable[[st.SearchStrategy[Any]], Any]


def world_under(polls: Sequence[Poll], rules: RuleSet) -> World:
    world, reader = Fold(READINGS, rules), PollReader(READINGS)
    for number, poll in enumerate(polls, start=1):
        world.apply(reader.read(number, poll))
    return world.state


def without_rules(run: Run) -> dict[str, object]:
    """A run's history, but for the names of rules and the numbers of cases."""
    values = {name: getattr(run, name) for name in run.__struct_fields__ if name not in ("rule", "cases")}
    return values | {"transitions": [(step.position, step.before, step.after) for step in run.transitions]}


@st.composite
def mixed(draw: st.DrawFn, runs: int) -> list[Poll]:
    """Polls of several runs, each going on in its own time; some answers leave runs out."""
    tales: list[History] = [draw(histories(f"run-{number}")) for number in range(runs)]
    story, at = DstackHistory(), [0] * runs
    for step in draw(st.lists(st.tuples(st.integers(0, runs - 1), st.integers(1, 3), st.booleans()), max_size=25)):
        number, moves, alone = step
        at[number] = min(at[number] + moves, len(tales[number].items) - 1)
        items = [tale.items[place] for tale, place in zip(tales, at, strict=True)]
        story.got(items[number]) if alone else story.listed(*items)
        story.wait(5)
    story.listed(*(tale.items[-1] for tale in tales))
    return [poll for _, poll in story.polls() if poll is not None]


def other_rules(draw: Draw, state: World) -> RuleSet:
    """`current`, but for some of the cases that were seen."""
    cases = sorted(state.cases)
    chosen = draw(st.lists(st.sampled_from(cases), max_size=3)) if cases else []
    return with_moves({decode_case(case): draw(st.sampled_from(MOVES)) for case in chosen})


@settings(deadline=None)
@given(st.data())
def test_equal_moves_of_all_cases_of_a_run_make_an_equal_history(data: st.DataObject) -> None:
    """The law on which the comparison rests, by folding both."""
    polls = data.draw(mixed(3))
    under_current = world_under(polls, CURRENT)
    rules = other_rules(data.draw, under_current)
    under_other = world_under(polls, rules)
    cases = {number: decode_case(text) for text, number in under_current.cases.items()}
    for run in under_current.runs.all():
        if not any(differ(CURRENT, rules, cases[seen.case]) for seen in cases_seen(run.cases)):
            assert without_rules(under_other.runs[run.run_id]) == without_rules(run)


def in_full(record: Record, *sets: RuleSet) -> RulesDiff:
    return diff_in_full(*(replay(record, rules) for rules in sets), "a test")  # type: ignore[misc]


def replay(record: Record, rules: RuleSet) -> Replay:
    world = Fold(READINGS, rules)
    RecordFold(record, world).run()
    return Replay(world)


def by_cases(record: Record, *sets: RuleSet) -> RulesDiff:
    with closing(caught_up(record)) as store:
        left, right = sets
        return diff_by_cases(record, View(store), left, right)


def verdicts(answer: RulesDiff) -> list[object]:
    """Every change but for the names of rules: a rule set names what it does itself by its own name."""
    return sorted(
        (change.run_id, change.verdict, *map(_opinion, (change.left, change.right))) for change in answer.changes
    )


def _opinion(opinion: Opinion | None) -> tuple[object, ...]:
    assert opinion is not None
    return opinion.state, str(opinion.reason), str(opinion.exit_status), opinion.evidence


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_the_answer_by_cases_is_that_of_two_whole_folds(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """Law: the same runs, verdicts, evidence and costs, also where neither rule set is `current`."""
    polls = data.draw(mixed(3))
    under_current = world_under(polls, CURRENT)
    left = CURRENT if data.draw(st.booleans()) else other_rules(data.draw, under_current)
    right = other_rules(data.draw, under_current)
    folder = tmp_path_factory.mktemp("record")
    with pytest.MonkeyPatch.context() as patch, temporary_record(folder, shapes=READINGS.shape) as record:
        patch.setattr(projection_writer, "SPACING", 8)  # so that a short record has kept worlds
        record.append_polls(polls)
        answer, whole = by_cases(record, left, right), in_full(record, left, right)
    assert verdicts(answer) == verdicts(whole)
    assert sorted(map(str, answer.costs)) == sorted(map(str, whole.costs))
    assert answer.events == whole.events


@pytest.mark.parametrize(
    ("name", "shows"),
    [
        ("dstack-0.22.5/warm_reuse", "machines that runs share"),
        pytest.param("dstack-0.22.5/retry_success", "attempts", marks=pytest.mark.ci),
        pytest.param("slurm-22.05/fanout_one_winner", "several witnesses", marks=pytest.mark.ci),
        pytest.param("dstack-0.19.37/flap", "outages", marks=pytest.mark.long),
    ],
)
def test_the_answer_by_cases_is_that_of_two_whole_folds_of_a_recording(
    name: str, shows: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recording: Polls, recorded: Recorded
) -> None:
    """Each case of it judged otherwise in turn: verdicts, bills of machines and what each run pays, evidence."""
    monkeypatch.setattr(projection_writer, "SPACING", 64)
    with recorded(tmp_path / "record.db", recording(name)) as record:
        with closing(caught_up(record)) as store:
            cases = [decode_case(text) for text in View(store).state.cases]
        whole, changes = replay(record, CURRENT), 0
        for number, case in enumerate(cases):
            rules = with_moves({case: MOVES[number % len(MOVES)]})
            answer, full = by_cases(record, CURRENT, rules), diff_in_full(whole, replay(record, rules), "a test")
            assert verdicts(answer) == verdicts(full), (shows, case)
            assert sorted(map(str, answer.costs)) == sorted(map(str, full.costs)), (shows, case)
            assert answer.folded <= full.folded
            changes += len(full.changes)
    assert changes


# -- a mixed history in which the bugs of the first pollers show, each in the runs that are known to show it


class Kind(NamedTuple):
    """A run's way, and which bugs change its verdict, or only the states on the way."""

    looks: tuple[tuple[str, str, str | None, int | None], ...]  # (run, its job, why it ended, exit status)
    verdict: frozenset[str]
    way: frozenset[str] = frozenset()


DONE = ("done", "done", None, 0)
KINDS = {
    "quick": Kind((DONE, DONE, DONE, DONE), frozenset({"no-metadata"})),
    "done": Kind(
        (("submitted", "submitted", None, None), ("running", "running", None, None), DONE, DONE),
        frozenset({"no-metadata", "stale"}),
    ),
    "cleanup": Kind(
        (
            ("submitted", "submitted", None, None),
            ("running", "running", None, None),
            ("terminating", "terminating", "all_jobs_done", 0),
            DONE,
        ),
        frozenset({"no-metadata", "stale"}),
        frozenset({"terminated"}),
    ),
    "stopped": Kind(
        (
            ("submitted", "submitted", None, None),
            ("running", "running", None, None),
            ("terminated", "terminated", "stopped_by_user", None),
            ("terminated", "terminated", "stopped_by_user", None),
        ),
        frozenset({"terminated", "stale", "enum"}),
    ),
}
_GROUP = 40  # runs that are there at one time


def planted(runs: int) -> Iterator[tuple[list[Poll], dict[str, str]]]:
    """Polls in which the runs come in groups, each run of a kind; and the kinds of the runs by name."""
    names = list(KINDS)
    story, kinds = DstackHistory(), {f"run-{number}": names[number * 7 % 11 % 4] for number in range(runs)}
    for first in range(0, runs, _GROUP):
        group = [(name, KINDS[kinds[name]]) for name in list(kinds)[first : first + _GROUP]]
        for look in range(4):
            story.listed(*(_item(name, *kind.looks[look]) for name, kind in reversed(group))).wait(60)
    yield [poll for _, poll in story.polls() if poll is not None], kinds


def _item(name: str, run: str, job: str, why: str | None, exit_status: int | None) -> Item:
    job_reason = "done_by_runner" if exit_status == 0 else "terminated_by_user" if why == "stopped_by_user" else None
    return single(name, run, job, reason=why, job_reason=job_reason, exit_status=exit_status)


@pytest.mark.parametrize("runs", [400, pytest.param(10_000, marks=pytest.mark.long)])
def test_the_diffs_list_exactly_the_runs_that_show_each_bug(tmp_path: Path, runs: int) -> None:
    ((polls, kinds),) = planted(runs)
    with temporary_record(tmp_path, shapes=READINGS.shape) as record:
        for start in range(0, len(polls), 200):
            record.append_polls(polls[start : start + 200])
        for rules in (ENUM, TERMINATED, NO_METADATA, STALE):
            why = why_in_full(record, CURRENT, rules)
            assert (why is None) == (rules is not STALE)
            answer = by_cases(record, CURRENT, rules) if why is None else in_full(record, CURRENT, rules)
            changed = {change.name: change.verdict for change in answer.changes}
            verdict = {name for name, kind in kinds.items() if rules.name in KINDS[kind].verdict}
            way = {name for name, kind in kinds.items() if rules.name in KINDS[kind].way}
            assert {name for name, differs in changed.items() if differs} == verdict, rules.name
            assert {name for name, differs in changed.items() if not differs} == way, rules.name


def test_a_run_that_ends_under_one_rule_set_only_is_followed_until_it_is_lost(tmp_path: Path) -> None:
    """The record says nothing more of a run that ended; under the other rule set its absence does, in ten minutes."""
    story = DstackHistory().listed(single("a", "running", "running")).wait(5)
    story.listed(single("a", "terminated", "terminated", reason="stopped_by_user", job_reason="terminated_by_user"))
    for _ in range(20):
        story.wait(60).listed(single("b", "running", "running"))
    with temporary_record(tmp_path, shapes=READINGS.shape) as record:
        record.append_polls([poll for _, poll in story.polls() if poll is not None])
        answer, whole = by_cases(record, CURRENT, ENUM), in_full(record, CURRENT, ENUM)
    (change,) = answer.changes
    assert (change.name, change.right and change.right.state) == ("a", "lost")
    assert verdicts(answer) == verdicts(whole)


def test_where_no_run_differs_nothing_is_folded_and_the_smallest_case_is_named(tmp_path: Path) -> None:
    """It is a case of the record, else a generated case."""
    story = DstackHistory().listed(single("a", "running", "running")).wait(5)
    story.listed(single("a", "done", "done", job_reason="done_by_runner", exit_status=0))
    oom = RunCase(final=True, failed=True, attempts=(AttemptCase(ended=True, failed=True, exit_status=137),))
    with temporary_record(tmp_path, shapes=READINGS.shape) as record:
        record.append_polls([poll for _, poll in story.polls() if poll is not None])
        answer = by_cases(record, CURRENT, with_moves({oom: MOVES[0], RunCase(requeued=True): MOVES[0]}))
    assert (answer.changes, answer.folded) == ((), 0)
    assert answer.smallest is not None
    assert (answer.smallest.case, answer.smallest.sees) == (None, {"requeued": True})
    assert (answer.smallest.left.words, answer.smallest.right.words) == (
        "no verdict yet (queued)",
        "failed/unknown_reason",
    )
