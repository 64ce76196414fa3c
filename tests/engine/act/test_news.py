"""What is told to the webhook and what never is: over any order of looks, crashes, imports and settings."""

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.snapshots import save
from stenotest.story import START, Story, single

from engine.fold.snapshot_store import SnapshotStore
from engine.live.journal import Journal
from engine.live.live_world import LiveWorld
from engine.notify.news import AT_ONCE, TOO_OLD
from engine.notify.notices import ROOM, Notices
from engine.notify.webhook import Webhook
from engine.providers.readings import READINGS
from events.clock import SECOND, foreign_run_id
from events.store.record import Record

SOURCE = "dstack/main"
NOWHERE = Webhook(url="http://127.0.0.1:9/x", dashboard="https://steno.example")
MINUTE, HOUR = 60, 3600


@dataclass
class Scene:
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
        """The process before is killed; another takes up the record, from the snapshot that the first left."""
        if self.live is not None:
            save(SnapshotStore(self.record), self.live.state, every=0)
        self.live = LiveWorld(READINGS, self.record, keep=True)
        self.webhook, self.stays = webhook, stays
        self.notices = Notices(Journal(self.record, self.live), self, webhook, source=SOURCE)
        self.began = False

    def items(self):
        """The runs as the project's list shows them now, newest first."""
        shown = [one for one in self.ends.items() if one[1][0] <= self.seconds]
        return [self.item(name, *times) for name, times in reversed(shown)]

    def item(self, name, begins, ends):
        if ends is None or ends > self.seconds:
            return single(name, "running", "running", submitted=begins)
        return single(name, "done", "done", exit_status=0, submitted=begins, finished=ends, job_reason="done_by_runner")

    def poll(self):
        story = Story(now=self.seconds - 0.01).listed(*self.items())
        return next(poll for _, poll in story.polls())

    def look(self, *, killed=False):
        """One round; `killed` before it told anything."""
        self.live.catch_up()
        self.notices.adopt(stays=self.stays)
        self.record.append_polls([self.poll()])
        self.live.catch_up()
        if not killed:
            self.notices.collect(self.live.state)

    def take_in(self):
        """Somebody imports what another recorder saw of this project a moment ago."""
        self.imports += 1
        self.record.append_polls([self.poll()], ids=[f"{self.imports:016x}"])

    def told(self):
        """The names of the runs told of, each as often as it was."""
        names = {foreign_run_id("dstack", item["id"]): item["run_spec"]["run_name"] for item in self.every()}
        found = []
        for stored in self.record.read(types={"NoticeIntended"}):
            body = json.loads(stored.data.body)
            runs = body.get("runs", [body["run"]] if "run" in body else [])
            assert len(stored.data.about) == (len(runs) if "runs" in body else 0)
            found += [names[run["run_id"]] for run in runs]
        return found

    def every(self):
        return [single(name) for name in self.ends]

    def intents(self):
        return [json.loads(stored.data.body) for stored in self.record.read(types={"NoticeIntended"})]


