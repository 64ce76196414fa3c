"""Notices to the webhook, sent and never sent: over any order of looks, crashes, imports and settings."""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.dstack_history import START, DstackHistory, single
from stenotest.snapshots import save

from steno.engine.fold.snapshot_store import SnapshotStore
from steno.engine.live.journal import Journal
from steno.engine.live.live_world import LiveWorld
from steno.engine.notify.news import AT_ONCE, TOO_OLD
from steno.engine.notify.notices import ROOM, Notices
from steno.engine.notify.routes import Route
from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.clock import SECOND, foreign_run_id
from steno.events.store.record import Record

SOURCE = "dstack/main"
NOWHERE = Route(url="http://127.0.0.1:9/x", dashboard="https://steno.example")
MINUTE, HOUR = 60, 3600


@dataclass
class Situation:
    """A project whose runs come and go by the clock, a record, and one process after another that watches it."""

    path: object
    ends: dict = field(default_factory=dict)
    """Name → (from, to), seconds after the start; to may be None."""

    def __post_init__(self):
        self.seconds = 0.0
        self.record = Record.open(self.path, write=True, create=True, shapes=READINGS.shape, clock=self)
        self.imports = 0
        self.live = None
        self.watch(NOWHERE)

    def now(self):
        return START + round(self.seconds * SECOND)

    def watch(self, webhook, *, stays=True):
        """The process before is killed; another loads the record, from the snapshot that the first left."""
        if self.live is not None:
            save(SnapshotStore(self.record), self.live.state, every=0)
        self.live = LiveWorld(READINGS, self.record, keep=True)
        self.webhook, self.stays = webhook, stays
        self.notices = Notices(Journal(self.record, self.live), self, webhook, source=SOURCE)
        self.began = False

    def items(self):
        """The runs as the project's list shows them now, newest first."""
        begun = [pair for pair in self.ends.items() if pair[1][0] <= self.seconds]
        return [self.item(name, *times) for name, times in reversed(begun)]

    def item(self, name, begins, ends):
        if ends is None or ends > self.seconds:
            return single(name, "running", "running", submitted=begins)
        return single(name, "done", "done", exit_status=0, submitted=begins, finished=ends, job_reason="done_by_runner")

    def poll(self):
        story = DstackHistory(now=self.seconds - 0.01).listed(*self.items())
        return next(poll for _, poll in story.polls())

    def look(self, *, killed=False):
        """Do a round; `killed`: before it sent anything."""
        self.live.catch_up()
        self.notices.adopt(stays=self.stays)
        self.record.append_polls([self.poll()])
        self.live.catch_up()
        if not killed:
            self.notices.collect(self.live.state)

    def look_at(self, seconds, **how):
        self.seconds = seconds
        self.look(**how)

    def take_in(self):
        """Somebody imports what another recorder saw of this project a moment ago."""
        self.imports += 1
        self.record.append_polls([self.poll()], ids=[f"{self.imports:016x}"])

    def told(self):
        """The names of the runs in notices, each as often as it occurs."""
        names = {foreign_run_id("dstack", item["id"]): item["run_spec"]["run_name"] for item in self.every()}
        told_names = []
        for stored in self.record.read(types={"NoticeIntended"}):
            body = json.loads(stored.data.body)
            runs = body.get("runs", [body["run"]] if "run" in body else [])
            assert len(stored.data.about) == (len(runs) if "runs" in body else 0)
            told_names += [names[run["run_id"]] for run in runs]
        return told_names

    def every(self):
        return [single(name) for name in self.ends]

    def intents(self):
        return [json.loads(stored.data.body) for stored in self.record.read(types={"NoticeIntended"})]


@pytest.fixture
def situation(tmp_path):
    made = Situation(tmp_path / "record.db")
    yield made
    made.record.close()


steps = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.sampled_from([1, 20, 59, 61, 600, 2 * HOUR, 30 * HOUR])),
        st.tuples(st.just("begin"), st.sampled_from([5, 30, 300, 5 * HOUR])),
        st.tuples(st.sampled_from(["look", "look", "look", "killed", "import", "again", "silent", "once"]), st.none()),
    ),
    max_size=25,
)


