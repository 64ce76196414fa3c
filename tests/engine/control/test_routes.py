"""Routes: whom notices concern, when they go out, and once each; over kills, quiet hours and a mail server that is
down.
"""

import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.dstack_history import START, DstackHistory, job, run_item, single, submission
from stenotest.mail_server import MailServer

from steno.engine.errors import NotConfigured
from steno.engine.live.journal import Journal
from steno.engine.live.live_world import LiveWorld
from steno.engine.notify import routes as addresses
from steno.engine.notify.notices import PATIENT, Notices, send_test_notice
from steno.engine.notify.routes import Route, check_route, quiet_left
from steno.engine.providers.registry import READINGS
from steno.engine.settings.values import QuietHours, alerts, quiet_hours
from steno.engine.state.inventory import Inventory
from steno.engine.state.states import VmReason, VmState
from steno.engine.state.vm import SilentSpan, Vm, VmFacts
from steno.engine.state.world import World
from steno.events import types
from steno.events.clock import SECOND, RandomIds
from steno.events.store.record import Record

SOURCE = "dstack/main"
KINDS = alerts("start, end, stuck, wait, vanished, budget")
ALICE = Route(name="alice", url="http://127.0.0.1:9/x", kinds=KINDS, patience=3600 * SECOND)
HOUR = 3600


class Situation:
    """A record, and one process after another that watches it by these routes. Seconds after the start."""

    def __init__(self, path, *routes):
        self.seconds = 0.0
        self.record = Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=self)
        self.watch(*routes)

    def now(self):
        return START + round(self.seconds * SECOND)

    def watch(self, *routes):
        """The process before is killed."""
        self.live = LiveWorld(READINGS, self.record, keep=True)
        self.notices = Notices(Journal(self.record, self.live), self, *routes, source=SOURCE)

    def look_at(self, seconds, *items, killed=False):
        self.seconds = seconds
        self.live.catch_up()
        self.notices.adopt(stays=True)
        story = DstackHistory(now=seconds - 0.01).listed(*items)
        self.record.append_polls([poll for _, poll in story.polls()])
        self.live.catch_up()
        if not killed:
            self.notices.collect(self.live.state)

    def intents(self, *kinds):
        stored = self.record.read(types={"NoticeIntended"})
        return [each.data for each in stored if not kinds or each.data.kind in kinds]

    def texts(self, *kinds):
        return [json.loads(intent.body)["text"] for intent in self.intents(*kinds)]


@pytest.fixture
def situation(tmp_path):
    made = Situation(tmp_path / "record.db", ALICE)
    yield made
    made.record.close()


def train(number, status, *, user="alice", **more):
    """A run of alice's; each number is a run of its own."""
    row = job(submission(status, submitted=number * 1000, **more))
    word = {"terminated": "done"}.get(status, status)
    return run_item("train", word, row, label=f"train-{number}", submitted=number * 1000) | {"user": user}


def past(situation):
    """25 runs that were provisioning for 70 s; the number of the next."""
    for number in range(25):
        for after, status in ((0, "provisioning"), (70, "running")):
            situation.look_at(number * 1000 + after, train(number, status), killed=True)
        situation.look_at(number * 1000 + 80, train(number, "terminated", exit_status=0), killed=True)
    return 25


@pytest.mark.slow
def test_a_stuck_run_is_told_once_through_kills_and_only_beyond_what_is_usual(situation):
    """By each route that wants it, and not by one of another owner; no more when it goes on."""
    number = past(situation)
    routes = [
        ALICE,
        Route(name="", url="http://127.0.0.1:9/y", kinds=frozenset({"stuck"})),
        Route(name="mine", url="http://127.0.0.1:9/z", kinds=KINDS, owner="alice"),
        Route(name="bobs", url="http://127.0.0.1:9/z", kinds=KINDS, owner="bob"),
    ]
    situation.watch(*routes)
    for seconds in (0, 30, 69):
        situation.look_at(number * 1000 + seconds, train(number, "provisioning"))
    assert situation.intents("stuck") == []
    for seconds, killed in ((80, True), (90, False), (91, False), (200, True), (300, False)):
        situation.look_at(number * 1000 + seconds, train(number, "provisioning"), killed=killed)
        situation.watch(*routes)
    assert sorted(intent.route for intent in situation.intents("stuck")) == ["", "alice", "mine"]
    words = "Steno: train is stuck: provisioning for 1 m 30 s; of 25 runs named train 95 % took at most 1 m 10 s"
    assert situation.texts("stuck") == [words] * 3
    situation.look_at(number * 1000 + 400, train(number, "running"))
    situation.look_at(number * 1000 + 500, train(number, "terminated", exit_status=0))
    kinds = [intent.kind for intent in situation.intents() if intent.route == "mine"]
    assert kinds[-3:] == ["stuck", "start", "run_end"]


def test_a_run_that_waits_for_an_hour_is_told_once(situation):
    """Not before, and not again when it waits on."""
    situation.look_at(1, train(0, "submitted"))
    situation.look_at(HOUR - 5, train(0, "submitted"))
    assert situation.intents() == []
    for seconds in (HOUR + 5, 2 * HOUR):
        situation.look_at(seconds, train(0, "submitted"))
        situation.watch(ALICE)
    assert situation.texts() == ["Steno: train waits: queued, has waited for 1 h"]


