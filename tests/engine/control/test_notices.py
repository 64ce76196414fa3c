"""Notices, against a real HTTP server that takes them, refuses them, hangs or hangs up."""

import hashlib
import hmac
import json
import socket
import threading
from contextlib import suppress

import pytest
from stenotest.waiting import wait

from steno.engine.notify import webhook as posting
from steno.engine.notify.notices import PAUSES, Notices
from steno.engine.notify.routes import Route
from steno.engine.notify.webhook import sign
from steno.engine.state.changes import Anomaly, AnomalyKind
from steno.engine.state.inventory import Inventory
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm, VmFacts
from steno.engine.state.world import World
from steno.events import types
from steno.events.clock import SECOND

pytestmark = pytest.mark.slow

ALERT = types.BudgetCrossed(threshold=800, spent=1_120_400_000, total=1_400_000_000)


@pytest.fixture
def clock(bench):
    return bench.clock


def tries(bench, count):
    return lambda: len(outcomes(bench)) == count


def outcomes(bench):
    return [stored.data for stored in bench.record.read(types={"NoticeDelivered", "NoticeFailed"})]


def until(notices, done):
    def sent():
        notices.round()
        return done()

    wait(lambda: done() or sent())


@pytest.fixture
def made(clock, hook):
    """`made(bench, webhook)`: what tells; it waits for what is under way when the test ends, also by a failure."""
    opened = []

    def make(bench, *webhook, **more):
        opened.append(Notices(bench.journal, clock, *webhook, **more))
        return opened[-1]

    yield make
    hook.free.set()
    for notices in opened:
        notices.wait(600)
        notices.close()


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """A webhook of this machine answers, however late."""
    monkeypatch.setattr(posting, "TIMEOUT", 600.0)


def test_an_alert_and_its_notice_are_one_transaction_and_arrive_signed(bench, hook, clock, made):
    """Whoever has the secret can check that it came from us, and when; Slack finds its `text`."""
    began, notices = clock.now(), made(bench, Route(url=hook.url, secret="s3cret"))
    notices.alert(ALERT)
    crossed, intended = bench.record.read(types={"BudgetCrossed", "NoticeIntended"})
    assert intended.position == crossed.position + 1
    until(notices, lambda: outcomes(bench))
    ((headers, body),) = hook.taken
    notice = json.loads(body)
    assert notice["text"] == "Steno: $1120.40 of $1400.00 are spent: the alert at 80 % of the budget"
    assert (notice["kind"], notice["threshold"], notice["spent"], notice["total"]) == (
        "budget",
        800,
        *(ALERT.spent, ALERT.total),
    )
    assert headers["X-Steno-Notice"] == notice["notice_id"] == intended.data.notice_id
    moment, _, digest = headers["X-Steno-Signature"].partition(",v1=")
    signed = moment.removeprefix("t=").encode() + b"." + body
    assert hmac.compare_digest(digest, hmac.new(b"s3cret", signed, hashlib.sha256).hexdigest())
    assert began // SECOND <= int(moment.removeprefix("t=")) <= clock.now() // SECOND
    (outcome,) = outcomes(bench)
    assert (outcome.status, outcome.attempt) == (200, 1)


def test_a_threshold_is_told_once_whoever_crosses_it(bench, hook, clock, made):
    """A second recorder of the same record, of another source, may come to the same figure a moment later."""
    for spent in (ALERT.spent, ALERT.spent + 7):
        made(bench, Route(url=hook.url)).alert(types.BudgetCrossed(threshold=800, spent=spent, total=ALERT.total))
    assert len(bench.facts("BudgetCrossed")) == len(bench.facts("NoticeIntended")) == 1


def test_without_a_webhook_an_alert_is_only_recorded(bench, clock, made):
    notices = made(bench)
    notices.alert(ALERT)
    notices.round()
    assert len(bench.facts("BudgetCrossed")) == 1
    assert not bench.facts("NoticeIntended")
    assert notices.due_in(clock.now()) is None


def test_without_a_secret_nothing_is_signed(bench, hook, clock, made):
    notices = made(bench, Route(url=hook.url))
    notices.alert(ALERT)
    until(notices, lambda: outcomes(bench))
    assert "X-Steno-Signature" not in hook.taken[0][0]


