"""A solution that is a command: what it may print, how it ends, and what it gains by cheating."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stenotest.kernels import BRIEF, PATIENT, submission

if TYPE_CHECKING:
    from conftest import Judged
    from stenotest.kernels import Judgement

pytestmark = pytest.mark.slow

ADDS = """#!/usr/bin/env python3
import json, os, sys, time
case = json.load(sys.stdin)
a, b, n = case["inputs"]["A"], case["inputs"]["B"], case["sizes"]["N"]
c = [x + y for x, y in zip(a, b)]
%s
json.dump({"C": c}, sys.stdout)
"""


@pytest.fixture
def run(judged: Judged) -> Judged:
    def run(source: str, problem: str = "vector-add", **more: object) -> Judgement:
        job = {name: more.pop(name) for name in ("limits", "tests", "benchmarks") if name in more}
        wanted = {"language": "command", "gpu_type": "CPU", "endpoint": "checker"} | more
        return judged(submission(problem, solution_code=source, **wanted), **job)

    return run


def test_a_right_command_is_timed_with_its_evidence(run: Judged) -> None:
    """As any other language; nothing is compiled, and it says so. It may print one output as a list."""
    source = (ADDS % "").replace('{"C": c}', "c")
    said = run(source, endpoint="benchmark", problem_def=BRIEF, limits=PATIENT)
    assert (said.code, said.last["status"]) == (0, "BENCHMARKED"), said.output
    assert said.frames[0]["compiler"] == "none: a command runs as it is"
    found = said.frames[-2]
    assert len(found["times_ms"]) == len(found["walls_ms"]) == found["repeats"] >= 5
    assert len(set(found["digests"])) == found["repeats"] + found["warm_ups"]


def test_a_shell_runs_what_names_no_program(run: Judged) -> None:
    """And gets the parameters; a GPU of the machine may be asked for."""
    source = """exec python3 -c 'import json, sys
case = json.load(sys.stdin)
alpha = case["parameters"]["alpha"]
print(json.dumps([x if x > 0 else alpha * x for x in case["inputs"]["A"]]))'"""
    said = run(source, "leaky-relu", gpu_type="MI300X")
    assert (said.code, said.last["status"]) == (0, "CHECKED"), said.output


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "int32"])
def test_every_dtype_is_a_number_of_json(run: Judged, dtype: str) -> None:
    said = run(ADDS % "", dtype=dtype)
    assert (said.code, said.last["status"]) == (0, "CHECKED"), said.output


def test_a_wrong_answer_names_the_entry(run: Judged) -> None:
    said = run(ADDS % "if n == 1000: c[7] += 1")
    assert said.last["status"] == "WRONG_ANSWER", said.output
    assert said.last["message"].startswith("test 2: 1 of 1000 entries of C are wrong; entry 7")


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("exit 7", "the command exited with status 7"),
        ("kill -SEGV $$", "the command was ended by signal 11"),
        ("#!/nowhere/python\n", "the command cannot be started: No such file or directory"),
        ("echo garbage", "the command did not print JSON: "),
        ("echo '[[[[[1'", "the command did not print JSON: "),
        ("echo 7", "the command printed no list of C, not 1 entries"),
        ("echo '{}'", "the command printed no list of C, not 1 entries"),
        ("echo '[1, 2]'", "the command printed 2 entries of C, not 1 entries"),
        ("""echo '["one"]'""", "C has an entry that is not float32"),
        ("head -c 100000000 /dev/zero", "the command printed more than 65600 bytes"),
    ],
)
def test_what_is_no_answer_is_a_runtime_error_that_says_why(run: Judged, source: str, why: str) -> None:
    said = run(source)
    assert (said.code, said.statuses) == (1, ["COMPILING", "CHECKING", "RUNTIME_ERROR"]), said.output
    assert said.last["message"].startswith("test 1: ")
    assert why in said.last["message"]


def test_what_it_complains_of_is_output(run: Judged) -> None:
    said = run("echo cannot go on >&2; exit 3")
    assert b"| cannot go on" in said.output
    assert "cannot go on" in said.last["output"]


def test_a_command_that_hangs_is_ended(run: Judged) -> None:
    said = run("sleep 600", limits=PATIENT | {"case": 2})
    assert "did not end within 2 s" in said.last["message"], said.output


@pytest.mark.parametrize("started", ["sleep 600 &", "setsid sleep 600 >/dev/null 2>&1 &"])
def test_what_it_leaves_running_is_a_cheat(run: Judged, started: str) -> None:
    """A child could work between the calls."""
    said = run(f"python3 -c '{(ADDS % '').partition(chr(10))[2]}'\n{started}")
    assert said.last["status"] == "CHEATING_SUSPECTED", said.output
    assert "threads or processes that it started still run" in said.last["message"]


def test_what_it_remembers_of_the_call_before_is_a_cheat(run: Judged) -> None:
    """Files stay from call to call; inputs do not."""
    remembers = (
        "if n > 65537:\n  if os.path.exists('kept'): c = json.load(open('kept'))\n  json.dump(c, open('kept', 'w'))"
    )
    said = run(ADDS % remembers, endpoint="benchmark", problem_def=BRIEF, limits=PATIENT)
    assert said.last["status"] == "CHEATING_SUSPECTED", said.output
    assert "it gave the result of the call before, whose inputs were others" in said.last["message"]


def test_the_channel_is_closed_for_it(run: Judged) -> None:
    said = run("ls /proc/self/fd >&2; exit 1")
    assert said.last["output"].split()[:4] == ["0", "1", "2", "3"], said.output  # 3 is the folder that ls reads
    assert "4" not in said.last["output"].split()[:5]


def test_the_process_that_started_it_is_closed_to_it(run: Judged) -> None:
    """Its memory, and by its descriptors the channel."""
    said = run("for f in mem fd/3 fd/4; do (: </proc/$PPID/$f) 2>/dev/null && echo open $f >&2; done; exit 1")
    assert said.last["output"] == "the command exited with status 1", said.output


@pytest.mark.parametrize(
    "does", ["rm outputs.json; mkfifo outputs.json", "rm outputs.json; ln -s /dev/zero outputs.json"]
)
def test_the_file_it_prints_to_is_no_trap(run: Judged, does: str) -> None:
    """Reading it ends, by its bound or at the limit of the call."""
    said = run(does, limits=PATIENT | {"case": 2})
    assert said.last["status"] == "RUNTIME_ERROR", said.output
    assert any(why in said.last["message"] for why in ("did not end within 2 s", "printed more than 65600 bytes"))
