"""`steno notify`, and what `steno up` tells a genuine webhook on this machine."""

import functools
import hashlib
import hmac
import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from stenotest.command_line import Background, Steno
from stenotest.dstack_api import DstackApi
from stenotest.dstack_history import DstackHistory, job, run_item, submission
from stenotest.gated_run import holding
from stenotest.mail_server import MailServer
from stenotest.traces import requests_of, spans_of, values
from stenotest.waiting import wait
from stenotest.webhook_server import WebhookServer

from steno.cli.commands import notify
from steno.engine.providers.registry import READINGS
from steno.events.clock import SECOND, SystemClock
from steno.events.store.record import Record


@pytest.fixture
def hook() -> Iterator[WebhookServer]:
    """A webhook that listens."""
    with WebhookServer() as made:
        yield made


def listed(steno: Steno, *words: str) -> list[dict[str, Any]]:
    """The notices of the record, newest first."""
    done = steno("notify", "list", "--json", *words)
    assert done.returncode == 0, done.stderr
    notices: list[dict[str, Any]] = json.loads(done.stdout)["notices"]
    return notices


def signed(headers: dict[str, str], body: bytes, secret: bytes) -> bool:
    """True if the signature is that of this body with this secret."""
    moment, _, digest = headers["X-Steno-Signature"].partition(",v1=")
    expected = hmac.new(secret, moment.removeprefix("t=").encode() + b"." + body, hashlib.sha256).hexdigest()
    return hmac.compare_digest(digest, expected)


def test_a_test_notice_arrives_signed_and_stands_in_the_record(steno: Steno, hook: WebhookServer) -> None:
    """Once; Slack finds its text and its blocks, and we say what came back."""
    done = steno("notify", "test", STENO_WEBHOOK=hook.url, STENO_WEBHOOK_SECRET="s3cret", STENO_ALERTS_ON="run_end")
    assert (done.returncode, done.stderr) == (0, "")
    ((headers, body),) = hook.taken
    assert signed(headers, body, b"s3cret")
    sent = json.loads(body)
    assert sent["text"] == "Steno: a test notice. This webhook is notified of: run_end."
    assert sent["blocks"] == [{"type": "section", "text": {"type": "mrkdwn", "text": sent["text"]}}]
    assert done.stdout == f"the webhook answered 200: notice {sent['notice_id']}, signed\n"
    (notice,) = listed(steno)
    assert (notice["kind"], notice["state"], notice["status"], notice["attempts"]) == ("test", "delivered", 200, 1)
    assert notice["notice_id"] == sent["notice_id"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (500, "the webhook answered 500"),
        (302, "the webhook answered 302"),
        ("close", "no answer (RemoteProtocolError: not a proper answer)"),
    ],
)
def test_a_webhook_that_does_not_take_it_is_exit_3_and_is_not_asked_again(
    steno: Steno, hook: WebhookServer, answer: Any, error: str
) -> None:
    """A redirect is not followed: what is signed for one address is not shown to another."""
    hook.answers = [answer]
    done = steno("notify", "test", "--json", STENO_WEBHOOK=hook.url)
    assert (done.returncode, done.stderr) == (3, f"steno: the webhook did not accept the test notice: {error}\n")
    body = json.loads(done.stdout)
    assert (body["delivered"], body["error"], body["signed"]) == (False, error, False)
    (notice,) = listed(steno, "--state", "failed")
    assert (notice["error"], notice["status"]) == (error, None)
    assert (len(hook.taken), hook.elsewhere) == (1, 0)


@pytest.mark.slow
def test_nobody_there_is_exit_3_and_the_address_is_not_shown(steno: Steno, home: Path) -> None:
    """An address can be a key to itself."""
    with WebhookServer() as gone:
        address = gone.url
    done = steno("notify", "test", STENO_WEBHOOK=address)
    assert done.returncode == 3
    assert "secret-path" not in done.stdout + done.stderr + steno("notify").stdout
    assert not any(b"secret-path" in file.read_bytes() for file in home.iterdir() if file.is_file())


def test_without_a_webhook_there_is_nothing_to_test(steno: Steno, home: Path) -> None:
    """Exit 2, which setting is missing, and no record is made for it."""
    done = steno("notify", "test")
    assert (done.returncode, done.stdout) == (2, "")
    assert "STENO_WEBHOOK" in done.stderr
    assert not (home / "record.db").exists()
    assert steno("notify").returncode == 4