def test_a_refused_notice_is_sent_again_after_1_5_25_and_125_seconds_and_then_given_up(bench, hook, clock, made):
    """Five tries of one notice under one id; none of them early."""
    hook.answers = [500, 503, 302, 404, 429, 200]
    clock.stand_still()
    notices = made(bench, Route(url=hook.url))
    notices.alert(ALERT)
    for tried, pause in enumerate((*PAUSES, 1000 * SECOND), start=1):
        until(notices, tries(bench, tried))
        clock.ahead += pause - 1
        notices.round()
        assert not notices._attempts
        assert len(hook.taken) == tried
        clock.ahead += 1
    assert [(notice.attempt, notice.final) for notice in outcomes(bench)] == [(n, n == 5) for n in range(1, 6)]
    assert [notice.error for notice in outcomes(bench)][:3] == [
        f"the webhook answered {status}" for status in (500, 503, 302)
    ]
    assert len({headers["X-Steno-Notice"] for headers, _ in hook.taken}) == 1
    assert len({body for _, body in hook.taken}) == 1
    assert not bench.journal.outbox().notices


def test_a_webhook_that_hangs_or_hangs_up_holds_up_no_round(bench, hook, clock, made):
    """Rounds go on while it hangs; what came of the try is an event of a later one. The address is in none of them."""
    hook.answers = ["hang", "close"]
    notices = made(bench, Route(url=hook.url))
    notices.alert(ALERT)
    until(notices, lambda: hook.taken)
    for _ in range(3):
        notices.round()
    assert notices._attempts
    assert not outcomes(bench)
    hook.free.set()
    for tried in (1, 2):
        until(notices, tries(bench, tried))
        clock.ahead += 200 * SECOND
    assert [notice.error.split(":")[0] for notice in outcomes(bench)] == ["no answer (RemoteProtocolError"] * 2
    assert b"secret-path" not in bench.path.read_bytes()
    until(notices, tries(bench, 3))


def test_a_webhook_that_does_not_answer_in_time_is_a_failed_try(bench, hook, made, monkeypatch):
    """However long it hangs."""
    monkeypatch.setattr(posting, "TIMEOUT", 1.0)
    hook.answers = ["hang"]
    notices = made(bench, Route(url=hook.url))
    notices.alert(ALERT)
    until(notices, tries(bench, 1))
    assert outcomes(bench)[0].error.startswith("no answer (ReadTimeout")


@pytest.mark.parametrize(
    "sent",
    [b"HTTP/1.1 100 Continue\r\n\r\n", b"H", b"HTTP/1.1 200 OK secret-path\r\n: secret-path\r\n"],
    ids=["interim answers", "a byte at a time", "the address in a broken header"],
)
def test_a_webhook_that_never_ends_is_a_failed_try_without_its_address(monkeypatch, sent):
    """No read times out, so the try has a time of its own; what the server sends is not in what we write down."""
    monkeypatch.setattr(posting, "TOTAL", 0.5)
    over = threading.Event()

    def flood() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            while not over.wait(0.001):
                connection.sendall(sent)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=flood, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/services/secret-path"
        status, error = posting.send(address, b"{}", {})
        over.set()
        thread.join()
    assert status is None
    assert error.startswith("no answer (")
    assert "secret-path" not in error


def test_an_answer_of_any_size_is_not_read(monkeypatch):
    """Only the status is read: 100 MB behind it are not."""
    sent = []

    def answer() -> None:
        connection, _ = listening.accept()
        with connection, suppress(OSError):
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\nContent-Encoding: zstd\r\n\r\n")
            for _ in range(100):
                connection.sendall(b"x" * 1_000_000)
                sent.append(1)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/"
        assert posting.send(address, b"{}", {}) == (200, None)
        thread.join()
    assert len(sent) < 100


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("where", ["http://169.254.169.254/", "file:///etc/passwd", "gopher://127.0.0.1:1/", "/in"])
def test_a_redirect_of_a_webhook_is_a_failed_try(status, where):
    """It could lead inwards: to the cloud's metadata, to a file, to this machine."""
    requests = []

    def answer() -> None:
        connection, _ = listening.accept()
        with connection:
            requests.append(connection.recv(65536))
            head = f"HTTP/1.1 {status} X\r\nLocation: {where}\r\nContent-Length: 0\r\n\r\n"
            connection.sendall(head.encode())

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}/hook"
        assert posting.send(address, b"{}", {}) == (status, f"the webhook answered {status}")
        thread.join()
        listening.settimeout(0)
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert len(requests) == 1