@pytest.mark.parametrize("kill", [False, True])
def test_what_quiet_hours_held_back_is_one_digest_and_a_budget_is_not_held_back(tmp_path, kill):
    """Also if the process is killed meanwhile. The start of the story is at 9:00 UTC."""
    quiet = quiet_hours("9:30-17:00 UTC")
    route = Route(name="alice", url="http://127.0.0.1:9/x", kinds=KINDS, quiet=quiet)
    situation = Situation(tmp_path / "record.db", route)
    first, second = train(0, "running"), train(1, "provisioning")
    situation.look_at(1)
    situation.look_at(60, train(0, "provisioning"))
    situation.look_at(90, first)
    assert [intent.kind for intent in situation.intents()] == ["start"]
    situation.look_at(2 * HOUR, second, train(0, "terminated", exit_status=0, finished=2 * HOUR - 5))
    situation.look_at(3 * HOUR, train(1, "running"))
    situation.notices.alert(types.BudgetCrossed(threshold=800, spent=9, total=10))
    assert [intent.kind for intent in situation.intents()] == ["start", "budget"]
    if kill:
        situation.watch(route)
    for seconds in (8 * HOUR + 1, 8 * HOUR + 9):
        situation.look_at(seconds, train(1, "running"))
    (digest,) = situation.intents("digest")
    assert len(digest.about) == 2
    assert {entry["kind"] for entry in json.loads(digest.body)["facts"]} == {"start", "run_end"}
    assert len(situation.intents()) == 3
    situation.record.close()


@given(since=st.integers(0, 1439), length=st.integers(1, 1439), seconds=st.integers(0, 10**9))
def test_quiet_hours_last_until_they_are_over_and_not_longer(since, length, seconds):
    """They end when no time is left, and not a microsecond before."""
    quiet = QuietHours(since, (since + length) % 1440, ZoneInfo("Asia/Kolkata"))
    now = seconds * SECOND
    left = quiet_left(quiet, now)
    local = datetime.fromtimestamp(seconds, UTC).astimezone(quiet.zone)
    assert (left > 0) == ((60 * local.hour + local.minute - since) % 1440 < length)
    assert quiet_left(quiet, now + left) == 0 or not left
    assert not left or quiet_left(quiet, now + left - 1) == 1


def test_500_ends_at_once_are_a_few_digests_that_name_each_once(situation):
    """200 a digest; each is named once."""
    names = [f"run-{number}" for number in range(500)]
    situation.look_at(0.5, *(single(name, "running", "running") for name in names))
    situation.watch(Route(name="alice", url=ALICE.url, kinds=frozenset({"run_end"})))
    situation.look_at(1, *(single(name, "running", "running") for name in names))
    ends = [single(name, "done", "done", exit_status=0, finished=30, job_reason="done_by_runner") for name in names]
    for seconds in (31, 32):
        situation.look_at(seconds, *ends)
    bodies = [json.loads(intent.body) for intent in situation.intents("run_end")]
    assert [body["count"] for body in bodies] == [200, 200, 100]
    assert sorted(run["name"] for body in bodies for run in body["runs"]) == sorted(names)


def machine(state, **more):
    facts = VmFacts(provider_id="i1", name="lab-0", price=1_990_000)
    rest = {"created": 0, "first_position": 1, "first_at": 0, "last_position": 2, "last_at": 100 * SECOND}
    vm = Vm(vm_id="v1", provider="dstack", provider_id="i1", source=SOURCE, state=state, facts=facts, **rest | more)
    return World(rules="current", position=9, vms=Inventory({"v1": vm}, ["v1"] if vm.billed else []))


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (machine(VmState.BUSY, unreachable=(SilentSpan(since=SECOND, until=None),)), "it does not answer"),
        (machine(VmState.BUSY, unreachable=(SilentSpan(since=60 * SECOND, until=None),)), None),
        (machine(VmState.TERMINATED, reason=VmReason.IDLE_TIMEOUT), None),
        (machine(VmState.BUSY), None),
    ],
)
def test_a_machine_that_does_not_answer_has_vanished(situation, state, words):
    """Once for each time that it falls silent; a minute of silence, or an end of our own, is none."""
    for _ in range(2):
        situation.notices.collect(state)
        situation.watch(ALICE)
    texts = situation.texts("vanished")
    assert len(texts) == (words is not None)
    assert all(text.startswith(f"Steno: machine lab-0 of {SOURCE} vanished: {words}") for text in texts)


# -- delivery


