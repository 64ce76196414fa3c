"""A run's output and a daemon's log: streamed, cut into lines, kept apart."""

import json
import logging
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.command_line import Steno, refused
from stenotest.gated_run import holding
from stenotest.outputs import keep_output
from stenotest.waiting import LIMIT_S, wait

from steno.cli.wiring.logging_setup import log_for_daemon, log_for_data
from steno.cli.wiring.run_output import dated_lines, last_lines, lines_of, without_frames
from steno.engine.errors import Conflict
from steno.engine.kernel.machine.framing import MARK
from steno.engine.state.state_machines import VM, VmTrigger
from steno.engine.state.states import VmState
from steno.events.clock import SystemClock
from steno.events.store.record import Record

FRAME = f'{MARK}{{"key": "k", "status": "CHECKED"}}'.encode()
SOME = st.lists(st.sampled_from([b"a", b"::", b"::steno::", MARK.encode(), b"\n", FRAME, b"\r"]), max_size=12)


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    places = sorted({min(cut, len(data)) for cut in cuts})
    for begin, end in zip([0, *places], [*places, len(data)], strict=True):
        yield data[begin:end]


@given(SOME, st.lists(st.integers(0, 200), max_size=6))
def test_frames_are_left_out_wherever_the_output_is_cut(parts: list[bytes], cuts: list[int]) -> None:
    """Every other byte comes, in order."""
    data = b"".join(parts)
    lines = data.split(b"\n")
    ends = [b"\n"] * (len(lines) - 1) + [b""]
    kept = b"".join(line + end for line, end in zip(lines, ends, strict=True) if not line.startswith(MARK.encode()))
    assert b"".join(without_frames(pieces(data, cuts))) == kept


@given(SOME, st.lists(st.integers(0, 200), max_size=6))
def test_lines_are_the_same_wherever_the_output_is_cut(parts: list[bytes], cuts: list[int]) -> None:
    data = b"".join(parts)
    assert list(lines_of(pieces(data, cuts))) == (data.removesuffix(b"\n").split(b"\n") if data else [])


def test_one_line_of_ten_megabytes_is_cut_in_linear_time() -> None:
    """In pieces of 4 KB; it took minutes where each piece copied what had come so far."""
    began = time.process_time()
    (line,) = lines_of(b"x" * 4096 for _ in range(2560))
    assert len(line) == 10 << 20
    assert list(last_lines([line, b"\nend"], 1, None)) == [b"end\n"]
    assert time.process_time() - began < 2


def test_dated_lines_begin_at_a_time_and_carry_theirs() -> None:
    """A line that came in two pieces has the time of the first."""
    pieces_told = [(1_000_000, b"old\nha"), (2_000_000, b"lf\nnew\n"), (3_000_000, FRAME + b"\nrest")]
    lines = list(dated_lines(pieces_told, since=2_000_000, stamped=True, framed=True, arrival=None))
    assert lines == [b"1970-01-01T00:00:02.000000Z new\n", b"1970-01-01T00:00:03.000000Z rest\n"]
    with pytest.raises(Conflict, match="does not say when"):
        list(dated_lines([(None, b"x\n")], since=None, stamped=True, framed=False, arrival=None))
    (arrived,) = dated_lines([(None, b"x\n")], since=None, stamped=True, framed=False, arrival=SystemClock())
    assert arrived.startswith(b"20")


@pytest.mark.slow
def test_submit_prints_the_output_as_it_comes(steno: Steno) -> None:
    """stdout has the output and the verdict, stderr the states; --quiet leaves the output out; JSON stays JSON."""
    done = steno("submit", "--wait", "--name", "says", "--", "echo one; echo two >&2; nosuchprogram")
    assert done.stdout.splitlines()[:2] == ["one", "two"]
    assert "failed · exit_nonzero · exit 127" in done.stdout
    why, cause = done.stdout.splitlines()[-2:]
    assert why.startswith("It exited 127: a command was not found; check its name")
    assert re.fullmatch("missing_file: “.*nosuchprogram.*not found”", cause)
    assert "says  failed" in done.stderr
    quiet = steno("submit", "--wait", "-q", "--name", "quiet", "--", "echo one")
    assert len(quiet.stdout.splitlines()) == 1
    assert json.loads(steno("submit", "--wait", "--json", "--", "echo one").stdout)["state"] == "succeeded"
    assert "add --wait" in refused(steno("submit", "-q", "--", "true"), 2)


@pytest.mark.slow
def test_the_line_that_explains_is_quoted_beside_a_recorder(
    steno: Steno, background: Callable[..., subprocess.Popen[str]]
) -> None:
    """The recorder has to have all of the output first, so that no earlier line is blamed."""
    background("record", "--provider", "local")
    wait(lambda: "RecorderStarted" in steno("events").stdout)
    done = steno("submit", "--wait", "--name", "beside", "--", "cat /nosuch")
    assert re.fullmatch("missing_file: “.*/nosuch.*”", done.stdout.splitlines()[-1])


