"""Nothing is cancelled without proof in that moment: a job id may be somebody else's by now."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stenolab.sites import SlurmSite
from stenolab.slurm import Cluster
from stenolab.steno import Steno
from stenotest.waiting import wait

from steno.engine.errors import Conflict
from steno.engine.providers.base import StopTarget
from steno.engine.providers.kind import CheckState
from steno.engine.providers.slurm.doctor import checkup
from steno.events.clock import SystemClock

JOB = ("--partition", "gpu-a6000", "--gpu", "a6000:1", "--memory", "500M")
CONFLICT = 5
OTHER = "games"


@pytest.fixture
def on_wrapping(slurm_wrapping: Cluster, tmp_path: Path) -> Iterator[Steno]:
    """Our command on a cluster whose ids come again."""
    folder = str(slurm_wrapping.folder / "jobs" / tmp_path.name)
    where = {"STENO_PROVIDER": "slurm", "STENO_SLURM_FOLDER": folder, "STENO_SLURM_CLUSTER": "lab"}
    steno = Steno(folder=tmp_path, **where, **slurm_wrapping.environment)
    yield steno
    steno.close()
    slurm_wrapping.run("scancel", "--user", "root")
    slurm_wrapping.run("scancel", "--user", OTHER)


def recycled(cluster: Cluster, job: str, *options: str) -> None:
    """Submit jobs until a job that goes on has that id, which an earlier job had."""

    def again() -> bool:
        words = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/tmp", *options)
        new = cluster.run(*words, "--wrap", "sleep 600").strip()
        if new != job:
            cluster.run("scancel", new)
        return new == job

    wait(again, what=f"the id {job} to come again", pause=0.2)


def state(cluster: Cluster, job: str) -> str:
    """The controller's word for it; "" once it has forgotten it."""
    return cluster.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%T", check=False).strip()


@pytest.mark.parametrize("options", [(f"--uid={OTHER}",), ("--job-name=mine",)], ids=["a stranger's", "ours by hand"])
def test_a_recycled_id_is_not_cancelled(on_wrapping: Steno, slurm_wrapping: Cluster, options: tuple[str, ...]) -> None:
    """Whoever asks, and when: with one clear line. Nor when the job of that id had been stopped once."""
    gone = on_wrapping("submit", "--json", "--name", "mine", *JOB, "--", "sleep 600").json()["provider_id"]
    slurm_wrapping.run("scancel", gone)
    wait(lambda: not state(slurm_wrapping, gone), what="the controller to forget it")
    recycled(slurm_wrapping, gone, *options)

    done = on_wrapping("stop", "mine", code=CONFLICT)

    owner = OTHER if options[0].startswith("--uid") else "root"
    assert len(done.err.splitlines()) == 1
    assert f"{gone} on this machine is a job" in done.err
    assert f"of {owner}, submitted 20" in done.err
    assert f"`scancel {gone}` there cancels it" in done.err
    assert state(slurm_wrapping, gone) in ("PENDING", "RUNNING")


@pytest.fixture
def site(slurm_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmSite]:
    """The provider itself."""
    site = SlurmSite(tmp_path, slurm_cluster, monkeypatch)
    yield site
    site.close()


@pytest.fixture
def tasks(slurm_cluster: Cluster) -> Callable[[str], dict[str, str]]:
    """The states of an array's tasks, or of the rest of them, as squeue lists them."""

    def listed(job: str) -> dict[str, str]:
        lines = slurm_cluster.run("squeue", "-h", "-t", "all", "-j", job, "-o", "%i|%T", check=False).splitlines()
        return dict(line.split("|") for line in lines)

    return listed