@pytest.mark.slow
def test_a_mail_server_that_is_down_for_a_day_is_tried_until_then_and_the_notice_stays_in_the_record(bench):
    """Retried hourly at last; the final failure is recorded, and no password is in it."""
    clock = bench.clock
    clock.stand_still()
    with MailServer() as gone:
        url = gone.url("alice@example.org").replace("mailto://", "mailto://alice:hunter2@")
    notices = Notices(bench.journal, clock, Route(name="alice", url=url, kinds=KINDS))
    notices.alert(types.BudgetCrossed(threshold=800, spent=9, total=10))
    for pause in (*PATIENT, 0):
        notices.round()
        notices.wait(600)
        notices.round()
        clock.ahead += pause
    failed = bench.facts("NoticeFailed")
    assert [each.final for each in failed] == [False] * len(PATIENT) + [True]
    assert sum(PATIENT) >= 24 * HOUR * SECOND
    assert "127.0.0.1" in failed[0].error
    assert b"hunter2" not in bench.path.read_bytes()
    assert not bench.journal.outbox().notices
    assert len(bench.facts("NoticeIntended")) == 1
    notices.close()


@pytest.mark.slow
def test_a_mail_says_what_happened_to_whom_and_is_due_as_soon_as_the_server_is_back(bench):
    """As people read it, without Slack's escapes, and of when; what was refused before goes out once another notice was
    taken.
    """
    clock = bench.clock
    clock.stand_still()
    with MailServer() as mail:
        mail.replies = ["451 later"] * 5
        route = Route(name="alice", url=mail.url("alice@example.org"), kinds=KINDS)
        notices = Notices(bench.journal, clock, route)
        batch = notices.batch(route, "stuck", "n1", ("Steno: a<b is stuck", "/", {"lines": ["a", "b"]}))
        bench.journal.append(batch)
        for pause in (*PATIENT[:4], SECOND):
            notices.round()
            notices.wait(600)
            notices.round()
            clock.ahead += pause
        bench.journal.append(notices.batch(route, "start", "n2", ("Steno: c started", "/", {})))
        for _ in range(3):
            notices.round()
            notices.wait(600)
        notices.close()
    assert [message["Subject"] for message in mail.taken] == ["Steno: c started", "Steno: a<b is stuck"]
    assert mail.taken[1]["To"] == "alice@example.org"
    intended = datetime.fromtimestamp(clock.now() // SECOND - sum((*PATIENT[:4], SECOND)) // SECOND, UTC)
    text = mail.taken[1].get_content()
    assert text.split()[:8] == ["Steno:", "a<b", "is", "stuck", "a", "b", "notice", "n1,"]
    assert abs(datetime.fromisoformat(text.split()[8]) - intended).total_seconds() < 60


def test_the_name_of_a_run_adds_no_line_to_a_notice(situation):
    """Also in a digest, and whatever its characters are."""
    named = "a\nBcc: eve@example.org\x1b[2J\u202e<b>"
    for count, first in ((1, 0), (20, 1)):
        rows = [train(first + number, "running") for number in range(count)]
        for row in rows:
            row["run_spec"]["run_name"] = named
        situation.look_at(30_000 + first, *rows)
    texts = situation.texts()
    lines = [line for intent in situation.intents() for line in json.loads(intent.body).get("lines", ())]
    assert lines
    assert all("Bcc: eve" in text and text.isprintable() for text in (*texts, *lines))


def test_two_processes_with_other_routes_send_each_notice_once(bench, hook):
    """The first keeps the webhook to itself, and does not keep the second from a route of its own."""
    bench.clock.stand_still()
    with MailServer() as mail:
        chat = Route(url=hook.url, kinds=KINDS)
        alice = Route(name="alice", url=mail.url("alice@example.org"), kinds=KINDS)
        processes = Notices(bench.journal, bench.clock, chat), Notices(bench.journal, bench.clock, chat, alice)
        for name, route in (("n1", chat), ("n2", alice)):
            bench.journal.append(processes[1].batch(route, "start", name, ("Steno: c started", "/", {})))
        for process in processes:
            process.round()
            process.wait(600)
        assert (len(hook.taken), len(mail.taken)) == (1, 1)
        for process in processes:
            process.close()
    assert not bench.journal.outbox().notices


def test_a_test_notice_is_sent_by_mail_at_once(bench):
    with MailServer() as mail:
        route = Route(name="alice", url=mail.url("alice@example.org"), kinds=frozenset({"stuck"}))
        name, status, error = send_test_notice(bench.journal, route, bench.clock, RandomIds())
    assert (status, error, len(mail.taken)) == (0, None, 1)
    assert name in mail.taken[0].get_content()


@pytest.mark.parametrize(
    "url", ["nonsense://user:hunter2@x", "mailto://hunter2@", "mailto://u:hunter2@127.0.0.1:9?to=x"]
)
def test_an_address_that_apprise_does_not_understand_is_a_line_without_its_password(url):
    """For `up` and `doctor`; a web address needs no apprise."""
    with pytest.raises(NotConfigured, match=r"apprise does not understand notify\.alice\.url") as raised:
        check_route(Route(name="alice", url=url))
    assert "hunter2" not in str(raised.value) + repr(Route(name="alice", url=url))
    check_route(ALICE)


def test_without_apprise_the_message_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(addresses, "find_spec", lambda _: None)
    with pytest.raises(NotConfigured, match="EXTRAS=notices"):
        check_route(Route(name="alice", url="mailto://u:p@example.org"))
    check_route(ALICE)
