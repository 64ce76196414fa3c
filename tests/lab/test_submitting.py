"""`steno submit` and its companions against genuine servers: exit codes, files, output, secrets."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from stenolab.lab import GPU, IMAGE, Gate, Lab
from stenolab.plugin import StenoAt
from stenolab.versions import NEWEST, OLDEST

pytestmark = pytest.mark.slow

SECRET = "hunter2-of-the-lab"


@pytest.mark.suffices(NEWEST)
def test_waiting_tells_how_it_ended(dstack: Lab, steno_at: StenoAt) -> None:
    """`submit --wait` exits 0 for success and 1 for anything else, in a project that has no fleet yet."""
    steno = steno_at(dstack, dstack.project())
    assert steno.submit("good", ["echo fine"], "--wait", "--json").json()["state"] == "succeeded"
    failed = steno.submit("bad", ["exit 9"], "--wait", "--json", code=1).json()
    assert (failed["state"], failed["exit_status"]) == ("failed", 9)


@pytest.mark.ci
@pytest.mark.suffices(OLDEST)
def test_several_at_once(dstack: Lab, steno_at: StenoAt) -> None:
    """Three `submit --wait` in one record take turns at the provider, and each reports its own run."""
    steno = steno_at(dstack, dstack.project())
    steno("submit", "--wait", "--provider", "local", "--", "true")  # the record is there
    codes = (0, 2, 0)
    with ThreadPoolExecutor(len(codes)) as users:
        outputs = list(
            users.map(lambda n: steno.submit(f"run-{n}", [f"exit {codes[n]}"], "--wait", code=None), range(3))
        )
    assert [answer.code for answer in outputs] == [0, 1, 0]
    verdicts = {run["name"]: run["exit_status"] for run in steno("ps", "--json").json()["runs"]}
    assert {name: verdicts[name] for name in ("run-0", "run-1", "run-2")} == {"run-0": 0, "run-1": 2, "run-2": 0}


def test_flags_make_a_task(dstack: Lab, steno_at: StenoAt) -> None:
    """A command after `--`, with the flags in dstack's words, is a task like any other."""
    steno = steno_at(dstack, dstack.project())
    flags = ("--image", IMAGE, "--gpu", GPU, "--env", "GREETING=hello", "--name", "by-flags", "--max-duration", "10m")
    steno("submit", "--wait", *flags, "--", "sh", "-c", "echo $GREETING world")
    assert "hello world" in steno("logs", "by-flags").out


@pytest.mark.ci
@pytest.mark.suffices(OLDEST)
def test_output_is_followed_to_its_end(dstack: Lab, steno_at: StenoAt) -> None:
    """`logs -f` begins while the run runs, prints every line once, in order, and ends with it."""
    project = dstack.project()
    steno = steno_at(dstack, project)
    steno.follow()
    gate = Gate(dstack, project)
    steno.submit(
        "talks", ["for i in 1 2 3; do echo line $i; done", gate.passed, "for i in 4 5 6; do echo line $i; done"]
    )
    dstack.wait_status(project, "talks", "running")
    logs = steno.start("logs", "talks", "-f")
    steno.until(lambda: "line 3" in logs.out, what="what is written while it runs")
    gate.open()
    output = logs.finish().done()
    assert [line for line in output.out.splitlines() if line] == [f"line {i}" for i in range(1, 7)]


@pytest.mark.ci
@pytest.mark.suffices(OLDEST)
def test_files_travel_with_the_task(dstack: Lab, steno_at: StenoAt) -> None:
    """`files:`, a single one and a folder, are there when the commands run."""
    steno = steno_at(dstack, dstack.project())
    (steno.work / "kernel.hip").write_text("__global__ void kernel() {}\n")
    (steno.work / "data" / "deep").mkdir(parents=True)
    (steno.work / "data" / "deep" / "numbers.txt").write_text("42\n")
    files = ["kernel.hip", "data:inputs"]
    steno.submit("with-files", ["cat kernel.hip inputs/deep/numbers.txt"], "--wait", files=files)
    assert steno("logs", "with-files").out.splitlines() == ["__global__ void kernel() {}", "42"]


def test_no_secret_is_kept(dstack: Lab, steno_at: StenoAt) -> None:
    """The value of an `env:` entry reaches the task, and neither record, vault, trace nor log."""
    steno = steno_at(dstack, dstack.project())
    controller = steno.follow("0.3", "--trace", "all.jsonl")
    steno.submit("secretive", ["test $TOKEN = " + SECRET[::-1] + "x || exit 3"], env={"TOKEN": SECRET})
    assert steno.wait("secretive", "failed")["exit_status"] == 3
    controller.interrupt()
    controller.finish()
    keepers = [path for path in steno.folder.rglob("*") if path.is_file() and not path.name.endswith(".dstack.yml")]
    assert keepers
    assert [path for path in keepers if SECRET.encode() in path.read_bytes()] == []


def test_nobody_to_ask(dstack: Lab, steno_at: StenoAt) -> None:
    """A wrong token is one line and exit 3; a project that is not there, one line and exit 4."""
    project = dstack.project()
    steno = steno_at(dstack, project)
    task = steno.task("never", ["true"])
    server = {"STENO_DSTACK_URL": dstack.url, "STENO_PROJECT": project, "STENO_DSTACK_TOKEN": dstack.token}
    wrong = steno("submit", "-f", task, code=3, **{**server, "STENO_DSTACK_TOKEN": "wrong"})
    missing = steno("submit", "-f", task, code=4, **{**server, "STENO_PROJECT": "nowhere"})
    for output in (wrong, missing):
        assert len(output.err.strip().splitlines()) == 1
    assert dstack.runs(project) == []


@pytest.mark.suffices(OLDEST)
def test_a_submission_must_fit_the_budget_in_force_and_that_of_its_shell(dstack: Lab, steno_at: StenoAt) -> None:
    """The smaller one decides. Nothing is requested that the recorder would refuse, and `steno budget` names both."""
    steno = steno_at(dstack, dstack.project())
    steno.follow(STENO_BUDGET="20")
    task = steno.task("day-long", ["true"])
    for shell, left in (("off", "$20.00"), ("10", "$10.00"), ("30", "$20.00")):
        assert f"left: {left}" in steno("submit", "-f", task, code=6, STENO_BUDGET=shell).err
    assert steno.json("ps", "--all")["runs"] == []
    budget = steno("budget", STENO_BUDGET="10")
    assert "$20.00" in budget.out
    assert "budget.total is 10 in this shell (STENO_BUDGET), and not in force in the record; a submission" in budget.err