def test_an_array_of_200_is_cancelled_half_way(site: SlurmSite, tasks: Callable[[str], dict[str, str]]) -> None:
    """The tasks that run and those that wait, in one stop; those that have ended stay as they ended."""
    wanted = site.submission('[ "$SLURM_ARRAY_TASK_ID" -ge 8 ] && sleep 600', "exit 0", array="0-199", nodes=1)
    job = site.send(wanted)

    def half_way() -> bool:
        going = {task for task, word in tasks(job).items() if word not in ("COMPLETED", "PENDING")}
        return f"{job}_9" in going and not {f"{job}_{number}" for number in range(8)} & going

    wait(half_way, what="the array to be half-way")

    site.provider.stop(site.stopping(job, wanted.name, False))

    wait(lambda: not {"PENDING", "RUNNING"} & {*tasks(job).values()}, what="the array to end")


def test_a_task_that_waits_is_cancelled_alone(
    slurm_cluster: Cluster, site: SlurmSite, tasks: Callable[[str], dict[str, str]]
) -> None:
    """`scancel --user` of one such task cancels its whole array."""
    words = ("sbatch", "--parsable", "--output=/dev/null", "--array=0-99%1")
    job = slurm_cluster.run(*words, "--wrap", "sleep 600").strip()
    (submitted,) = {seen.facts.submitted_at for key, seen in site.look()[0].items() if key.startswith(f"{job}_")}

    site.provider.stop(StopTarget(provider_id=f"{job}_50", name="wrap", submitted_at=submitted))
    wait(lambda: "PENDING" not in tasks(f"{job}_50").values(), what="the task to be cancelled")
    assert "PENDING" in tasks(f"{job}_51").values()

    site.provider.stop(StopTarget(provider_id=job, name="wrap", submitted_at=submitted))
    wait(lambda: not {"PENDING", "RUNNING"} & {*tasks(job).values()}, what="the array to end")


def test_somebody_elses_job_is_cancelled_only_as_it_was_shown(slurm_cluster: Cluster, site: SlurmSite) -> None:
    """By its user and the Submit that the person saw."""
    job = slurm_cluster.run("sbatch", "--parsable", "--output=/dev/null", "--wrap", "sleep 600").strip()
    submitted = site.until(job, "queued", "running").facts.submitted_at
    for other in (
        StopTarget(provider_id=job, name="wrap"),
        StopTarget(provider_id=job, name="wrap", submitted_at=submitted - 1_000_000),
        StopTarget(provider_id=job, name="wrap", submitted_at=submitted, user=OTHER),
        StopTarget(provider_id=job, name="wrap", mark="01a3b0ce-0000-7000-8000-0123456789ab"),
    ):
        with pytest.raises(Conflict, match=f"^{job} on this machine is a job 'wrap' of root, submitted 20"):
            site.provider.stop(other)
    assert state(slurm_cluster, job) in ("PENDING", "RUNNING")

    site.provider.stop(StopTarget(provider_id=job, name="wrap", submitted_at=submitted, user="root"))
    wait(lambda: state(slurm_cluster, job) in ("", "CANCELLED"), what="it to end")


def test_a_site_that_rewrites_comments(slurm_cluster: Cluster, site: SlurmSite) -> None:
    """The script of the job, as the controller has it, carries the mark too; that of another run proves nothing.
    `doctor` reports it.
    """
    wanted, other = (site.submission("sleep 600") for _ in range(2))
    job, second = site.send(wanted), site.send(other)
    for ours in (job, second):
        slurm_cluster.run("scontrol", "update", f"JobId={ours}", "Comment=billed to physics")

    checks = {check.name: check for check in checkup(site.provider.site, SystemClock()).checks}
    assert checks["comments"].state is CheckState.WARNING
    assert "'billed to physics': this site rewrites comments" in checks["comments"].message
    with pytest.raises(Conflict):
        site.provider.stop(StopTarget(provider_id=second, name=other.name, mark=wanted.run_id))
    site.provider.stop(site.stopping(job, wanted.name, False))

    wait(lambda: state(slurm_cluster, job) in ("", "CANCELLED"), what="it to end")
    assert state(slurm_cluster, second) in ("PENDING", "RUNNING")  # the fixture ends it, by its script too
