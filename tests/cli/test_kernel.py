"""Kernels through the genuine command: submitted, followed, shown, judged again, compared."""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stenotest import steno_process
from stenotest.command_line import Steno, refused
from stenotest.kernel_record import ToldTime, kernel_record
from stenotest.kernels import AT_ONCE
from stenotest.waiting import LIMIT_S

from steno.engine.kernel import definition
from steno.engine.kernel.definition import definition_hash, shipped
from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.clock import SystemClock
from steno.events.store.record import Batch, Record

ADD = 'extern "C" void solution(const float* A, const float* B, float* C, size_t N) { %s }'
RIGHT = ADD % "for (size_t i = 0; i < N; ++i) C[i] = A[i] + B[i];"
WRONG = ADD % "for (size_t i = 0; i < N; ++i) C[i] = A[i] - B[i];"
SIZES = [{"sizes": {"N": 4096}, "seed": 1}]

Submit = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def submit(environment: dict[str, str], home: Path, end_runs: Callable[[], None]) -> Iterator[Submit]:
    """`submit(source, *options)`: a kernel for vector-add at one small size, run here to its end."""
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler: apt-get install g++")
    problem = msgspec.to_builtins(shipped()["vector-add"])
    problem |= {"tests": SIZES, "benchmarks": [{"sizes": {"N": 262144}, "warm_ups": 1, "repeats": 5}]}
    (home / "small.json").write_text(json.dumps(problem))
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)  # a kernel's programs have users of their own

        def run(source: str, *options: str, wait: bool = True) -> "subprocess.CompletedProcess[str]":
            (home / "add.cpp").write_text(source)
            words = ["add.cpp", "--problem", "vector-add", "--unsafe-here"]
            words += [] if "--problem-def" in options else ["--problem-def", "small.json"]
            words = ["kernel", "submit", *words, *(["--wait"] if wait else []), *options]
            env = environment | {"TMPDIR": scratch, "STENO_KERNEL_BATCH_MEMORY": "64MB"}
            return steno_process.run(words, program=AT_ONCE, cwd=home, env=env, timeout=LIMIT_S)

        yield run
        end_runs()  # a run that was not awaited still writes to `scratch`


def statuses(text: str) -> list[str]:
    """The first word in capitals of each line that begins with a time."""
    lines = [line for line in text.splitlines() if line.lstrip().startswith("+")]
    return [next(word for word in line.split() if word.isupper()) for line in lines]


def forge(record: str, run_id: str, **changes: Any) -> None:
    """Append the run's BENCHMARK_RESULT once more, with other facts."""
    with Record.open(record, write=True, shapes=READINGS.shape, clock=SystemClock()) as opened:
        reports = [
            stored.data
            for stored in opened.read(stream=f"run/{run_id}", types={"TaskReported"})
            if isinstance(stored.data, types.TaskReported)
        ]
        frame = next(report for report in reports if b"BENCHMARK_RESULT" in report.frame)
        facts = msgspec.json.decode(frame.frame) | changes
        forged = msgspec.structs.replace(frame, seq=len(reports) + 1, frame=msgspec.json.encode(facts))
        opened.append_many([Batch(stream=f"run/{run_id}", events=(forged,), ids=("f" * 32,))])


