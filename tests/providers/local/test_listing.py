"""The answers of polls of this machine, and how the engine reads them."""

from pathlib import Path

import msgspec
import pytest
from stenotest.dstack_history import START

from steno.engine.errors import ProviderError
from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers import registry
from steno.engine.providers.local import listing, reading, state
from steno.engine.providers.local.durable import write_json
from steno.engine.providers.local.state import read_state
from steno.engine.providers.registry import READINGS
from steno.engine.state.reading import Listing, Scope
from steno.events.poll import Poll
from steno.projections.answers.evidence import quote

READING = registry.kind("local").reading()
ASKED = Scope(provider="local", source="local/here", listing=Listing.RUNS)
DONE = ("ended", "exited", 0)


def ids(poll) -> list[str]:
    return [item["id"] for item in msgspec.json.decode(poll.body)]


def ended(machine, number: int) -> list[str]:
    """That many runs that ended long ago, oldest first, as files only."""
    made = []
    for count in range(1, number + 1):
        run_id, at = f"old-{count:05}", START + count
        folder = machine.state / run_id
        folder.mkdir(parents=True)
        write_json(
            folder / "accepted.json",
            {
                "run_id": run_id,
                "name": run_id,
                "user": "me",
                "at": at,
                "argv": ["/bin/sh", "-c", "true"],
                "folder": "/",
                "max_duration": None,
                "grace": 10,
                "ignored": [],
                "configuration": {"commands": ["true"]},
            },
        )
        write_json(folder / "started.json", {"at": at, "supervisor": 1})
        write_json(
            folder / "ended.json", {"reason": "done_by_runner", "exit_status": 0, "message": "exited (0)", "at": at}
        )
        made.append(run_id)
    return made


def test_nothing_submitted_is_an_answer(machine) -> None:
    """An empty machine is not a failure, and a poll makes no folder."""
    poll = machine.poll()
    assert (poll.answered, poll.complete, poll.body, poll.status) == (True, True, b"[]", 200)
    assert not machine.state.exists()


def test_a_run_is_told_in_words_the_reading_knows(machine) -> None:
    """Every state of a run reads as facts, without drift."""
    run_id = machine.submit(machine.gated, name="mine", env={"KEY": "hidden"})

    def facts():
        (item,) = msgspec.json.decode(machine.poll().body, type=list[msgspec.Raw])
        return READING.runs(bytes(item), ASKED)[0]

    running = facts()
    assert (running.provider_id, running.name, running.project, running.finite) == (run_id, "mine", "here", True)
    assert (running.status, running.jobs[0].newest.status, running.drift) == ("running", "running", ())
    machine.open()
    assert machine.end(run_id) == DONE
    done = facts()
    job = done.jobs[0].newest
    assert (done.status, done.reason, job.exit_status) == (job.status, job.reason, done.latest_exit_status) == DONE
    assert (done.drift, done.submitted_at) == ((), running.submitted_at)
    assert done.submitted_at <= job.finished_at
    assert done.latest_exit_status == job.exit_status


def test_a_run_started_when_its_command_did_and_not_at_the_first_poll(machine) -> None:
    """Nobody looks until the command has written its own times: they lie within those of the attempt."""
    run_id = machine.submit("date +%s%6N", "sleep 0.3", "date +%s%6N")
    first, last = map(int, machine.output(run_id).split())
    machine.end(run_id)
    (item,) = msgspec.json.decode(machine.poll().body, type=list[msgspec.Raw])
    facts = READING.runs(bytes(item), ASKED)[0]
    attempt = facts.jobs[0].newest
    assert facts.submitted_at <= attempt.started_at <= first < last <= attempt.finished_at


def test_the_question_reads_as_an_unfiltered_list_of_this_source(machine) -> None:
    """A trace of these polls is routed to the same source as live polls."""
    poll = machine.poll()
    scope = READINGS.scope(poll.path, poll.req)
    assert scope.source == poll.source == "local/here"
    assert (scope.endpoint, scope.filtered, scope.page_after) == ("runs", False, None)
    assert scope.limit > 100


def test_an_unchanged_machine_gives_an_unchanged_answer(machine) -> None:
    """Nothing in the listing moves by itself, so that a poll without news stores nothing."""
    machine.submit("sleep 600")
    machine.end(machine.submit("true"))
    assert machine.poll().body == machine.poll().body


def test_the_history_is_told_once_and_then_its_end(machine) -> None:
    """The first answer has everything, later answers the newest hundred, the active and the followed runs."""
    runs = ended(machine, 150)
    first = machine.poll()
    assert (ids(first), first.complete) == (runs[::-1], True)
    active = machine.submit("sleep 600")
    later, _ = machine.provider.poll((runs[3],), since=None)
    assert ids(later) == [active, *runs[:49:-1], runs[3]]
    assert not later.complete
    assert READINGS.scope(later.path, later.req).limit <= len(ids(later))
    whole, _ = machine.provider.poll(("vanished",), since=None)
    assert whole.complete
    assert ids(whole) == [active, *runs[::-1]]