@pytest.fixture
def scene(tmp_path):
    made = Scene(tmp_path / "record.db")
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
    saw the run going, and the next who looked was one who tells, within a day.
    """
    scene = Scene(tmp_path_factory.mktemp("news") / "record.db", {"old": (-9 * HOUR, -8 * HOUR)})
    telling = None  # since when
    seen_going, shown_over, due = {}, {}, set()
    try:
        for number, (what, much) in enumerate(history):
            match what:
                case "wait":
                    scene.seconds += much
                case "begin":
                    scene.ends[f"run-{number}"] = (scene.seconds, scene.seconds + much)
                case "again":
                    scene.watch(NOWHERE)
                case "silent":
                    scene.watch(None)
                case "once":
                    scene.watch(NOWHERE, stays=False)
                case "import":
                    scene.take_in()
                    for name, (_, ends) in scene.ends.items():
                        if ends <= scene.seconds:
                            shown_over.setdefault(name, "import")
                case "look" | "killed":
                    if scene.webhook is None:
                        telling = None if scene.stays else telling
                        due.clear()
                    elif telling is None and (scene.stays or not scene.record.version(f"source/{SOURCE}")):
                        telling = scene.seconds
                    telling = adopted(scene, telling)
                    scene.look(killed=what == "killed")
                    telling = adopted(scene, telling)
                    for name, (_, ends) in scene.ends.items():
                        if ends > scene.seconds:
                            seen_going[name] = telling is not None
                        elif name not in shown_over:
                            shown_over[name] = scene.seconds
                            if seen_going.get(name) and telling is not None and ends >= telling:
                                due.add(name)
                    if what == "look" and telling is not None and scene.webhook is not None:
                        told = scene.told()
                        late = {name for name in due if scene.seconds - shown_over[name] > TOO_OLD / SECOND}
                        assert due - late <= set(told), history
                        due.clear()
            told = scene.told()
            assert len(told) == len(set(told)), history
            assert "old" not in told
            assert not {name for name, how in shown_over.items() if how == "import"} & set(told), history
        for body in scene.intents():
            for run in body.get("runs", [body.get("run")]):
                assert run["state"] == "succeeded"
    finally:
        scene.record.close()


def adopted(scene, telling):
    """Since when telling goes on, by the record: what is over before is the past."""
    marks = scene.notices._journal.ledger().told.get(SOURCE, {})
    return (marks["run_end"].at - START) / SECOND if "run_end" in marks else None


def test_the_first_contact_with_a_project_tells_nothing_of_its_past(scene):
    """A hundred runs that ended before anybody looked; then one that ends."""
    scene.ends = {f"past-{n}": (-7200 + n, -3600 + n) for n in range(100)} | {"live": (-10, 30)}
    scene.look()
    assert scene.told() == []
    scene.seconds = 31
    scene.look()
    assert scene.told() == ["live"]
    scene.watch(NOWHERE)
    scene.look()
    assert scene.told() == ["live"]


def test_a_record_imported_before_telling_began_is_the_past(scene):
    """Even where the import showed the run still running, and it ended long before anybody who tells looked."""
    scene.ends = {"a": (0, 100), "b": (0, 200)}
    scene.seconds = 50
    scene.take_in()
    scene.seconds = 150
    scene.look()
    assert scene.told() == []
    scene.seconds = 201
    scene.look()
    assert scene.told() == ["b"]


def test_a_webhook_that_is_set_later_hears_nothing_of_what_was_before(scene):
    """And one that was taken away for a while nothing of the while."""
    scene.watch(None)
    scene.ends = {"before": (0, 10), "after": (0, 100), "meanwhile": (0, 300), "last": (0, 500)}
    for seconds in (5, 15):
        scene.seconds = seconds
        scene.look()
    scene.watch(NOWHERE)
    for seconds in (20, 101):
        scene.seconds = seconds
        scene.look()
    assert scene.told() == ["after"]
    scene.watch(None)
    scene.seconds = 301
    scene.look()
    scene.watch(NOWHERE)
    for seconds in (400, 501):
        scene.seconds = seconds
        scene.look()
    assert scene.told() == ["after", "last"]


def test_a_command_that_acts_once_does_not_change_what_is_told(scene):
    """It tells what a recorder that stays was set to tell, and without a webhook leaves it to the next that has one."""
    scene.ends = {"one": (0, 50), "two": (0, 100)}
    scene.look()
    scene.watch(None, stays=False)
    scene.seconds = 51
    scene.look()
    assert scene.told() == []
    scene.watch(NOWHERE, stays=False)
    scene.seconds = 101
    scene.look()
    assert sorted(scene.told()) == ["one", "two"]
    assert [stored.data.kinds for stored in scene.record.read(types={"AlertsAdopted"})] == [
        ("anomaly", "budget", "orphan", "run_end")
    ]


@pytest.mark.parametrize(("late", "told"), [(AT_ONCE // SECOND - 1, ["short"]), (AT_ONCE // SECOND + 2, [])])
def test_a_run_that_no_poll_showed_before_its_end_is_news_for_a_minute(scene, late, told):
    """A run shorter than the pause between polls is told; one that came and went while nobody looked is the past."""
    scene.look()
    scene.ends = {"short": (5, 10)}
    scene.seconds = 10 + late
    scene.look()
    assert scene.told() == told


def test_a_process_killed_after_the_poll_leaves_the_end_to_the_next(scene):
    """Once, whoever tells it; but nobody hears of it days later."""
    scene.ends = {"a": (0, 30), "b": (0, 60)}
    scene.look()
    scene.seconds = 31
    scene.look(killed=True)
    scene.watch(NOWHERE)
    scene.look()
    assert scene.told() == ["a"]
    scene.seconds = 61
    scene.look(killed=True)
    scene.seconds += TOO_OLD // SECOND + 1
    scene.watch(NOWHERE)
    scene.look()
    assert scene.told() == ["a"]


def test_only_what_is_wanted_is_told(scene):
    """A kind that is added later begins then."""
    scene.watch(Webhook(url=NOWHERE.url, kinds=frozenset({"anomaly"})))
    scene.ends = {"a": (0, 30), "b": (0, 60)}
    for seconds in (0, 31):
        scene.seconds = seconds
        scene.look()
    scene.watch(NOWHERE)
    for seconds in (32, 61):
        scene.seconds = seconds
        scene.look()
    assert scene.told() == ["b"]


def test_many_ends_at_once_are_one_notice_that_names_and_counts_them(scene):
    """A hundred runs are told in one; every one of them is in its fields, and none is told again."""
    scene.ends = {f"run-{n:02}": (0, 30) for n in range(100)}
    scene.look()
    scene.seconds = 31
    scene.look()
    (body,) = scene.intents()
    assert body["text"].startswith("Steno: 100 runs ended (100 succeeded): run-")
    assert body["text"].endswith(" succeeded (exit_zero), and 90 more https://steno.example/runs")
    assert (body["kind"], body["count"], len(body["runs"])) == ("run_end", 100, 100)
    scene.watch(NOWHERE)
    scene.look()
    assert len(scene.told()) == len(set(scene.told())) == 100


def test_a_webhook_that_takes_nothing_never_has_more_than_ten_notices_open(scene):
    """What comes meanwhile waits, and is told together as soon as there is room."""
    scene.ends = {f"run-{n:02}": (0, 30 + n) for n in range(40)}
    for seconds in range(80):
        scene.seconds = seconds
        scene.look()
    assert len(scene.notices._journal.ledger().notices) == ROOM == len(scene.intents())
    journal = Journal(scene.record, scene.live)
    from events import types

    for name in tuple(journal.ledger().notices):
        journal.write(f"notice/{name}", types.NoticeDelivered(notice_id=name, status=200, attempt=1))
    scene.look()
    assert sorted(scene.told()) == sorted(scene.ends)
    assert scene.intents()[-1]["text"].startswith("Steno: 30 runs ended (30 succeeded)")


def test_a_verdict_taken_back_is_an_anomaly_and_a_second_end_is_told(scene):
    """Both are facts of their own."""
    scene.look()
    scene.ends = {"a": (1, 30)}
    scene.seconds = 31
    scene.look()
    running = Story(now=40).listed(single("a", "pending", "submitted", num=1, submitted=1))
    scene.seconds = 40.02
    scene.record.append_polls([poll for _, poll in running.polls()])
    scene.live.catch_up()
    scene.notices.collect(scene.live.state)
    scene.seconds = 50
    item = single("a", "failed", "failed", num=1, exit_status=3, submitted=1, finished=49)
    scene.record.append_polls([poll for _, poll in Story(now=49.9).listed(item).polls()])
    scene.live.catch_up()
    scene.notices.collect(scene.live.state)
    assert [(body["kind"], body["text"].split(" https")[0]) for body in scene.intents()] == [
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
