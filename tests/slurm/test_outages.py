"""A real cluster whose daemons are stopped while its jobs end: no verdict before its record, and the right one then."""

import time
from pathlib import Path

import pytest
from stenolab.slurm import Cluster
from stenolab.slurm_slow import A6000, batch, once_more
from stenolab.steno import Steno
from stenotest.waiting import wait

ENDS = ("succeeded", "failed", "stopped")
OUTAGE_S = 6.0
"""How long a daemon stays away once the jobs have ended."""


@pytest.mark.ci
def test_slurmdbd_is_stopped_while_jobs_end(on_slurm: Steno, slurm_cluster: Cluster, tmp_path: Path) -> None:
    """Bugs 2, 5 and 7 of the first tool: a job the controller forgot, and accounting cannot say, is still to be told.

    After the outage accounting answers with old rows for seconds; the requeued job's first attempt is among them.
    """
    on_slurm.follow("1s")
    gate = tmp_path / "gate"
    until = f"until [ -e {gate} ]; do sleep 0.2; done"
    jobs = {
        "well": (f"{until}; exit 0", "succeeded", 0),
        "badly": (f"{until}; exit 3", "failed", 3),
        "twice": (once_more("exit 4"), "failed", 4),
    }
    for name, (end, _, _) in jobs.items():
        batch(slurm_cluster, name, end, "-p", "gpu-a6000")
    gone = batch(slurm_cluster, "cancelled", "sleep 300", "-p", "gpu-a6000")
    for name in (*jobs, "cancelled"):
        on_slurm.wait(name, "running")
    twice = slurm_cluster.run("squeue", "-h", "-n", "twice", "-o", "%i").strip()
    slurm_cluster.run("scontrol", "requeue", twice)
    slurm_cluster.stop("slurmdbd")
    gate.touch()
    slurm_cluster.run("scancel", gone)

    def forgotten() -> bool:
        judged = {name for name, run in on_slurm.world().runs.items() if run["state"] in ENDS} & {*jobs, "cancelled"}
        assert not judged, f"without a record of their end: {judged}"
        listed = slurm_cluster.run("squeue", "-h", "-t", "all", "-o", "%j").split()
        return not {*jobs, "cancelled"} & set(listed)

    wait(forgotten, what="the controller to forget them", pause=0.5)
    end = time.monotonic() + OUTAGE_S
    wait(lambda: forgotten() and time.monotonic() > end, what="the outage to last", pause=0.5)
    slurm_cluster.start_accounting()
    for name, (_, state, exit_status) in jobs.items():
        run = on_slurm.wait(name, *ENDS)
        assert (run["state"], run["exit_status"]) == (state, exit_status), name
    run = on_slurm.wait("cancelled", *ENDS)
    assert (run["state"], run["reason"]) == ("stopped", "stopped_by_user")
    world = on_slurm.world()
    assert world.runs["twice"]["attempts"] == 2
    assert not {anomaly["kind"] for anomaly in world.anomalies} & {"contradiction", "illegal_transition"}


def test_slurmctld_is_stopped_while_jobs_run(on_slurm: Steno, slurm_cluster: Cluster, tmp_path: Path) -> None:
    """We were blind, say the record and the submission that was refused; then every job gets its end."""
    on_slurm.follow("1s")
    gates = {"short": tmp_path / "short", "longer": tmp_path / "longer"}
    for name, end in (("short", 5), ("longer", 6)):
        batch(slurm_cluster, name, f"until [ -e {gates[name]} ]; do sleep 0.2; done; exit {end}", "-p", "gpu-a6000")
    for name in ("short", "longer"):
        on_slurm.wait(name, "running")
    slurm_cluster.stop("slurmctld")
    gates["short"].touch()
    try:
        refused = on_slurm("submit", "--name", "unheard", *A6000, "--", "true", code=None)
        assert refused.code == 3, refused.err
        assert "does not answer" in refused.err
        runs = on_slurm.world().runs
        assert runs["longer"]["state"] == "running"
        assert runs["short"]["state"] in ("running", "finishing", "failed")  # accounting may have heard of its end
    finally:
        slurm_cluster.start_controller()
    gates["longer"].touch()
    for name, exit_status in (("short", 5), ("longer", 6)):
        run = on_slurm.wait(name, *ENDS)
        assert (run["state"], run["exit_status"]) == ("failed", exit_status), name
    assert on_slurm.json("replay", on_slurm.record)["blind"]