@pytest.mark.slow
def test_an_honest_kernel_is_followed_and_shown(steno: Steno, submit: Submit, place: str) -> None:
    """Exit 0; each command tells the same of it, with the evidence of its time. A forged time is found when it is
    judged again: from the record alone; nothing is written, and the leaderboard follows.
    """
    done = submit(RIGHT)
    assert done.returncode == 0, done.stdout + done.stderr
    expected = ["IN_QUEUE", "COMPILING", "CHECKING", "TEST_RESULT", "CHECKED", "BENCHMARKING", "BENCHMARK_RESULT"]
    assert statuses(done.stdout) == [*expected, "BENCHMARKED"]

    board = json.loads(steno("kernel", "leaderboard", "--json").stdout)
    assert (board["boards"], board["suspected"], board["unproven"]) == ([], [], []), (
        "processes of this host do not rank"
    )
    (run,) = json.loads(steno("ps", "--json").stdout)["runs"]
    answer = json.loads(steno("kernel", "show", run["name"], "--json").stdout)
    assert [step["status"] for step in answer["statuses"]] == [*expected, "BENCHMARKED"]
    kernel = answer["judged"]
    assert (kernel["isolated"], kernel["now"], kernel["start"]) == (False, "BENCHMARKED", "cold")
    assert "key" not in json.dumps(answer["statuses"])
    page = steno("kernel", "show", kernel["name"]).stdout
    (time,) = kernel["measured"]
    assert f"{len(time['batches'])} in all, every output compared" in page
    assert "signals stopped its processes" in page

    before = steno("kernel", "rejudge")
    assert (before.returncode, before.stdout) == (0, "1 kernel judged again, 0 results changed\n")

    forge(place, run["run_id"], median_ms=0.0)
    positions = json.loads(steno("ps", "--json").stdout)["position"]
    after = steno("kernel", "rejudge", run["name"])
    assert after.returncode == 1
    assert "1 kernel judged again, 1 result changed" in after.stdout
    assert "UNPROVEN" in after.stdout
    assert "its median_ms is" in after.stdout
    assert json.loads(steno("ps", "--json").stdout)["position"] == positions
    assert steno("kernel", "rejudge", "--since", "2099-01-01").stdout == "0 kernels judged again, 0 results changed\n"

    board = json.loads(steno("kernel", "leaderboard", "--json").stdout)
    assert (board["boards"], [run["run_id"] for run in board["unproven"]]) == ([], [run["run_id"]])
    assert "Not proven" in steno("kernel", "leaderboard").stdout


@pytest.mark.slow
@pytest.mark.parametrize(("source", "end"), [(WRONG, "WRONG_ANSWER"), ("int nothing(", "COMPILE_ERROR")])
def test_a_kernel_that_fails_exits_1(steno: Steno, submit: Submit, source: str, end: str) -> None:
    """With --json the object that `show` prints, and the statuses on stderr."""
    done = submit(source, "--json")
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    assert (answer["statuses"][-1]["status"], answer["judged"]["said"], answer["judged"]["now"]) == (end, end, end)
    assert end in statuses(done.stderr)
    assert json.loads(steno("kernel", "leaderboard", "--json").stdout)["boards"] == []


@pytest.mark.slow
def test_without_waiting_it_says_who_follows_the_kernel(steno: Steno, submit: Submit) -> None:
    """The name on stdout; the story begins, and has no end before somebody reads what the kernel says."""
    done = submit(RIGHT, "--checker", wait=False)
    assert done.returncode == 0, done.stderr
    name = done.stdout.strip()
    assert f"`steno up` or `steno record` follows it, `steno kernel show {name}` shows it" in done.stderr
    page = steno("kernel", "show", name, "--json")
    answer = json.loads(page.stdout)
    assert (answer["name"], answer["mark"]["endpoint"], answer["judged"]) == (name, "checker", None)
    assert [step["status"] for step in answer["statuses"]][:1] == ["IN_QUEUE"]
    assert "it has no final status yet" in page.stderr
    given = json.loads(submit(RIGHT, "--json", wait=False).stdout)
    assert list(given) == ["run_id", "provider_id", "name", "provider", "project", "position", "state"]


def test_the_problems_are_listed_and_shown(steno: Steno) -> None:
    """With the function to define, and an example that can be submitted unchanged."""
    listed = json.loads(steno("kernel", "problems", "--json").stdout)["problems"]
    assert [problem["problem"] for problem in listed] == list(shipped())
    text = steno("kernel", "problems").stdout
    assert 'extern "C" void solution(const float* A, const float* B, float* C, size_t N);' in text
    page = steno("kernel", "problems", "vector-add").stdout
    assert "N 4194304" in page
    assert "50.3 MB read and written, 4,194,304 operations; at least, by GPU:\n  MI210 0.03073 ms, " in page
    assert "const int* I," in steno("kernel", "problems", "gather").stdout
    assert "def reference(inputs, sizes, parameters):" in page
    assert steno("kernel", "problems", "vector-add", "--example").stdout.startswith("// C = A + B.")
    assert f"there is {', '.join(shipped())}" in refused(steno("kernel", "problems", "nosuch"), 2)
    assert "NAME" in refused(steno("kernel", "problems", "--example"), 2)


