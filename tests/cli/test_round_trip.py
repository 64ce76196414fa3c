"""`steno export` and `steno import` of what Steno itself did: the ids come back, and what is left out is printed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from stenotest.machines import HOST, machine_item
from stenotest.records import temporary_record
from stenotest.story import Story, single
from stenotest.told import HANDED, OURS, TAKEN, VM, intended, marked, requested

from cli.program import steno
from cli.wiring.app import App
from engine.providers.readings import READINGS
from events.store.record import Batch
from events.types import Event

LEFT_OUT = {"RunRequested": 1, "VmStopIntended": 1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With `record.db`: a run that we requested, and a machine that we stopped when it was idle."""
    run, machine = marked(single("a", "running", "running")), machine_item()
    over = machine_item(status="terminated", finished=60, reason="terminated_by_user")
    with temporary_record(tmp_path, shapes=READINGS.shape) as record:

        def tell(stream: str, *events: Event) -> None:
            record.append_many([Batch(stream, events)])

        def look(story: Story) -> None:
            record.append_polls([poll for _, poll in story.polls() if poll is not None])

        tell(f"run/{OURS}", requested(), HANDED)
        look(Story(now=30).listed(run).machines(machine))
        tell(f"vm/{VM}", intended(), TAKEN)
        look(Story(now=60).listed(run).machines(over))
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
    """What an import wrote is exported without a word more."""
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
