"""A submission that is killed between the call and its answer is one job, found again by our mark."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from stenolab.slurm import Cluster
from stenolab.steno import Steno
from stenotest.waiting import wait

JOB = ("--partition", "gpu-a6000", "--gpu", "a6000:1", "--memory", "500M")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("cluster", "forgotten", "behind"),
    [
        pytest.param("slurm_cluster", False, False, id="it waits or runs"),
        pytest.param("slurm_cluster", True, False, id="the controller forgot it", marks=pytest.mark.long),
        pytest.param("slurm_cluster", True, True, id="the controller forgot it, accounting is behind"),
        pytest.param("slurm_unaccounted", False, False, id="it waits or runs-unaccounted", marks=pytest.mark.long),
        pytest.param(
            "slurm_unaccounted", True, False, id="the controller forgot it-unaccounted", marks=pytest.mark.long
        ),
    ],
)
def test_a_crash_between_the_call_and_its_answer(
    request: pytest.FixtureRequest, tmp_path: Path, cluster: str, forgotten: bool, behind: bool
) -> None:
    """Accounting has the command line of sbatch; where it does not know the job yet, or there is none, the job's own
    script wrote the run's id.
    """
    slurm: Cluster = request.getfixturevalue(cluster)
    tools = tmp_path / "tools"
    tools.mkdir()
    sbatch, sacct = (shutil.which(name, path=slurm.environment["PATH"]) for name in ("sbatch", "sacct"))
    (tools / "sbatch").write_text(f'#!/bin/sh\n{sbatch} "$@" >> {tmp_path}/answers; kill -9 $PPID\n')
    # The database on a busy day: a search by name does not find the job yet.
    (tools / "sacct").write_text(f'#!/bin/sh\ncase " $* " in *" --name "*) exit;; esac\nexec {sacct} "$@"\n')
    for tool in ("sbatch", *(["sacct"] if behind else [])):
        (tools / tool).chmod(0o755)
    folder = str(slurm.folder / "jobs" / tmp_path.name)
    where = {"STENO_PROVIDER": "slurm", "STENO_SLURM_FOLDER": folder, "STENO_SLURM_CLUSTER": "lab"}
    steno = Steno(folder=tmp_path, **where, **slurm.environment)
    name = f"once-{cluster.partition('_')[2]}-{'gone' if forgotten else 'there'}{'-late' * behind}"
    path = f"{tools}:{slurm.environment['PATH']}"
    command = "exit 6" if forgotten else "sleep 20; exit 6"
    steno("submit", "--name", name, *JOB, "--", command, code=-9, PATH=path)
    (job,) = (tmp_path / "answers").read_text().split()

    def gone() -> bool:
        return job not in slurm.run("squeue", "-h", "-t", "all", "-o", "%i").split()

    if forgotten:
        wait(gone, what="the controller to forget it")
    steno.follow("0.5", PATH=path)
    run = steno.wait(name, "failed", "succeeded", "stopped")
    steno.close()

    assert (run["provider_id"], run["state"], run["exit_status"]) == (job, "failed", 6)
    assert (tmp_path / "answers").read_text().split() == [job]


def test_a_submission_is_dated_by_the_cluster_just_before_it(on_slurm: Steno, slurm_cluster: Cluster) -> None:
    """Never after the Submit of its job: both times are whole seconds of the cluster's clock."""
    job = on_slurm("submit", "--json", "--name", "dated", *JOB, "--", "sleep 60").json()["provider_id"]
    (event,) = on_slurm.events("SubmitSucceeded")
    submit = slurm_cluster.run("env", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "-j", job, "-o", "%V")
    assert int(submit) - 30 <= event["data"]["submitted_at"] // 1_000_000 <= int(submit)