def test_an_address_nobody_listens_at_is_a_failed_try(bench, clock, made):
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        notices = made(bench, Route(url=f"http://127.0.0.1:{nobody.getsockname()[1]}/x"))
        notices.alert(ALERT)
        until(notices, lambda: outcomes(bench))
    assert outcomes(bench)[0].error.startswith("no answer (ConnectError")


def test_a_notice_without_outcome_is_sent_by_the_next_process_under_the_same_id(bench, open_bench, hook, clock, made):
    """A crash between the call and its outcome: twice at the webhook, once by its id."""
    dead = Notices(bench.journal, clock, Route(url=hook.url))  # nobody closes it
    dead.alert(ALERT)
    dead.round()
    dead.wait(600)
    dead._leases.popitem()[1].release()
    notices = made(open_bench(bench.path), Route(url=hook.url))
    until(notices, lambda: outcomes(bench))
    assert len(hook.taken) == 2
    assert len({headers["X-Steno-Notice"] for headers, _ in hook.taken}) == 1
    assert len({body for _, body in hook.taken}) == 1


def test_a_silent_provider_does_not_keep_a_notice_back(open_bench, tmp_path, hook, monkeypatch):
    """The news may be the reason of the silence."""
    bench = open_bench(tmp_path / "silent.db", notify=Route(url=hook.url))
    monkeypatch.setattr(bench.provider, "poll", lambda follow, *, since: iter(()))
    bench.controller._notices.alert(ALERT)
    bench.poll_until(lambda: outcomes(bench))
    assert len(hook.taken) == 1


def test_one_process_sends_at_a_time(bench, open_bench, hook, clock, made):
    """The recorders of two sources share a record and its notices."""
    first = made(bench, Route(url=hook.url))
    second = made(open_bench(bench.path), Route(url=hook.url))
    hook.answers = ["hang"]
    first.alert(ALERT)
    first.round()
    second.round()
    assert not second._attempts
    hook.free.set()
    first.close()
    until(second, lambda: outcomes(bench))


def machine(bench, state, kind=AnomalyKind.ORPHAN):
    """A world with a machine that a poll of just now showed."""
    bench.controller.round()
    (newest,) = bench.record.read(types={"PollRecorded"}, limit=1, backwards=True)
    source, position = bench.provider.source, newest.position
    vm = Vm(
        vm_id="v1",
        provider="dstack",
        provider_id="i1",
        source=source,
        state=state,
        facts=VmFacts(provider_id="i1", name="lab-fleet-0", price=1_990_000),
        created=0,
        first_position=1,
        first_at=0,
        last_position=position,
        last_at=0,
    )
    anomaly = Anomaly(kind=kind, subject="vm/v1", position=position, detail="seen idle, no run known")
    return World(rules="current", vms=Inventory({"v1": vm}), anomalies=[anomaly])


@pytest.mark.parametrize("kind", [AnomalyKind.ORPHAN, AnomalyKind.ORPHAN_SUSPECTED])
def test_an_orphan_is_told_once_while_it_may_cost(bench, hook, clock, kind):
    """Also by a process that starts later and reads of it in the record; not of a machine that is gone by then."""
    target = Route(url=hook.url)
    source = bench.provider.source
    gone = Notices(bench.journal, clock, target, source=source)
    gone.collect(machine(bench, VmState.TERMINATED, kind))
    assert not bench.facts("NoticeIntended")
    state = machine(bench, VmState.IDLE, kind)
    for notices in (gone, *(Notices(bench.journal, clock, target, source=source) for _ in range(2))):
        notices.close()
        notices.collect(state)
    state.anomalies.append(Anomaly(kind=AnomalyKind.SCHEMA_DRIFT, subject="vm/v1", position=9, detail="a word"))
    notices.collect(state)
    (intent,) = bench.facts("NoticeIntended")
    body = json.loads(intent.body)
    assert (body["anomaly"], body["vm_id"], body["source"]) == (kind.value, "v1", source)
    assert f"lab-fleet-0 of {source} at $1.99/h: seen idle, no run known" in body["text"]


def test_the_signature_covers_the_time_and_the_body():
    """As `printf %s '1700000000.{"text":"x"}' | openssl dgst -sha256 -hmac key` gives it."""
    assert sign("key", 1_700_000_000, b'{"text":"x"}') == (
        "t=1700000000,v1=4536e1d99657625a6450cffaf320abafeb2707f9f4aa50853fc14b45e64c9dd6"
    )