@pytest.mark.parametrize("value", ["run_ends", "budget,,orphan", "all"])
def test_a_kind_that_is_none_is_named(steno: Steno, value: str) -> None:
    """Exit 2; what it may be."""
    done = steno("notify", "test", STENO_WEBHOOK="http://127.0.0.1:9/", STENO_ALERTS_ON=value)
    assert done.returncode == 2
    assert "alerts.on" in done.stderr
    assert "run_end, anomaly, budget, orphan" in done.stderr


@pytest.mark.slow
def test_a_page_of_notices(steno: Steno, hook: WebhookServer) -> None:
    """The newest first, one a line, no longer than the terminal."""
    for answer in (200, 503):
        hook.answers = [answer]
        steno("notify", "test", STENO_WEBHOOK=hook.url)
    page = steno("notify", COLUMNS="80").stdout.splitlines()
    assert [line[22:].split("  ")[0].strip() for line in page] == ["failed", "delivered"]
    assert page[0].endswith("test     the webhook answered 503")
    assert all(len(line) <= 80 for line in page)
    assert steno("notify", "-n", "1").stderr == "1 older not shown; --last shows more\n"
    none = steno("notify", "list", "--state", "pending")
    assert (none.stdout, none.stderr) == ("", "no notice is pending\n")


def test_a_notice_is_listed_on_one_line_as_people_wrote_it() -> None:
    """Without Slack's escapes, and whatever the name of a run holds."""
    row = {
        "at": 0,
        "state": "delivered",
        "error": None,
        "kind": "start",
        "route": "",
        "text": "Steno: a&lt;b\nc\x1b[2J",
    }
    assert notify._line(row).endswith(r"start    a<b\nc\x1b[2J")


# -- what a recorder tells


Up = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def up(background: Background) -> Up:
    """`up(**variables)`: a recorder that goes on until it is killed."""
    return functools.partial(background, "record", "--interval", "0.1")


def adopted(steno: Steno) -> bool:
    """True if a recorder that sends notices has loaded the record: nothing that ended before is sent."""
    return "AlertsAdopted" in steno("events", "--type", "AlertsAdopted").stdout


def states(steno: Steno) -> dict[str, str]:
    """Run → state."""
    return {run["name"]: run["state"] for run in json.loads(steno("ps", "--all", "--json").stdout)["runs"]}


@pytest.mark.slow
def test_an_end_is_told_once_through_a_webhook_that_fails_and_a_recorder_that_is_killed(
    steno: Steno, up: Up, hook: WebhookServer, gate: Path
) -> None:
    """500, then a try that hangs when the recorder is killed -9, then taken: one notice by its id, one in the record,
    and nothing of the run that ended before any notice was sent.
    """
    assert steno("submit", "--wait", "--name", "before", "--", "true").returncode == 0
    hook.answers = [500, "hang"]
    settings = {"STENO_WEBHOOK": hook.url, "STENO_WEBHOOK_SECRET": "s3cret", "STENO_API_URL": "https://steno.example/"}
    first = up(**settings)
    wait(lambda: adopted(steno))
    assert steno("submit", "--name", "job-1", "--", f"{holding(gate)}; exit 3").returncode == 0
    wait(lambda: states(steno)["job-1"] == "running")
    gate.touch()
    wait(lambda: len(hook.taken) >= 2)
    first.kill()
    first.wait()
    up(**settings)
    wait(lambda: listed(steno, "--state", "delivered"))
    assert len({headers["X-Steno-Notice"] for headers, _ in hook.taken}) == 1
    assert len(hook.taken) >= 3
    assert all(signed(headers, body, b"s3cret") for headers, body in hook.taken)
    (notice,) = listed(steno)
    sent = json.loads(hook.taken[-1][1])
    run = sent["run"]
    assert (run["name"], run["state"], run["reason"], run["exit_status"]) == ("job-1", "failed", "exit_nonzero", 3)
    assert sent["text"].startswith("Steno: job-1 failed (exit_nonzero, exit 3), ran ")
    assert sent["text"].endswith(f" https://steno.example/runs/{run['run_id']}")
    assert sent["blocks"][0]["text"]["text"].endswith(f"<https://steno.example/runs/{run['run_id']}|Show in Steno>")
    assert sent["link"] == f"https://steno.example/runs/{run['run_id']}"
    assert (notice["kind"], notice["facts"]) == ("run_end", 1)
    answer = json.loads(steno("show", "job-1", "--json").stdout)
    assert (run["evidence"], run["transitions"]) == (answer["evidence"], answer["transitions"])


