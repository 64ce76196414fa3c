"""A figure of the provider's that cannot be right is told once, when it is final, by whoever saw the run end."""

import json

import msgspec
import pytest
from stenotest.dstack_history import START, DstackHistory, job, run_item, submission

from steno.engine.notify.notices import Notices
from steno.engine.notify.routes import Route
from steno.engine.providers.local.reading import RUNS
from steno.engine.replay.replay import replay_record
from steno.engine.state.policy import Policy
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND

pytestmark = pytest.mark.slow

PRICED = Policy(max_vms=2)
HOURLY = 1_990_000


class Overcharged:
    """A provider whose figures are seven dollars too high; everything else is the real one's."""

    def __init__(self, provider, extra=7.0):
        self._poll, self.extra = provider.poll, extra

    def poll(self, follow, *, since):
        for poll in self._poll(follow, since=since):
            if poll.body is None or poll.path != RUNS:
                yield poll
                continue
            body = json.loads(poll.body)
            for run in body if isinstance(body, list) else [body]:
                run["cost"] += round(self.extra * DOLLAR)
            yield msgspec.structs.replace(poll, body=json.dumps(body).encode())


@pytest.fixture
def watched(open_bench, tmp_path, monkeypatch):
    """`watched(webhook)`: a recorder that stays, of the same record and machine each time, and its odd provider."""

    def start(webhook, extra=7.0):
        bench = open_bench(tmp_path / "record.db", policy=PRICED, notify=webhook, price=HOURLY)
        monkeypatch.setattr(bench.provider, "poll", Overcharged(bench.provider, extra).poll)
        return bench

    return start


def told(bench):
    """The anomalies that are in a notice."""
    bodies = [json.loads(notice.body) for notice in bench.facts("NoticeIntended")]
    return [anomaly for body in bodies if body["kind"] == "anomaly" for anomaly in body.get("anomalies", [body])]


def ended(bench, name):
    """A run that has ended and whose end has been told."""
    bench.controller.round()
    run_id = bench.ask("true", name=name)
    bench.finish(run_id)
    for _ in range(3):
        bench.controller.round()
    return run_id


def test_a_figure_that_cannot_be_right_is_told_once(watched, hook):
    """With the run it is of; not again in later rounds, nor after a restart: at the receiver it is one notice."""
    webhook = Route(url=hook.url, dashboard="https://steno.example")
    bench = watched(webhook)
    run_id = ended(bench, "odd")
    bench.poll_until(lambda: told(bench))
    (notice,) = told(bench)
    assert (notice["anomaly"], notice["subject"]) == ("cost_divergence", f"run/{run_id}")
    assert notice["text"].startswith("Steno: cost_divergence: odd: local says $7.0")
    assert notice["link"] == f"https://steno.example/runs/{run_id}"
    assert replay_record(bench.record).anomalies[-1].detail == notice["detail"]
    bench.poll_until(lambda: not bench.journal.outbox().notices)
    bench.controller.release()
    bench.controller.close()
    again = watched(webhook)
    for _ in range(3):
        again.controller.round()
    again.poll_until(lambda: not again.journal.outbox().notices)
    assert len(told(again)) == 1
    taken = [json.loads(body) for _, body in hook.taken]
    assert [notice_taken["notice_id"] for notice_taken in taken if notice_taken["kind"] == "anomaly"] == [
        notice["notice_id"]
    ]


def test_a_figure_that_its_submissions_give_is_no_news(watched, hook):
    """The run's end is."""
    bench = watched(Route(url=hook.url), extra=0.0)
    ended(bench, "even")
    assert told(bench) == []
    assert [json.loads(notice.body)["kind"] for notice in bench.facts("NoticeIntended")] == ["run_end"]


