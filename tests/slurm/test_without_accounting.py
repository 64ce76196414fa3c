"""A cluster without accounting: only the controller, the job's output and the lines of its script are known."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stenolab.slurm import Cluster
from stenolab.steno import Steno
from stenotest.waiting import wait

JOB = ("--partition", "gpu-a6000", "--gpu", "a6000:1", "--memory", "500M")
CASES: dict[str, tuple[str, tuple[str, str, int | None]]] = {
    "good": ("true", ("succeeded", "exit_zero", 0)),
    "bad": ("exit 3", ("failed", "exit_nonzero", 3)),
    "segv": ("kill -SEGV $$", ("failed", "exit_nonzero", 139)),
    "cancel": ("sleep 300", ("stopped", "stopped_by_user", None)),
    "late": ("sleep 300", ("failed", "timed_out", None)),
}


@pytest.fixture
def bare(slurm_unaccounted: Cluster, tmp_path: Path) -> Iterator[Steno]:
    """Our command, told nothing about accounting."""
    steno = Steno(
        folder=tmp_path,
        STENO_PROVIDER="slurm",
        STENO_SLURM_FOLDER=str(slurm_unaccounted.folder / "jobs" / tmp_path.name),
        STENO_SLURM_CLUSTER="bare",
        STENO_SLURM_RATES="a6000=100,usd=0.01",
        **slurm_unaccounted.environment,
    )
    yield steno
    steno.close()
    slurm_unaccounted.run("scancel", "-u", "root", check=False)


def listed(cluster: Cluster, job: str) -> Callable[[], bool]:
    return lambda: job in cluster.run("squeue", "-h", "-t", "all", "-o", "%i").split()


@pytest.mark.ci
@pytest.mark.parametrize("watched", [True, pytest.param(False, marks=pytest.mark.long)], ids=["watched", "forgotten"])
def test_every_end_has_its_verdict(bare: Steno, slurm_unaccounted: Cluster, watched: bool) -> None:
    """While somebody polls, and where the controller forgot the jobs before the next poll."""
    ids: dict[str, str] = {}
    for name, (command, _) in CASES.items():
        limit = ("--max-duration", "1m") if name == "late" else ()
        done = bare("submit", "--json", "--name", name, *JOB, *limit, "--", command)
        ids[name] = str(done.json()["provider_id"])
    if watched:
        bare.follow("0.5")
    wait(lambda: slurm_unaccounted.begun(ids["cancel"]), what="the job's script")
    slurm_unaccounted.run("scancel", ids["cancel"])
    wait(lambda: not any(listed(slurm_unaccounted, job)() for job in ids.values()), what="the cluster")
    if not watched:
        bare.follow("0.5")
    for name, (_, expected) in CASES.items():
        run = bare.wait(name, "succeeded", "failed", "stopped")
        assert (run["state"], run["reason"], run["exit_status"]) == expected, name
    price = [vm["price_usd_per_hour"] for vm in bare.world().vms]
    assert not watched or "1.000000" in price


def test_what_no_source_tells_stays_open(bare: Steno, slurm_unaccounted: Cluster) -> None:
    """Its node is lost with it, and nobody polled: no verdict, and the reason says what is missing."""
    done = bare("submit", "--json", "--name", "lost", *JOB, "--", "true")
    job = str(done.json()["provider_id"])
    wait(lambda: not listed(slurm_unaccounted, job)(), what="the cluster")
    folder = next((slurm_unaccounted.folder / "jobs").glob(f"*/ends/{job}")).parent
    (folder / job).write_text("- 1795000000 run lost\n")  # as a script leaves it that was killed
    bare.follow("0.5")
    run = bare.wait("lost", "finishing")
    assert "its script wrote no end" in bare("show", "lost").out or run["state"] == "finishing"


def test_doctor_says_what_remains_unknown(bare: Steno) -> None:
    checks = {check["name"]: check for check in bare("doctor", "--json").json()["checks"]}
    assert checks["accounting"]["state"] == "warning"
    assert "this cluster has no accounting; runs are followed by scontrol" in checks["accounting"]["said"]
    assert "MinJobAge: 8 s" in checks["accounting"]["said"]
    assert "gpu-a6000 (2 × 4 a6000)" in checks["partitions"]["said"]


def test_accounting_that_shall_not_be_asked(bare: Steno) -> None:
    """`slurm.accounting` none: sacct is never called."""
    run = bare(
        "submit", "--wait", "--json", "--name", "none", *JOB, "--", "exit 9", code=1, STENO_SLURM_ACCOUNTING="none"
    )
    assert run.json()["exit_status"] == 9
    paths = {answer["path"].split("STENO_CLUSTER=")[1].split(" ", 1)[1] for answer in bare("polls", "--json").lines()}
    assert not any("sacct" in path for path in paths)