@pytest.mark.parametrize(
    ("name", "data", "words", "code", "line"),
    [
        ("missing.cpp", None, (), 4, "missing.cpp: the file does not exist"),
        ("a.cpp", b" \n", (), 2, "a.cpp is empty"),
        ("a.cpp", b"\xff", (), 2, "a.cpp is not UTF-8: byte 0 is 0xff"),
        ("a.cpp", b"x" * 65537, (), 2, "a.cpp has more than 65536 bytes"),
        ("a.cpp", b"a\0b", (), 2, "a.cpp: it holds a zero byte"),
        ("a.txt", b"x", (), 2, "names no language: add --language"),
        ("a.sh", b"x", (), 2, "names no language: add --language"),
        ("a.cpp", b"x", ("--gpu", "H200"), 2, "--gpu: "),
        ("a.hip", b"x", ("--gpu", "H100"), 2, "--gpu: hip is for MI300X"),
        ("a.hip", b"x", ("--language", "basic"), 2, "--language: "),
        ("a.hip", b"x", ("--dtype", "int4"), 2, "--dtype: "),
        ("a.hip", b"x", ("--problem-def", "a.hip"), 2, "a.hip: it is not valid JSON"),
        ("a.hip", b"x", (), 6, "apt-get install docker.io"),
        ("a.hip", b"x", ("--provider", "slurm", "--unsafe-here"), 6, "slurm cannot run kernels: its tasks have no"),
    ],
)
def test_what_is_wrong_with_a_submission_is_one_line(
    steno: Steno, home: Path, name: str, data: bytes | None, words: tuple[str, ...], code: int, line: str
) -> None:
    """It names the file or the option, and nothing is in the record."""
    if data is not None:
        (home / name).write_bytes(data)
    done = steno("kernel", "submit", name, "--problem", "vector-add", *words, DOCKER_HOST="unix:///nowhere")
    assert line in refused(done, code)
    assert not (home / "record.db").exists()


def test_without_numpy_ones_own_kernel_is_refused_in_one_line(home: Path, environment: dict[str, str]) -> None:
    """It says what to install. A job that was sent before says so too, as its last word."""
    (home / "sitecustomize.py").write_text("import sys\nsys.modules['numpy'] = None\n")
    (home / "a.cpp").write_text(RIGHT)

    def without(*words: str) -> "subprocess.CompletedProcess[str]":
        env = environment | {"PYTHONPATH": str(home), "STENO_KERNEL": "{}"}
        return subprocess.run(
            [sys.executable, "-m", *words], cwd=home, env=env, capture_output=True, text=True, check=False
        )

    words = ("steno.cli.main", "kernel", "submit", "a.cpp", "--problem", "vector-add", "--unsafe-here")
    assert "numpy is not installed" in refused(without(*words), 6)
    assert not (home / "record.db").exists()
    done = without("steno.engine.listener")
    frame = json.loads(done.stdout.removeprefix("::steno:: "))
    assert (done.returncode, done.stderr, frame["status"]) == (2, "", "ERROR")
    assert "numpy is not installed" in frame["message"]


def test_a_field_of_a_problem_of_ones_own_is_named(steno: Steno, home: Path) -> None:
    """Behind the name of its file."""
    problem = msgspec.to_builtins(shipped()["vector-add"])
    (home / "p.json").write_text(json.dumps(problem | {"tests": [{"sizes": {"M": 1}}]}))
    (home / "a.hip").write_text("x")
    done = steno("kernel", "submit", "a.hip", "--problem", "mine", "--problem-def", "p.json", "--unsafe-here")
    assert "p.json.tests[0].sizes: it is without N" in refused(done, 2)


@pytest.fixture
def package(home: Path) -> Path:
    """A problem as a folder in the home, its one test small."""
    folder = home / "sums"
    folder.mkdir()
    problem = msgspec.to_builtins(shipped()["vector-add"]) | {"tests": SIZES, "benchmarks": []}
    del problem["reference"]
    (folder / "problem.json").write_text(json.dumps(problem))
    (folder / "reference.py").write_text(shipped()["vector-add"].reference.python or "")
    (folder / "description.md").write_text("Sums of *two*.")
    return folder


