"""`--known` beside `--at`: what was learnt of a moment later, on the command line."""

from pathlib import Path

import pytest
from stenotest.in_process import InProcess

from steno.cli.wiring.errors import code_of
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.projections.read_models.known_worlds import NotKnown

TRACES = Path(__file__).parent.parent / "traces"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> InProcess:
    """The record of a Slurm cluster: at position 225 a job has ended by accounting, and was polled as ended later."""
    home = tmp_path_factory.mktemp("home")
    polls = [poll for _, poll in open_trace(TRACES / "slurm-22.05" / "fanout_one_winner.jsonl.zst") if poll is not None]
    with Record.open(home / "record.db", write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        record.append_polls(polls)
    return InProcess(home)


def test_ps_and_show_name_what_is_known_otherwise(here: InProcess) -> None:
    """With --known and without; the other way round in words and in JSON."""
    then, now = (here("ps", "--all", "--at", 225, *words) for words in ((), ("--known", "now")))
    assert "98e5819b) was succeeded at that moment, as is known now; `--known now` shows it so" in then.stderr
    assert "98e5819b) was known as running at that moment; without --known it is shown so" in now.stderr
    run_id = here.json("ps", "--all", "--at", 225)["learnt"][0]["run_id"]
    learnt = {"run_id": run_id, "name": "fan", "then": "running", "known": "succeeded"}
    for words, state in (((), "running"), (("--known", "now"), "succeeded"), (("--known", 225), "running")):
        run = here.json("show", run_id, "--at", 225, *words)
        assert run["state"] == state
        assert run["learnt"] == ([] if words == ("--known", 225) else [learnt])
        assert here.json("timeline", run_id, "--at", 225, *words)["state"] == state
        assert here.json("explain", run_id, "--at", 225, *words)["run"]["state"] == state
    assert "learnt" not in here.json("show", run_id)
    assert "at that moment" not in here("ps", "--all").stderr


@pytest.mark.parametrize("command", [("ps",), ("sql", "select 1"), ("estimate",)], ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("--known", "now"), "give --at as well"),
        (("--at", 225, "--known", 3), "position 3 is before position 225"),
        (("--at", 225, "--known", "2020-01-01"), "nothing was known then"),
        (("--at", 225, "--known", 9999), "the record ends at position 415; 9999 is beyond it"),
        (("--at", 225, "--known", "2999-01-01"), "in the future"),
        (("--at", 225, "--known", "soon"), "'soon' is not a time"),
    ],
)
def test_what_was_never_known_is_one_line(
    here: InProcess, command: tuple[str, ...], words: tuple[object, ...], line: str
) -> None:
    done = here(*command, *words)
    code = code_of(done.exception) if isinstance(done.exception, NotKnown) else done.exit_code
    assert (code, done.stdout) == (2, "")
    assert line in done.stderr + str(done.exception)