def test_a_first_contact_can_be_bounded(machine) -> None:
    """`since` leaves older ended runs out, unless they are followed; such an answer proves no absence."""
    runs = ended(machine, 10)
    poll, _ = machine.provider.poll((runs[0],), since=START + 8)
    assert ids(poll) == [runs[9], runs[8], runs[7], runs[0]]
    assert not poll.complete


def test_a_folder_that_cannot_be_read_is_a_failed_poll(machine) -> None:
    """It says why, and proves nothing."""
    machine.state.write_text("a file")
    poll = machine.poll()
    assert (poll.answered, poll.status, poll.body) == (False, None, None)
    assert poll.error == f"cannot read {machine.state}: Not a directory"


def test_a_damaged_run_does_not_hide_the_others(machine) -> None:
    """But the answer is not complete, so nobody is thought to be gone."""
    runs = ended(machine, 2)
    (machine.state / runs[0] / "ended.json").write_text('{"reason":')
    poll = machine.poll()
    assert ids(poll) == [runs[1]]
    assert poll.answered
    assert not poll.complete
    with pytest.raises(ProviderError, match=r"ended.json is damaged .* move its folder away"):
        machine.provider.logs(runs[0], "", follow=False)


def test_no_secret_is_on_the_disk_or_in_the_process_list(machine) -> None:
    """Values of `env` go through a pipe into the command's environment, and nowhere else."""
    secret = "correct-horse-battery-staple"
    run_id = machine.submit(
        'test -n "$KEY"', "sleep 600", env={"KEY": secret}, registry_auth={"username": "me", "password": secret}
    )
    supervisor = machine.supervisor(run_id)
    written = {path: path.read_bytes() for path in machine.state.rglob("*") if path.is_file()}
    assert len(written) >= 5
    assert not [path for path, text in written.items() if secret.encode() in text]
    assert secret.encode() not in (machine.poll().body or b"")
    assert machine.item(run_id)["task"]["env"] == {"KEY": None}
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert secret.encode() not in line.read_bytes()
        except OSError:
            continue
    assert secret.encode() not in Path(f"/proc/{supervisor}/environ").read_bytes()


def test_what_this_machine_ignores_is_named(machine) -> None:
    """A GPU is asked for and not given: the run says so. Tags are labels, which limits count."""
    task = {"resources": {"gpu": "MI300X:1"}, "image": "rocm/dev", "backends": ["hotaisle"]}
    run_id = machine.submit("true", **task, tags={"team": "vision"})
    assert machine.item(run_id)["ignored"] == ["backends", "image", "resources"]


def test_a_run_that_has_ended_is_read_once(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """So a listing of many runs is quick: some 15 ms for a hundred at first, and 1 ms afterwards."""
    read = []

    def counted(folder: Path) -> object:
        read.append(folder.name)
        return read_state(folder)

    monkeypatch.setattr(listing, "read_state", counted)
    runs = ended(machine, 100)
    active = machine.submit("sleep 600")
    machine.poll()
    assert sorted(read) == sorted([*runs, active])
    read.clear()
    machine.poll()
    assert read == [active]


@pytest.mark.parametrize("reason", sorted({*reading.CAUSES, *state._FORMER}))
def test_every_end_reads_as_a_known_word(machine, reason: str) -> None:
    """Also the ends that are hard to bring about, and those that older versions wrote."""
    (run_id,) = ended(machine, 1)
    write_json(
        machine.state / run_id / "ended.json", {"reason": reason, "exit_status": None, "message": "", "at": START}
    )
    (item,) = msgspec.json.decode(machine.poll().body, type=list[msgspec.Raw])
    (facts,) = READING.runs(bytes(item), ASKED)
    assert facts.drift == ()
    assert facts.reason == facts.jobs[0].newest.reason == state._FORMER.get(reason, reason)
    assert (facts.status, facts.final) == ("ended", True)


@pytest.mark.parametrize("path", [reading.RUNS, reading.MACHINES])
def test_an_odd_answer_is_named_and_read_no_further(path: str) -> None:
    """A trace or a record of somebody else: nothing raises, whatever is in it."""
    for body in (b"[1]", b'[{"id": 5}]', b'[{"id": "a"}]', b"{}", b'"text"', b"[]"):
        poll = Poll(source="local/x", path=path, started_at=1, observed_at=2, status=200, body=body, answered=True)
        tick = PollReader(READINGS).read(1, poll)
        assert (tick.runs, tick.vms) == ((), ())
        assert quote(poll, 1, "a").fields == ()
    for req in (b"null", b"[]", b'{"host": 3}', b"{"):
        assert READINGS.scope(path, req).provider == "local"
    assert READING.costs(b"[]") == {}