@given(steps)
def test_nothing_is_told_twice_and_nothing_of_the_past(tmp_path_factory, history):
    """However looks, kills, imports and recorders without a webhook follow one another, a run's end is told at most
    once; never if it was over before telling began, nor if an import showed it first; and always if somebody who tells
    saw the run going, and the next process sends notices, within a day.
    """
    situation = Situation(tmp_path_factory.mktemp("news") / "record.db", {"old": (-9 * HOUR, -8 * HOUR)})
    telling = None  # since when
    seen_going, shown_over, due = {}, {}, set()
    try:
        for number, (what, much) in enumerate(history):
            match what:
                case "wait":
                    situation.seconds += much
                case "begin":
                    situation.ends[f"run-{number}"] = (situation.seconds, situation.seconds + much)
                case "again":
                    situation.watch(NOWHERE)
                case "silent":
                    situation.watch(None)
                case "once":
                    situation.watch(NOWHERE, stays=False)
                case "import":
                    situation.take_in()
                    for name, (_, ends) in situation.ends.items():
                        if ends <= situation.seconds:
                            shown_over.setdefault(name, "import")
                case "look" | "killed":
                    if situation.webhook is None:
                        telling = None if situation.stays else telling
                        due.clear()
                    elif telling is None and (situation.stays or not situation.record.version(f"source/{SOURCE}")):
                        telling = situation.seconds
                    telling = adopted(situation, telling)
                    situation.look(killed=what == "killed")
                    telling = adopted(situation, telling)
                    for name, (_, ends) in situation.ends.items():
                        if ends > situation.seconds:
                            seen_going[name] = telling is not None
                        elif name not in shown_over:
                            shown_over[name] = situation.seconds
                            if seen_going.get(name) and telling is not None and ends >= telling:
                                due.add(name)
                    if what == "look" and telling is not None and situation.webhook is not None:
                        names = situation.told()
                        late = {name for name in due if situation.seconds - shown_over[name] > TOO_OLD / SECOND}
                        assert due - late <= set(names), history
                        due.clear()
            names = situation.told()
            assert len(names) == len(set(names)), history
            assert "old" not in names
            assert not {name for name, how in shown_over.items() if how == "import"} & set(names), history
        for body in situation.intents():
            for run in body.get("runs", [body.get("run")]):
                assert run["state"] == "succeeded"
    finally:
        situation.record.close()


def adopted(situation, telling):
    """Since when telling goes on, by the record: what is over before is the past."""
    marks = situation.notices._journal.outbox().told.get(SOURCE, {})
    return (marks["run_end"].at - START) / SECOND if "run_end" in marks else None


def test_the_first_contact_with_a_project_tells_nothing_of_its_past(situation):
    """A hundred runs that ended before anybody looked; then a run that ends."""
    situation.ends = {f"past-{n}": (-7200 + n, -3600 + n) for n in range(100)} | {"live": (-10, 30)}
    situation.look()
    assert situation.told() == []
    situation.look_at(31)
    assert situation.told() == ["live"]
    situation.watch(NOWHERE)
    situation.look()
    assert situation.told() == ["live"]


def test_a_record_imported_before_telling_began_is_the_past(situation):
    """Even where the import showed the run still running, and it ended long before anybody who tells looked."""
    situation.ends = {"a": (0, 100), "b": (0, 200)}
    situation.seconds = 50
    situation.take_in()
    situation.look_at(150)
    assert situation.told() == []
    situation.look_at(201)
    assert situation.told() == ["b"]


def test_a_webhook_that_is_set_later_hears_nothing_of_what_was_before(situation):
    """A webhook that was removed for a while gets nothing of that time."""
    situation.watch(None)
    situation.ends = {"before": (0, 10), "after": (0, 100), "meanwhile": (0, 300), "last": (0, 500)}
    for seconds in (5, 15):
        situation.look_at(seconds)
    situation.watch(NOWHERE)
    for seconds in (20, 101):
        situation.look_at(seconds)
    assert situation.told() == ["after"]
    situation.watch(None)
    situation.look_at(301)
    situation.watch(NOWHERE)
    for seconds in (400, 501):
        situation.look_at(seconds)
    assert situation.told() == ["after", "last"]


def test_a_command_that_acts_once_does_not_change_what_is_told(situation):
    """It tells what a recorder that stays was set to tell, and without a webhook leaves it to the next that has one."""
    situation.ends = {"one": (0, 50), "two": (0, 100)}
    situation.look()
    situation.watch(None, stays=False)
    situation.look_at(51)
    assert situation.told() == []
    situation.watch(NOWHERE, stays=False)
    situation.look_at(101)
    assert sorted(situation.told()) == ["one", "two"]
    assert [stored.data.kinds for stored in situation.record.read(types={"AlertsAdopted"})] == [
        ("anomaly", "budget", "orphan", "run_end")
    ]


