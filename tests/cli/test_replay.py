"""Traces: written, exported, imported and replayed, broken lines and odd limits included."""

import json
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from stenotest.command_line import Steno, refused
from stenotest.dstack_history import DstackHistory, single
from stenotest.event_world import HANDED, OURS, TAKEN, VM, intended, marked, requested
from stenotest.machines import HOST, machine_item
from stenotest.records import temporary_record

from steno.cli.program import steno
from steno.cli.wiring.app import App
from steno.cli.wiring.files import TraceFile, trace_reading
from steno.engine.providers.registry import READINGS
from steno.events.poll import Poll
from steno.events.store.record import Batch
from steno.events.traces.trace import read_trace
from steno.events.types import Event


@pytest.fixture
def broken(home: Path) -> Path:
    """A trace of three polls whose second line is broken."""
    story = DstackHistory()
    for status in ("submitted", "running", "done"):
        story.listed(single(run=status)).wait(5)
    path = story.write(home / "broken.jsonl")
    lines = path.read_text("utf-8").splitlines()
    path.write_text("\n".join([lines[0], lines[1][:40], lines[2], ""]), encoding="utf-8")
    return path


@pytest.mark.parametrize("more", [[], ["--json"], ["--diff", "current"], ["--step"]])
def test_lenient_says_how_many_lines_it_left_out(steno: Steno, broken: Path, more: list[str]) -> None:
    """On stderr, once, with the number of the first."""
    assert "line 2" in refused(steno("replay", broken, *more), 2)
    done = steno("replay", broken, "--lenient", *more)
    assert done.returncode == 0
    assert done.stderr == "steno: 1 broken line skipped: line 2\n"
    assert done.stdout


def test_a_walk_compares_nothing(steno: Steno, broken: Path) -> None:
    """Two flags of which one would be ignored are refused."""
    assert "--step" in refused(steno("replay", broken, "--lenient", "--step", "--diff", "2025-12-sdk"), 2)


def test_a_limit_beyond_every_position_is_no_limit(steno: Steno, home: Path) -> None:
    """For a record and for a trace."""
    trace = DstackHistory().listed(single(run="done")).write(home / "one.jsonl")
    assert steno("import", trace).returncode == 0
    for history in ([], [trace]):
        done = steno("replay", *history, "--until", "9" * 30, "--json")
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["runs"][0]["state"] == "succeeded"
    refused(steno("replay", "--until", "9" * 5000), 2)


def test_rule_sets_come_from_the_registry(steno: Steno, broken: Path) -> None:
    """Rule sets of every provider are listed with their summaries, and can be named; a wrong name lists them."""
    page = steno("replay", "--help").stdout
    for name in ("current", "2025-12-sdk-enum", "2026-02-rv"):
        assert f"\n  {name} " in page
    assert steno("replay", broken, "--lenient", "--rules", "2026-02-rv", "--json").returncode == 0
    assert "2026-02-rv" in refused(steno("replay", broken, "--diff", "2026"), 2)


def test_show_has_the_runs_anomalies(steno: Steno, home: Path) -> None:
    """They are kept under `run/<run id>`; a provider that contradicts itself is one."""
    story = DstackHistory()
    for status in ("done", "failed"):
        story.listed(single(run=status)).wait(5)
    assert steno("import", story.write(home / "odd.jsonl")).returncode == 0
    (run,) = json.loads(steno("ps", "--all", "--json").stdout)["runs"]
    (odd,) = json.loads(steno("show", run["run_id"], "--json").stdout)["anomalies"]
    assert (odd["kind"], odd["subject"]) == ("contradiction", f"run/{run['run_id']}")
    assert "contradiction" in steno("show", run["run_id"]).stdout