class Slow:
    """A cluster whose sbatch is slow, or loses its answer, where the test says so."""

    def __init__(self, steno: Steno, cluster: Cluster, folder: Path) -> None:
        self.steno, self.folder, tools = steno, folder, folder / "slow"
        self.modes, self.jobs = folder / "modes", folder / "modes" / "jobs"
        self.modes.mkdir()
        self.jobs.touch()
        tools.mkdir()
        (tools / "sbatch").symlink_to(SHIM)
        path = cluster.environment["PATH"]
        real = shutil.which("sbatch", path=path)
        self.environment = {"PATH": f"{tools}:{path}", "SHIM": str(self.modes), "SBATCH": str(real)}

    def submit(self, name: str, mode: str, *codes: int, **more: str) -> None:
        """Its command notes that it ran; the submission exits with one of these codes."""
        (self.modes / name).write_text(mode)
        command = f"echo {name} >> {self.folder}/ran"
        done = self.steno("submit", "--name", name, *JOB, "--", command, code=None, **self.environment, **more)
        done.done(done.code if done.code in codes else codes[0])

    def ran(self, jobs: int) -> tuple[list[str], list[str]]:
        """The commands that ran, and the reasons of other jobs than the requests', once at least that many were
        submitted and have ended.
        """
        self.steno.follow("1s", **self.environment)
        requests = [event["data"] for event in self.steno.events("RunRequested")]
        requested, names = ({request[key] for request in requests} for key in ("run_id", "name"))

        def over() -> list[dict[str, Any]] | None:
            submitted = set(self.jobs.read_text().split())
            runs = self.steno("replay", "--json").json()["runs"]
            ended = {run["provider_id"] for run in runs if run["finished_at"] is not None}
            return runs if len(submitted) >= jobs and submitted <= ended else None

        runs = self.steno.until(over, what="all jobs to end")
        ours = [run for run in runs if run["run_id"] in requested]
        assert {(run["state"], run["reason"]) for run in ours} == {("succeeded", "exit_zero")}
        others = [run["reason"] for run in runs if run["name"] in names and run not in ours]
        return sorted((self.folder / "ran").read_text().split()), others


SHIM = Path(__file__).parent / "cluster" / "sbatch-shim.sh"
KILLED, UNREACHABLE = -9, 3


@pytest.fixture
def slow(on_slurm: Steno, slurm_cluster: Cluster, tmp_path: Path) -> Slow:
    return Slow(on_slurm, slurm_cluster, tmp_path)


def test_a_lost_answer_is_no_refusal(slow: Slow) -> None:
    """Killed before and after the call, an answer that says it timed out, or none within our patience: one job each."""
    slow.submit("before", "before", KILLED)
    slow.submit("after", "after", KILLED)
    slow.submit("lost", "lost", UNREACHABLE)
    slow.submit("hangs", "hang:60", UNREACHABLE, 0, STENO_SLURM_TIMEOUT="5s")  # 0: found while the command waits
    assert slow.ran(jobs=4) == (["after", "before", "hangs", "lost"], [])


@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.long)])
def test_killed_around_a_slow_sbatch(slow: Slow, times: int) -> None:
    """The next process finds no job and submits once more; the first submission arrives 8 to 20 s after the kill. The
    job that claims the run second ends as its duplicate.
    """
    names = [f"late-{times}-{number}" for number in range(times)]
    for number, name in enumerate(names):
        slow.submit(name, f"late:{8 + 12 * number // max(1, times - 1)}", KILLED)
    ran, others = slow.ran(jobs=2 * times)
    assert ran == sorted(names)
    # A job that still waits when another has claimed its run is cancelled.
    assert set(others) <= {"duplicate", "stopped_by_user"}
    assert len(others) == len(slow.jobs.read_text().split()) - times


@pytest.mark.ci
def test_a_submission_that_was_given_up_runs_nothing(slow: Slow) -> None:
    """Killed during a slow sbatch, stopped before the job is there: the job arrives, and ends at once."""
    slow.submit("given-up", "late:12", KILLED)
    stopped = slow.steno("stop", "given-up", **slow.environment)
    assert not slow.jobs.read_text(), "the job is there already"
    assert "stopped" in stopped.out
    slow.steno.follow("1s", **slow.environment)

    def ended() -> dict[str, Any] | None:
        runs = slow.steno("replay", "--json").json()["runs"]
        late = (run for run in runs if run["name"] == "given-up" and run["reason"] == "duplicate")
        return next(late, None)

    job = slow.steno.until(ended, what="the late job to end")
    assert slow.jobs.read_text().split() == [job["provider_id"]]
    assert not (slow.folder / "ran").exists()
    (event,) = slow.steno.events("RunRequested")
    assert slow.steno.shown(event["data"]["run_id"])["state"] == "stopped"