@pytest.mark.parametrize(("late", "names"), [(AT_ONCE // SECOND - 1, ["short"]), (AT_ONCE // SECOND + 2, [])])
def test_a_run_that_no_poll_showed_before_its_end_is_news_for_a_minute(situation, late, names):
    """A run shorter than the pause between polls is told; a run that came and went while nobody looked is the past."""
    situation.look()
    situation.ends = {"short": (5, 10)}
    situation.look_at(10 + late)
    assert situation.told() == names


def test_a_process_killed_after_the_poll_leaves_the_end_to_the_next(situation):
    """Once, whoever tells it; but nobody hears of it days later."""
    situation.ends = {"a": (0, 30), "b": (0, 60)}
    situation.look()
    situation.look_at(31, killed=True)
    situation.watch(NOWHERE)
    situation.look()
    assert situation.told() == ["a"]
    situation.look_at(61, killed=True)
    situation.seconds += TOO_OLD // SECOND + 1
    situation.watch(NOWHERE)
    situation.look()
    assert situation.told() == ["a"]


def test_only_what_is_wanted_is_told(situation):
    """A kind that is added later begins then."""
    situation.watch(Route(url=NOWHERE.url, kinds=frozenset({"anomaly"})))
    situation.ends = {"a": (0, 30), "b": (0, 60)}
    for seconds in (0, 31):
        situation.look_at(seconds)
    situation.watch(NOWHERE)
    for seconds in (32, 61):
        situation.look_at(seconds)
    assert situation.told() == ["b"]


def test_many_ends_at_once_are_one_notice_that_names_and_counts_them(situation):
    """A hundred runs are told in one; every one of them is in its fields, and none is told again."""
    situation.ends = {f"run-{n:02}": (0, 30) for n in range(100)}
    situation.look()
    situation.look_at(31)
    (body,) = situation.intents()
    assert body["text"].startswith("Steno: 100 runs ended (100 succeeded): run-")
    assert body["text"].endswith(" succeeded (exit_zero), and 90 more https://steno.example/runs")
    assert (body["kind"], body["count"], len(body["runs"])) == ("run_end", 100, 100)
    situation.watch(NOWHERE)
    situation.look()
    assert len(situation.told()) == len(set(situation.told())) == 100


def test_a_webhook_that_takes_nothing_never_has_more_than_ten_notices_open(situation):
    """Later news waits, and is sent together as soon as there is room."""
    situation.ends = {f"run-{n:02}": (0, 30 + n) for n in range(40)}
    for seconds in range(80):
        situation.look_at(seconds)
    assert len(situation.notices._journal.outbox().notices) == ROOM == len(situation.intents())
    journal = Journal(situation.record, situation.live)
    for name in tuple(journal.outbox().notices):
        journal.write(f"notice/{name}", types.NoticeDelivered(notice_id=name, status=200, attempt=1))
    situation.look()
    assert sorted(situation.told()) == sorted(situation.ends)
    assert situation.intents()[-1]["text"].startswith("Steno: 30 runs ended (30 succeeded)")


def test_a_verdict_taken_back_is_an_anomaly_and_a_second_end_is_told(situation):
    """Both are facts of their own."""
    situation.look()
    situation.ends = {"a": (1, 30)}
    situation.look_at(31)
    running = DstackHistory(now=40).listed(single("a", "pending", "submitted", num=1, submitted=1))
    situation.seconds = 40.02
    situation.record.append_polls([poll for _, poll in running.polls()])
    situation.live.catch_up()
    situation.notices.collect(situation.live.state)
    situation.seconds = 50
    item = single("a", "failed", "failed", num=1, exit_status=3, submitted=1, finished=49)
    situation.record.append_polls([poll for _, poll in DstackHistory(now=49.9).listed(item).polls()])
    situation.live.catch_up()
    situation.notices.collect(situation.live.state)
    assert [(body["kind"], body["text"].split(" https")[0]) for body in situation.intents()] == [
        ("run_end", "Steno: a succeeded (exit_zero)"),
        ("anomaly", "Steno: contradiction: a: succeeded/exit_zero (exit 0), now back in the provider's queue"),
        (
            "run_end",
            (
                "Steno: a failed (exit_nonzero, exit 3). It exited 3; read its output: `steno logs a --tail 50` "
                "(after 2 attempts)."
            ),
        ),
    ]