def test_the_figure_of_a_run_that_ended_before_telling_began_is_the_past(watched, hook):
    """It stands among the incidents, and no notice is sent; for the next run there is a notice."""
    silent = watched(None)
    old = ended(silent, "old")
    silent.controller.close()
    bench = watched(Route(url=hook.url))
    new = ended(bench, "new")
    bench.poll_until(lambda: told(bench))
    odd = {anomaly.subject for anomaly in replay_record(bench.record).anomalies}
    assert {f"run/{old}", f"run/{new}"} <= odd
    assert [notice["subject"] for notice in told(bench)] == [f"run/{new}"]


def test_a_process_killed_before_it_told_leaves_it_to_the_next(watched, hook, monkeypatch):
    """As every other fact."""
    webhook = Route(url=hook.url)
    dead = watched(webhook)
    monkeypatch.setattr(dead.controller, "_tell", lambda: None)
    run_id = ended(dead, "odd")
    assert told(dead) == []
    bench = watched(webhook)
    bench.poll_until(lambda: told(bench))
    assert [notice["subject"] for notice in told(bench)] == [f"run/{run_id}"]


# -- when it is final, by dstack's own words


class Project:
    """A dstack project that is looked at by hand."""

    def __init__(self, bench):
        self.bench = bench
        bench.clock.still = START
        self.notices = Notices(bench.journal, bench.clock, Route(url="http://127.0.0.1:9/x"), source="dstack/main")
        self.notices.adopt(stays=True)

    def look(self, seconds, item, *, imported=False, **req):
        """A poll, so many seconds after the start, shows the run."""
        self.bench.clock.ahead = round(seconds * SECOND)
        ((_, poll),) = DstackHistory(now=seconds - 0.01).listed(item, **req).polls()
        self.bench.record.append_polls([poll], ids=[f"{round(seconds):016x}"] if imported else None)
        self.bench.controller.catch_up()
        self.notices.collect(self.bench.world.state)

    def odd(self):
        return [notice["anomaly"] for notice in told(self.bench)]


def item(status, *, cost, finished=None, num=0, **more):
    """A run of $1.99 an hour, submitted at the start."""
    word = {"done": "done"}.get(status, "running")
    attempt = submission(status, num=num, finished=finished, price=1.99, hostname="10.0.0.1", **more)
    return run_item("a", word, job(attempt), cost=cost)


DONE = {"exit_status": 0, "reason": "done_by_runner"}


@pytest.fixture
def project(bench):
    return Project(bench)


def test_it_is_told_when_the_figure_moves_no_more(project):
    """The verdict comes with the exit status, the figure is final with the submission's own end."""
    project.look(10, item("running", cost=5.0))
    project.look(20, item("terminating", cost=5.0, **DONE))
    assert project.odd() == []
    assert project.bench.facts("NoticeIntended")  # its end is told already
    for seconds in (30, 40, 50):
        project.look(seconds, item("done", cost=5.0, finished=21, **DONE))
    assert project.odd() == ["cost_divergence"]


def test_an_answer_that_leaves_submissions_out_says_nothing_of_it(project):
    """Whoever counts only what is shown finds any figure too high."""
    project.look(10, item("running", cost=5.0, num=1))
    for seconds in (20, 30):
        project.look(seconds, item("done", cost=5.0, num=1, finished=19, **DONE), job_submissions_limit=1)
    assert project.odd() == []


def test_what_an_import_showed_is_not_told(project):
    """Neither the end nor the figure was seen by who tells."""
    project.look(10, item("running", cost=5.0))
    project.look(20, item("done", cost=5.0, finished=19, **DONE), imported=True)
    project.look(30, item("done", cost=5.0, finished=19, **DONE))
    assert project.odd() == []


def test_of_an_end_a_day_ago_nobody_is_told_any_more(project):
    """The figure came too late."""
    project.look(10, item("running", cost=5.0))
    project.look(20, item("terminating", cost=5.0, **DONE))
    project.look(90_000, item("done", cost=5.0, finished=21, **DONE))
    assert project.odd() == []