@pytest.mark.slow
@pytest.mark.parametrize("many", [4, pytest.param(12, marks=pytest.mark.long)])
def test_ends_at_once_are_each_told_once(steno: Steno, up: Up, hook: WebhookServer, gate: Path, many: int) -> None:
    """Whatever notice each is in; nothing is left to tell."""
    for number in range(many):
        assert steno("submit", "--name", f"job-{number}", "--", holding(gate)).returncode == 0
    up(STENO_WEBHOOK=hook.url)
    wait(lambda: adopted(steno) and set(states(steno).values()) == {"running"})
    gate.touch()

    def told() -> list[str]:
        bodies = [json.loads(body) for _, body in hook.taken]
        return [run["name"] for body in bodies for run in body.get("runs", [body.get("run")])]

    wait(lambda: len(told()) >= many)
    assert sorted(told()) == sorted(f"job-{number}" for number in range(many))
    assert all(notice["state"] != "failed" for notice in listed(steno))


@pytest.mark.slow
def test_nothing_of_a_trace_or_of_the_past_is_told(steno: Steno, up: Up, hook: WebhookServer) -> None:
    """Import, replay, rebuild and the first look of a recorder at a record full of ended runs send nothing."""
    trace = Path(__file__).parent.parent / "traces" / "dstack-0.22.5" / "warm_reuse.jsonl.zst"
    settings = {"STENO_WEBHOOK": hook.url}
    assert steno("submit", "--wait", "--name", "past", "--", "true").returncode == 0
    for words in (("import", trace), ("replay",), ("rebuild",), ("import", trace)):
        assert steno(*words, **settings).returncode == 0
    controller = up(**settings)
    wait(lambda: adopted(steno))
    polls = len(steno("polls", "--json").stdout.splitlines())
    wait(lambda: len(steno("polls", "--json").stdout.splitlines()) > polls + 5)
    controller.terminate()
    assert controller.wait() == 0
    assert (listed(steno), hook.taken) == ([], [])


# -- routes


def row(number: int, status: str, start: int, exit_status: int | None = None) -> dict[str, Any]:
    """A run named train as dstack lists it; each number is a run of its own."""
    at, word = number * 100, "done" if status == "terminated" else status
    newest = job(submission(status, submitted=at, exit_status=exit_status, start=start))
    return run_item("train", word, newest, label=f"train-{number}", submitted=at, start=start)


def stuck_run(place: Path, start: int) -> dict[str, Any]:
    """A record at that place: 20 runs that were provisioning for 10 s, and then a run that is provisioning still."""
    story = DstackHistory(start=start)
    for number in range(20):
        for seconds, status in ((1, "provisioning"), (11, "running"), (20, "terminated")):
            story.now = number * 100 + seconds
            story.listed(row(number, status, start, 0 if status == "terminated" else None))
    last = row(20, "provisioning", start)
    story.wait(100).listed(last)
    with closing(Record.open(place, write=True, create=True, shapes=READINGS.shape, clock=SystemClock())) as record:
        record.append_polls([poll for _, poll in story.polls() if poll is not None])
    return last