def test_the_verdict_has_a_line_of_its_own(steno: Steno) -> None:
    """Also behind output that does not end its last line."""
    half, verdict = steno("submit", "--wait", "--name", "half", "--", "printf half").stdout.splitlines()
    assert (half, verdict.split()[0]) == ("half", "half")


@pytest.mark.slow
def test_several_runs_in_one_call(steno: Steno) -> None:
    """`logs` names each, JSON has a line for each, and an unknown run is a line of error."""
    for name in ("one", "two"):
        steno("submit", "--wait", "--name", name, "--", f"echo from {name}; exit 3")
    assert steno("logs", "one", "two").stdout == "==> one <==\nfrom one\n==> two <==\nfrom two\n"
    body = [json.loads(line) for line in steno("logs", "one", "two", "--json").stdout.splitlines()]
    assert body == [{"run": "one", "text": "from one"}, {"run": "two", "text": "from two"}]
    answer = [json.loads(line) for line in steno("show", "one", "two", "--json").stdout.splitlines()]
    assert [run["name"] for run in answer] == ["one", "two"]
    assert {run["why"] for run in answer} == {
        f"It exited 3; read its output: `steno logs {name} --tail 50`." for name in ("one", "two")
    }
    assert len(steno("explain", "one", "two", "--json").stdout.splitlines()) == 2
    assert len(steno("timeline", "two", "one", "--json").stdout.splitlines()) == 2
    assert steno("stop", "one", "two").stdout.count("had already ended") == 2
    assert "there is no run" in steno("show", "one", "nobody").stderr
    assert "does not say when output was written" in refused(steno("logs", "one", "--since", "10m"), 5)
    assert "in the future" in refused(steno("logs", "one", "--since", "2999-01-01T00:00:00Z"), 2)


@pytest.mark.slow
def test_runs_are_followed_together_with_their_names_and_states(
    steno: Steno, background: Callable[..., subprocess.Popen[str]], gate: Path
) -> None:
    """Each line as it comes, also of a run that waits for another; it ends with the last of them."""
    steno("submit", "--name", "late", "--", f"echo begins; {holding(gate)}; printf ends")
    steno("submit", "--name", "early", "--", "echo only")
    process = background("logs", "late", "early", "-f", out=subprocess.PIPE, err=subprocess.PIPE)
    assert process.stdout is not None
    first = {process.stdout.readline() for _ in range(2)}
    assert first == {"late | begins\n", "early | only\n"}
    gate.touch()
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (0, "late | ends\n")
    for name in ("late", "early"):
        assert f"{name}  ● succeeded" in err
    lines = [json.loads(line) for line in steno("logs", "late", "early", "-f", "--json").stdout.splitlines()]
    assert [line["text"] for line in lines if line["run"] == "late"] == ["begins", "ends"]
    assert "there is no run" in refused(steno("logs", "-f", "late", "nobody"), 4)


def test_logs_of_a_machine_that_is_gone_come_from_the_record(steno: Steno, record_file: Path) -> None:
    """With a sentence on stderr that says so; without a record of it, the provider's own answer."""
    for name in ("one", "two"):
        steno("submit", "--wait", "--name", name, "--", f"echo from {name}")
    assert "from the record" not in steno("logs", "one").stderr
    with Record.open(record_file, clock=SystemClock(), write=True) as record:
        run = next(event.data for event in record.read(types={"SubmitSucceeded"}))
        keep_output(record, run.run_id, run.provider_id, b"kept of ", b"one\n", b"lost\n", drop=[2])
    shutil.rmtree(record_file.with_name("record.db.local"))
    done = steno("logs", "one", "--tail", "2")
    assert done.stdout == "kept of one\n… 5 bytes were not kept …\n"
    assert done.stderr.startswith("steno: one: from the record, because there is no local run one")
    assert json.loads(steno("logs", "one", "--tail", "1", "--json", "--search", "of one").stdout or "{}") == {}
    (match,) = [json.loads(line) for line in steno("logs", "--search", "of one", "--json").stdout.splitlines()]
    assert match == {"run": "one", "run_id": run.run_id, "offset": 0, "text": "kept of one"}
    assert steno("logs", "one", "--search", "kept").stdout == "one:0: kept of one\n"
    assert "no recorded line contains 'kept'" in steno("logs", "two", "--search", "kept").stderr
    assert "leave -f" in refused(steno("logs", "-f", "one", "--search", "kept"), 2)