LEFT_OUT = {"RunRequested": 1, "VmStopIntended": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With `record.db`: a run that we requested, and a machine that we stopped when it was idle."""
    run, machine = marked(single("a", "running", "running")), machine_item()
    over = machine_item(status="terminated", finished=60, reason="terminated_by_user")
    with temporary_record(tmp_path, shapes=READINGS.shape) as record:

        def tell(stream: str, *events: Event) -> None:
            record.append_many([Batch(stream, events)])

        def look(story: DstackHistory) -> None:
            record.append_polls([poll for _, poll in story.polls() if poll is not None])

        tell(f"run/{OURS}", requested(), HANDED)
        look(DstackHistory(now=30).listed(run).machines(machine))
        tell(f"vm/{VM}", intended(), TAKEN)
        look(DstackHistory(now=60).listed(run).machines(over))
    assert machine["hostname"] == HOST
    return tmp_path


def steno_of(record: Path, *words: object) -> Result:
    env = {"STENO_RECORD": str(record), "HOME": str(record.parent), "NO_COLOR": "1", "COLUMNS": "200"}
    done = CliRunner(env=env).invoke(steno, [str(word) for word in words], obj=App())
    assert done.exit_code == 0, done.output
    return done


def test_the_command_and_the_import_say_what_a_trace_leaves_out(folder: Path) -> None:
    """The id of the run comes back by its mark; why the machine was stopped does not."""
    record, other, trace = folder / "record.db", folder / "other.db", folder / "trace.jsonl"
    line = "left out: 1 request, 1 stop of a machine: an import knows only what the providers said"
    assert line in steno_of(record, "export", "--trace", trace).output
    assert line in steno_of(record, "export", "--trace", "-").stderr
    assert json.loads(trace.read_text().splitlines()[-1]) == {"kind": "left_out", "events": LEFT_OUT}
    assert line in steno_of(other, "import", trace).output
    assert json.loads(steno_of(other, "import", trace, "--json").stdout)["left_out"] == LEFT_OUT
    (run,) = json.loads(steno_of(other, "ps", "--all", "--json").stdout)["runs"]
    (vm,) = json.loads(steno_of(other, "vms", "--all", "--json").stdout)["vms"]
    (before,) = json.loads(steno_of(record, "vms", "--all", "--json").stdout)["vms"]
    assert (run["run_id"], run["state"], run["archive"]) == (OURS, "running", "dstack/main")
    assert (before["reason"], vm["reason"]) == ("idle_timeout", "stopped_by_user")
    assert vm["cost_usd"] == before["cost_usd"]


def test_a_trace_of_polls_alone_leaves_nothing_out(folder: Path) -> None:
    """The export of an import adds nothing."""
    record, other, trace = folder / "record.db", folder / "other.db", folder / "trace.jsonl"
    steno_of(record, "export", "--trace", trace)
    steno_of(other, "import", trace)
    again = steno_of(other, "export", "--trace", trace, "--json")
    assert json.loads(again.stdout)["left_out"] == {}
    assert len(trace.read_text().splitlines()) == json.loads(again.stdout)["polls"]


@pytest.mark.parametrize(
    "line", ['{"kind":"left_out"}', '{"kind":"left_out","events":[1]}', '{"kind":"left_out","events":{"X":1}}']
)
def test_a_line_that_says_nothing_known_is_no_poll_and_no_error(folder: Path, line: str) -> None:
    trace = folder / "odd.jsonl"
    trace.write_text(line + "\n")
    assert "left out" not in steno_of(folder / "other.db", "import", trace).output


def poll(number: int) -> Poll:
    """An answered poll that can be told from others."""
    at = 1_763_600_000_000_000 + number * 1_000_000
    return Poll(
        source="dstack/main",
        path="/api/runs/list",
        req=b'{"project_name":"main"}',
        started_at=at,
        observed_at=at + 1000,
        status=200,
        body=b'[{"id":"%d"}]' % number,
        answered=True,
    )


def bodies(path: Path) -> list[bytes | None]:
    """The answers of a trace, in order."""
    return [poll_read.body for _, poll_read in read_trace(path, trace_reading()) if poll_read is not None]


@pytest.mark.parametrize("name", ["live.jsonl", "live.jsonl.zst"])
def test_a_trace_is_whole_after_every_poll_and_goes_on_later(tmp_path: Path, name: str) -> None:
    """It can be read while it is written, and a second recorder appends to it."""
    path = tmp_path / name
    with closing(TraceFile(path)) as first:
        first.write(poll(1))
        assert bodies(path) == [b'[{"id":"1"}]']
        first.write(poll(2))
    with closing(TraceFile(path)) as second:
        second.write(poll(3))
    assert bodies(path) == [b'[{"id":"1"}]', b'[{"id":"2"}]', b'[{"id":"3"}]']


def test_half_a_frame_of_a_killed_recorder_is_cut_off(tmp_path: Path) -> None:
    """Behind it nothing could be unpacked any more."""
    path = tmp_path / "live.jsonl.zst"
    for number in (1, 2):
        with closing(TraceFile(path)) as trace:
            trace.write(poll(number))
    path.write_bytes(path.read_bytes()[:-5])
    with closing(TraceFile(path)) as again:
        again.write(poll(3))
    assert bodies(path) == [b'[{"id":"1"}]', b'[{"id":"3"}]']


@pytest.mark.parametrize("half", [b'{"t": "2025', b"x" * 200_000])
def test_half_a_line_of_a_killed_recorder_is_cut_off(tmp_path: Path, half: bytes) -> None:
    """Its poll is in the record all the same."""
    path = tmp_path / "live.jsonl"
    with closing(TraceFile(path)) as trace:
        trace.write(poll(1))
    with path.open("ab") as file:
        file.write(half)
    with closing(TraceFile(path)) as again:
        again.write(poll(2))
    assert bodies(path) == [b'[{"id":"1"}]', b'[{"id":"2"}]']