@pytest.mark.slow
def test_a_kernel_solves_a_problem_of_ones_own(steno: Steno, submit: Submit, package: Path) -> None:
    """Given as a folder; the record has the hash of the problem."""
    done = submit(RIGHT, "--checker", "--problem-def", str(package), "--json")
    assert done.returncode == 0, done.stderr
    small = msgspec.structs.replace(
        shipped()["vector-add"], tests=(definition.Test(sizes={"N": 4096}, seed=1),), benchmarks=()
    )
    assert json.loads(done.stdout)["mark"]["definition_hash"] == definition_hash(small)


def test_a_problem_of_ones_own_is_shown_and_checked(steno: Steno, home: Path, package: Path) -> None:
    """As a shipped one, with how to submit a solution; what is wrong with it is one line that names the file."""
    page = steno("kernel", "problems", "sums").stdout
    assert "Sums of *two*." in page
    assert "def reference(inputs, sizes, parameters):" in page
    assert "steno kernel submit FILE --problem sums --problem-def sums --wait" in page
    answer = json.loads(steno("kernel", "problems", "sums/", "--json").stdout)
    assert (answer["problem"], answer["problem_def"]["description"]) == ("sums", "Sums of *two*.")
    (package / "reference.py").write_text("def reference(")
    assert "sums.reference.python: it is not valid Python" in refused(steno("kernel", "problems", "sums"), 2)
    (package / "reference.py").unlink()
    assert "sums has no reference: add reference.py" in refused(steno("kernel", "problems", "sums"), 2)
    (home / "a.hip").write_text("x")
    words = ("a.hip", "--problem", "sums", "--problem-def")
    assert "sums has no reference: add reference.py" in refused(steno("kernel", "submit", *words, "sums"), 2)
    assert "nowhere: the file does not exist" in refused(steno("kernel", "submit", *words, "nowhere"), 4)
    assert not (home / "record.db").exists()


def test_a_problem_that_a_null_solution_passes_is_refused(steno: Steno, package: Path) -> None:
    """By --check, in one line; a sound one is shown as before."""
    checked = steno("kernel", "problems", "sums", "--check")
    assert (checked.returncode, checked.stdout) == (0, steno("kernel", "problems", "sums").stdout), checked.stderr
    (package / "reference.py").write_text("def reference(inputs, sizes, parameters):\n    return [0] * sizes['N']\n")
    words = ("kernel", "problems", "sums", "--check", "--dtype")
    why = "sums: the problem is refused: a solution that gives zeros passes all its tests in bfloat16"
    assert why in refused(steno(*words, "bfloat16"), 2)
    assert "--dtype: 'half' is not one of" in refused(steno(*words, "half"), 2)


def test_the_best_times_stand_on_the_page_of_their_problem(steno: Steno, home: Path) -> None:
    """With their share of the GPU's limit, on each GPU; of this problem only."""
    times = [ToldTime(name="a", at=0, median=0.2), ToldTime(name="b", at=600, median=0.1, gpu="H100")]
    place = str(kernel_record(home / "times.db", [*times, ToldTime(name="slow", at=900, median=0.9)]))
    words = ("kernel", "problems", "vector-add", "--record", place)
    page = steno(*words).stdout
    assert "the best time on MI300X, float32, 4 processors\n  a: 0.2 ms, 1.2 % of the GPU's limit" in page
    assert "the best time on H100, float32, 4 processors\n  b: 0.1 ms, 2.4 % of the GPU's limit" in page
    answer = json.loads(steno(*words, "--json").stdout)
    assert [board["gpu"] for board in answer["best"]] == ["H100", "MI300X"]
    assert answer["work"][0]["floor_ms"]["MI300X"] == 0.009497
    assert "best time" not in steno("kernel", "problems", "matmul", "--record", place).stdout


@pytest.mark.slow
def test_a_run_that_is_not_a_kernel_is_refused(steno: Steno) -> None:
    """With the command that shows it."""
    assert steno("submit", "--name", "plain", "--wait", "--", "true").returncode == 0
    assert "plain is not a kernel; `steno show plain`" in refused(steno("kernel", "show", "plain"), 4)
    assert "plain is not a kernel" in refused(steno("kernel", "rejudge", "plain"), 4)
    assert steno("kernel", "rejudge").stdout == "0 kernels judged again, 0 results changed\n"
    assert "no times" in steno("kernel", "leaderboard").stderr
