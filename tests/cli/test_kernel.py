"""Kernels through the genuine command: submitted, followed, shown, judged again, compared."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stenotest.command_line import Steno, refused

from engine.kernel import definition
from engine.kernel.definition import definition_hash, shipped
from engine.kernel.rejudge import SUSPECTED
from engine.providers.readings import READINGS
from events import types
from events.clock import SystemClock
from events.store.record import Batch, Record

ADD = 'extern "C" void solution(const float* A, const float* B, float* C, size_t N) { %s }'
RIGHT = ADD % "for (size_t i = 0; i < N; ++i) C[i] = A[i] + B[i];"
WRONG = ADD % "for (size_t i = 0; i < N; ++i) C[i] = A[i] - B[i];"
SIZES = [{"sizes": {"N": 4096}, "seed": 1}]

Submit = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def submit(steno: Steno, home: Path, end_runs: Callable[[], None]) -> Iterator[Submit]:
    """`submit(source, *options)`: a kernel for vector-add at one small size, run here to its end."""
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler: apt-get install g++")
    problem = msgspec.to_builtins(shipped()["vector-add"])
    problem |= {"tests": SIZES, "benchmarks": [SIZES[0] | {"warm_ups": 1, "repeats": 5}]}
    (home / "small.json").write_text(json.dumps(problem))
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch).chmod(0o755)  # a kernel's programs have users of their own

        def run(source: str, *options: str, wait: bool = True) -> "subprocess.CompletedProcess[str]":
            (home / "add.cpp").write_text(source)
            words = ["add.cpp", "--problem", "vector-add", "--unsafe-here"]
            words += [] if "--problem-def" in options else ["--problem-def", "small.json"]
            return steno("kernel", "submit", *words, *(["--wait"] if wait else []), *options, TMPDIR=scratch)

        yield run
        end_runs()  # one that nobody waited for still writes to `scratch`


def statuses(text: str) -> list[str]:
    """The second word of each line that begins with a time."""
    return [line.split()[2] for line in text.splitlines() if line.lstrip().startswith("+")]


@pytest.mark.slow
def test_an_honest_kernel_is_followed_shown_and_ranked(steno: Steno, submit: Submit) -> None:
    """Exit 0; each command tells the same of it, with the evidence of its time."""
    done = submit(RIGHT)
    assert done.returncode == 0, done.stdout + done.stderr
    told = ["IN_QUEUE", "COMPILING", "CHECKING", "TEST_RESULT", "CHECKED", "BENCHMARKING", "BENCHMARK_RESULT"]
    assert statuses(done.stdout) == [*told, "BENCHMARKED"]

    board = json.loads(steno("kernel", "leaderboard", "--json").stdout)
    assert (board["suspected"], board["unproven"]) == ([], [])
    (only,) = board["boards"]
    assert (only["problem"], only["gpu"], only["dtype"]) == ("vector-add", "CPU", "float32")
    assert only["definition"] != "shipped", "a problem of one's own is not ranked beside the shipped one of its name"
    (place,) = only["places"]
    kernel = place["kernel"]
    assert (place["rank"], kernel["seed_proven"], kernel["now"], kernel["start"]) == (1, True, "BENCHMARKED", "cold")
    calls = len(place["time"]["digests"])
    assert calls == len(place["time"]["walls_ms"]) + 1, "the warm-up is compared too"

    shown = json.loads(steno("kernel", "show", kernel["name"], "--json").stdout)
    assert [step["status"] for step in shown["statuses"]] == [*told, "BENCHMARKED"]
    assert shown["judged"] == kernel
    assert "key" not in json.dumps(shown["statuses"])
    page = steno("kernel", "show", kernel["name"]).stdout
    assert "has the hash recorded before the run" in page
    assert f"{calls} calls compared, {calls} different results" in page
    assert kernel["name"] in steno("kernel", "leaderboard").stdout


@pytest.mark.slow
@pytest.mark.parametrize(("source", "end"), [(WRONG, "WRONG_ANSWER"), ("int nothing(", "COMPILE_ERROR")])
def test_a_kernel_that_fails_exits_1(steno: Steno, submit: Submit, source: str, end: str) -> None:
    """With --json the object that `show` prints, and the statuses on stderr."""
    done = submit(source, "--json")
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["statuses"][-1]["status"], found["judged"]["said"], found["judged"]["now"]) == (end, end, end)
    assert end in statuses(done.stderr)
    assert json.loads(steno("kernel", "leaderboard", "--json").stdout)["boards"] == []


@pytest.mark.slow
def test_without_waiting_it_says_who_follows_the_kernel(steno: Steno, submit: Submit) -> None:
    """The name on stdout; the story begins, and has no end before somebody reads what the kernel says."""
    done = submit(RIGHT, "--checker", wait=False)
    assert done.returncode == 0, done.stderr
    name = done.stdout.strip()
    assert f"`steno up` or `steno record` follows it, `steno kernel show {name}` shows it" in done.stderr
    shown = steno("kernel", "show", name, "--json")
    found = json.loads(shown.stdout)
    assert (found["name"], found["mark"]["endpoint"], found["judged"]) == (name, "checker", None)
    assert [step["status"] for step in found["statuses"]][:1] == ["IN_QUEUE"]
    assert "it has no final status yet" in shown.stderr
    given = json.loads(submit(RIGHT, "--json", wait=False).stdout)
    assert list(given) == ["run_id", "provider_id", "name", "provider", "project", "position", "state"]


def forge(record: str, run_id: str, **changes: Any) -> None:
    """Append the run's BENCHMARK_RESULT once more, with other facts."""
    with Record.open(record, write=True, shapes=READINGS.shape, clock=SystemClock()) as opened:
        said = [
            stored.data
            for stored in opened.read(stream=f"run/{run_id}", types={"TaskReported"})
            if isinstance(stored.data, types.TaskReported)
        ]
        frame = next(one for one in said if b"BENCHMARK_RESULT" in one.frame)
        facts = msgspec.json.decode(frame.frame) | changes
        forged = msgspec.structs.replace(frame, seq=len(said) + 1, frame=msgspec.json.encode(facts))
        opened.append_many([Batch(stream=f"run/{run_id}", events=(forged,), ids=("f" * 32,))])