@pytest.mark.ci
@pytest.mark.slow
@pytest.mark.parametrize("lines", [50_000, pytest.param(500_000, marks=pytest.mark.long)])
def test_a_large_output_and_a_line_of_10_mb_come_through_whole(
    steno: Steno, home: Path, place: str, lines: int
) -> None:
    """Colours and binary: byte by byte into a pipe; the last lines and a terminal take no minute either."""
    script = "import sys\nw=sys.stdout.buffer.write\n"
    script += f"[w(b'\\x1b[31m%07d\\x1b[0m \\xff\\x00 ' % n + b'x'*80 + b'\\n') for n in range({lines})]\n"
    script += "w(b'y' * (10 << 20) + b'\\nlast\\n')\n"
    (home / "big.py").write_text(script)
    steno("submit", "--wait", "-q", "--name", "big", "--", f"{sys.executable} big.py")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "STENO_RECORD": place}
    call = [sys.executable, "-m", "steno.cli.main", "logs", "big"]
    whole = subprocess.run(call, env=environment, cwd=home, capture_output=True, check=True).stdout
    assert len(whole) == lines * (5 + 7 + 4 + 4 + 80 + 1) + (10 << 20) + 6
    tail = subprocess.run([*call, "-n", "2"], env=environment, cwd=home, capture_output=True, check=True).stdout
    assert tail.endswith(b"y\nlast\n")
    ours, theirs = pty.openpty()
    with subprocess.Popen([*call, "-n", "2000"], env=environment, cwd=home, stdout=theirs) as process:
        os.close(theirs)
        come = bytearray()
        try:
            while piece := os.read(ours, 1 << 16):
                come += piece
        except OSError:  # the other end is closed
            pass
        assert process.wait() == 0
    os.close(ours)
    assert come.endswith(b"last\r\n")
    assert b"\x00" not in come


@pytest.fixture(autouse=True)
def _root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = handlers, level


def test_a_daemon_logs_trouble_to_stderr_and_the_rest_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    """A supervisor that keeps the two apart sees trouble at once."""
    log_for_daemon()
    logging.getLogger("engine").info("polled %s", "dstack/main")
    logging.getLogger("engine").error("no answer")
    out, err = capsys.readouterr()
    assert out.endswith("INFO    polled dstack/main\n")
    assert err.endswith("ERROR   no answer\n")
    assert "\x1b" not in out + err


def test_errors_are_red_where_colour_is_wanted_and_stdout_never_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """FORCE_COLOR stands for a terminal here."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    log_for_daemon()
    logging.getLogger("engine").warning("slow")
    logging.getLogger("engine").error("no answer")
    out, err = capsys.readouterr()
    assert "\x1b" not in out
    assert "\x1b[31m" in err


def test_a_data_command_keeps_stdout_for_data(capsys: pytest.CaptureFixture[str]) -> None:
    """Only warnings and worse, only on stderr."""
    log_for_data()
    logging.getLogger("engine").info("polled")
    logging.getLogger("engine").warning("slow")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1


def test_an_exception_is_logged_as_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A traceback is nothing a user can act on."""
    log_for_daemon()
    try:
        raise ValueError("odd")
    except ValueError:
        logging.getLogger("engine").exception("could not read it")
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "could not read it (ValueError: odd)" in err


def test_a_daemon_can_log_json(capsys: pytest.CaptureFixture[str]) -> None:
    """A line is an object, the same on both streams."""
    log_for_daemon(json=True)
    logging.getLogger("engine").info("polled %s", "dstack/main")
    logging.getLogger("engine").error("no answer")
    out, err = capsys.readouterr()
    assert [list(json.loads(text)) for text in (out, err)] == [["at", "level", "message"]] * 2
    assert json.loads(err)["level"] == "error"


def test_a_signal_in_the_middle_of_a_step_is_no_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`transitions` swallows what is raised there; the loops of the commands ask for the signal again."""

    def terminated() -> None:
        raise SystemExit

    step = VM.live()
    log_for_daemon()
    monkeypatch.setattr(VM.machine, "finalize_event", [terminated])
    step(VmState.REQUESTED, VmTrigger.PROVISION)
    assert capsys.readouterr() == ("", "")


def test_explain_quotes_the_line_of_the_output_after_the_run_is_gone(steno: Steno, home: Path) -> None:
    """By its bytes in the recorded output: the provider has forgotten the run."""
    program = "python3 -c 'print(1); raise ValueError(chr(27) + str(42))'"
    steno("submit", "--wait", "--name", "bad", "--", program)
    output = steno("logs", "bad").stdout
    for folder in home.glob("*.local"):
        shutil.rmtree(folder)
    cause = json.loads(steno("explain", "bad", "--json").stdout)["output_cause"]
    assert (cause["cause"], cause["blame"], cause["missing"]) == ("python_error", "task", 0)
    assert output.encode()[cause["from"] : cause["to"]].decode() == cause["line"] == "ValueError: \x1b42"
    assert "“ValueError: \\x1b42”" in steno("explain", "bad").stdout