@pytest.mark.slow
def test_a_stuck_run_reaches_its_owner_once_by_mail_and_webhook_through_kills_of_up(
    steno: Steno, background: Background, hook: WebhookServer, home: Path
) -> None:
    """The first `up` is killed -9 while both receivers hang, the second after they took it, the third tells nobody."""
    server = DstackApi()
    server.runs = [stuck_run(home / "record.db", SystemClock().now() - 2 * 3600 * SECOND)]
    names = {"STENO_DSTACK_URL": server.url, "DSTACK_TOKEN": "t", "STENO_PROJECT": "main", "STENO_BUDGET": "off"}
    up = functools.partial(background, "up", "--provider", "dstack", "--no-api", **names)
    with MailServer() as mail:
        (home / "steno.toml").write_text(
            f'[notify.admin]\nurl = "{mail.url("admin@example.org")}"\nmine = true\non = "stuck"\n'
            f'[notify.admin-chat]\nurl = "{hook.url}"\nowner = "admin"\nmine = true\non = "stuck"\n'
            f'[notify.other]\nurl = "{mail.url("other@example.org")}"\nmine = true\non = "stuck"\n'
        )
        mail.replies, hook.answers = ["hang"], ["hang"]
        first = up()
        wait(lambda: mail.tries and hook.taken)
        first.kill()
        first.wait()
        second = up()
        wait(lambda: len(listed(steno, "--state", "delivered")) == 2)
        second.kill()
        second.wait()
        up()
        polls = server.count("runs/list")
        wait(lambda: server.count("runs/list") > polls + 3)
        (message,) = mail.taken
        assert message["To"] == "admin@example.org"
        assert message["Subject"].startswith("Steno: train is stuck: provisioning for ")
    assert len({headers["X-Steno-Notice"] for headers, _ in hook.taken}) == 1
    assert sorted(notice["route"] for notice in listed(steno)) == ["admin", "admin-chat"]
    assert json.loads(hook.taken[-1][1])["run"]["name"] == "train"
    server.close()


def test_a_test_notice_goes_by_each_route_or_by_one(steno: Steno, hook: WebhookServer, home: Path) -> None:
    """Each receiver is named with its answer; an address is never shown, and a route that is none is named. An empty
    secret signs nothing.
    """
    with MailServer() as mail:
        settings = (
            f'[notify.alice]\nurl = "{mail.url("alice@example.org")}"\n[notify.chat]\nurl = "{hook.url}"\nsecret = ""\n'
        )
        (home / "steno.toml").write_text(settings)
        mail.replies = ["250 ok", "550 nobody"]
        done = steno("notify", "test", "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert {(each["route"], each["delivered"]) for each in json.loads(done.stdout)["routes"]} == {
            ("alice", True),
            ("chat", True),
        }
        done = steno("notify", "test", "alice")
        assert done.returncode == 3
        assert done.stderr.startswith("steno: the receiver of alice did not accept the test notice: not delivered")
        assert (len(mail.taken), len(hook.taken)) == (1, 1)
    assert steno("notify", "test", "chat").stdout.endswith(", not signed (notify.chat.secret is not set)\n")
    done = steno("notify", "test", "bob")
    assert (done.returncode, done.stderr) == (
        2,
        "steno: there is no route bob: set notify.bob.url in steno.toml to its address\n",
    )
    assert "secret-path" not in steno("config").stdout + steno("notify").stdout


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ('url = "mailtoo://u:hunter2@x"', "apprise does not understand notify.bob.url (mailtoo://…)"),
        ('url = "hunter2"', "notify.bob.url is set ("),
        ('on = "end"', "notify.bob has no address: set notify.bob.url"),
        ('url = "http://x/"\nquiet = "22-25"', "notify.bob.quiet is '22-25'"),
        ('url = "http://x/"\non = "ends"', "notify.bob.on is 'ends'"),
    ],
)
def test_a_route_that_cannot_be_is_a_line_without_its_password(
    steno: Steno, home: Path, settings: str, error: str
) -> None:
    """`notify test`, `up` and `doctor` say so, before anything is recorded."""
    (home / "steno.toml").write_text(f"[notify.bob]\n{settings}\n")
    for words in (("notify", "test"), ("doctor",), ("record",)):
        done = steno(*words)
        assert done.returncode == 2, done.stdout
        assert error in done.stdout + done.stderr
        assert "hunter2" not in done.stdout + done.stderr
        assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_submitted_run_arrives_as_a_trace(steno: Steno, hook: WebhookServer) -> None:
    """With nothing set but the endpoint; the address is shown to nobody."""
    done = steno("submit", "--wait", "--name", "traced", "--", "true", STENO_OTLP_ENDPOINT=hook.url)
    assert done.returncode == 0, done.stderr
    (request,) = requests_of(hook)
    root, *phases = spans_of(request)
    answer = json.loads(steno("show", "traced", "--json").stdout)
    assert root.trace_id.hex() == answer["run_id"].replace("-", "")
    assert values(root.attributes)["steno.state"] == "succeeded"
    assert phases
    (notice,) = listed(steno)
    assert (notice["kind"], notice["state"], notice["text"]) == ("trace", "delivered", "Steno: trace of traced")
    assert "secret-path" not in steno("config", STENO_OTLP_ENDPOINT=hook.url).stdout