@pytest.mark.slow
def test_a_forged_time_is_found_when_it_is_judged_again(steno: Steno, submit: Submit, place: str) -> None:
    """From the record alone; nothing is written, and the leaderboard follows."""
    done = submit(RIGHT)
    assert done.returncode == 0, done.stdout + done.stderr
    before = steno("kernel", "rejudge")
    assert (before.returncode, before.stdout) == (0, "1 kernel judged again, 0 results changed\n")

    (run,) = json.loads(steno("ps", "--json").stdout)["runs"]
    forge(place, run["run_id"], times_ms=[1e-9], walls_ms=[0.1], median_ms=0.0)
    positions = json.loads(steno("ps", "--json").stdout)["position"]
    after = steno("kernel", "rejudge", run["name"])
    assert after.returncode == 1
    assert "1 kernel judged again, 1 result changed" in after.stdout
    assert SUSPECTED in after.stdout
    assert "less than this GPU can do it in" in after.stdout
    assert json.loads(steno("ps", "--json").stdout)["position"] == positions
    assert steno("kernel", "rejudge", "--since", "2099-01-01").stdout == "0 kernels judged again, 0 results changed\n"

    board = json.loads(steno("kernel", "leaderboard", "--json").stdout)
    assert (board["boards"], [one["run_id"] for one in board["suspected"]]) == ([], [run["run_id"]])
    assert "Suspected of cheating" in steno("kernel", "leaderboard").stdout


def test_the_problems_are_listed_and_shown(steno: Steno) -> None:
    """With the function to define, and an example that can be submitted as it is."""
    listed = json.loads(steno("kernel", "problems", "--json").stdout)["problems"]
    assert [one["problem"] for one in listed] == list(shipped())
    text = steno("kernel", "problems").stdout
    assert 'extern "C" void solution(const float* A, const float* B, float* C, size_t N);' in text
    page = steno("kernel", "problems", "vector-add").stdout
    assert "N 1048576" in page
    assert "def reference(inputs, sizes, parameters):" in page
    assert steno("kernel", "problems", "vector-add", "--example").stdout.startswith("// C = A + B.")
    assert "there is leaky-relu, matmul, vector-add" in refused(steno("kernel", "problems", "nosuch"), 2)
    assert "NAME" in refused(steno("kernel", "problems", "--example"), 2)


@pytest.mark.parametrize(
    ("name", "data", "words", "code", "said"),
    [
        ("missing.cpp", None, (), 4, "missing.cpp: the file does not exist"),
        ("a.cpp", b" \n", (), 2, "a.cpp is empty"),
        ("a.cpp", b"\xff", (), 2, "a.cpp is not UTF-8: byte 0 is 0xff"),
        ("a.cpp", b"x" * 65537, (), 2, "a.cpp has more than 65536 bytes"),
        ("a.cpp", b"a\0b", (), 2, "a.cpp: it holds a zero byte"),
        ("a.txt", b"x", (), 2, "names no language: add --language"),
        ("a.sh", b"x", (), 6, "apt-get install docker.io"),
        ("a.py", b"x", ("--gpu", "H200"), 2, "--gpu: "),
        ("a.hip", b"x", ("--gpu", "H100"), 2, "--gpu: hip is for MI300X"),
        ("a.hip", b"x", ("--language", "basic"), 2, "--language: "),
        ("a.hip", b"x", ("--dtype", "int4"), 2, "--dtype: "),
        ("a.hip", b"x", ("--problem-def", "a.hip"), 2, "a.hip: it is not valid JSON"),
        ("a.hip", b"x", (), 6, "apt-get install docker.io"),
        ("a.hip", b"x", ("--provider", "slurm", "--unsafe-here"), 6, "slurm cannot run kernels: its tasks have no"),
    ],
)
def test_what_is_wrong_with_a_submission_is_one_line(
    steno: Steno, home: Path, name: str, data: bytes | None, words: tuple[str, ...], code: int, said: str
) -> None:
    """It names the file or the option, and nothing is in the record."""
    if data is not None:
        (home / name).write_bytes(data)
    done = steno("kernel", "submit", name, "--problem", "vector-add", *words, DOCKER_HOST="unix:///nowhere")
    assert said in refused(done, code)
    assert not (home / "record.db").exists()


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
@pytest.mark.parametrize("form", ["folder", "zip", "gztar"])
def test_a_kernel_solves_a_problem_of_ones_own(steno: Steno, submit: Submit, package: Path, form: str) -> None:
    """Given as a folder or an archive of it; the record has the hash of the problem, the same for each."""
    path = str(package) if form == "folder" else shutil.make_archive(str(package), form, package.parent, package.name)
    done = submit(RIGHT, "--checker", "--problem-def", path, "--json")
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
    found = json.loads(steno("kernel", "problems", "sums/", "--json").stdout)
    assert (found["problem"], found["problem_def"]["description"]) == ("sums", "Sums of *two*.")
    (package / "reference.py").write_text("def reference(")
    assert "sums.reference.python: it is not valid Python" in refused(steno("kernel", "problems", "sums"), 2)
    (package / "reference.py").unlink()
    assert "sums has no reference: add reference.py" in refused(steno("kernel", "problems", "sums"), 2)
    (home / "a.hip").write_text("x")
    words = ("a.hip", "--problem", "sums", "--problem-def")
    assert "sums has no reference: add reference.py" in refused(steno("kernel", "submit", *words, "sums"), 2)
    (home / "sums.zip").write_bytes(b"PK\x03\x04")
    assert "sums.zip is not a readable archive" in refused(steno("kernel", "submit", *words, "sums.zip"), 2)
    assert "nowhere: the file does not exist" in refused(steno("kernel", "submit", *words, "nowhere"), 4)
    assert not (home / "record.db").exists()


@pytest.mark.slow
def test_a_run_that_is_not_a_kernel_is_refused(steno: Steno) -> None:
    """With the command that shows it."""
    assert steno("submit", "--name", "plain", "--wait", "--", "true").returncode == 0
    assert "plain is not a kernel; `steno show plain`" in refused(steno("kernel", "show", "plain"), 4)
    assert "plain is not a kernel" in refused(steno("kernel", "rejudge", "plain"), 4)
    assert steno("kernel", "rejudge").stdout == "0 kernels judged again, 0 results changed\n"
    assert "no times" in steno("kernel", "leaderboard").stderr
