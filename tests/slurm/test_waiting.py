"""Jobs of a real cluster that wait: held, for another job, or for ever; and requests that Slurm refuses."""

from stenolab.slurm import Cluster
from stenolab.slurm_slow import batch
from stenolab.steno import Steno
from stenotest.waiting import wait

NEVER = {
    "too-much-time": (("-p", "gpu-a6000", "-t", "2-00:00:00"), "PartitionTimeLimit"),
    "too-many-nodes": (("-p", "gpu-a6000", "-N", "3"), "PartitionNodeLimit"),
    "too-large": (("-p", "gpu-a6000", "-c", "64"), "PartitionConfig"),
    "too-many-cpus": (("-p", "capped", "-c", "8"), "QOSMaxCpuPerJobLimit"),  # bug 1 of the first tool
}
"""Accepted by Slurm, then pending for ever: options, and Slurm's own reason."""


def test_a_job_that_never_runs_waits_and_says_why(on_slurm: Steno, slurm_cluster: Cluster) -> None:
    """It is neither lost nor failed, however long it waits."""
    on_slurm.follow("1s")
    for name, (options, _) in NEVER.items():
        batch(slurm_cluster, name, "true", *options)
    try:
        for name, (_, reason) in NEVER.items():
            wait(
                lambda name=name, reason=reason: name in on_slurm.world().runs and reason in on_slurm("show", name).out,
                what=f"{name} to say {reason}",
                pause=0.5,
            )
            assert on_slurm.world().runs[name]["state"] == "queued"
    finally:
        slurm_cluster.run("scancel", "-n", ",".join(NEVER))


def test_a_held_job_and_one_that_waits_for_it(on_slurm: Steno, slurm_cluster: Cluster) -> None:
    """Both wait, with the reason; released, one after the other succeeds."""
    on_slurm.follow("1s")
    held = batch(slurm_cluster, "held", "true", "-p", "gpu-a6000", "--hold")
    batch(slurm_cluster, "after-it", "true", "-p", "gpu-a6000", f"--dependency=afterok:{held}")
    for name in ("held", "after-it"):
        on_slurm.wait(name, "queued")
    assert "JobHeldUser" in on_slurm("show", "held").out
    assert "Dependency" in on_slurm("show", "after-it").out
    slurm_cluster.run("scontrol", "release", held)
    for name in ("held", "after-it"):
        run = on_slurm.wait(name, "succeeded", "failed", "stopped")
        assert (run["state"], run["exit_status"]) == ("succeeded", 0)


def test_a_job_that_would_run_into_maintenance_says_until_when(on_slurm: Steno, slurm_cluster: Cluster) -> None:
    """The time comes from the site's reservations, which are asked for only while a job waits for one."""
    on_slurm.follow("1s")
    where = "starttime=now+2hours", "duration=60", "nodes=node4", "flags=maint", "user=root"
    name = slurm_cluster.run("scontrol", "create", "reservation", *where).split()[-1]
    try:
        batch(slurm_cluster, "too-late", "true", "-p", "gpu-a40", "-t", "5:00:00")
        wait(
            lambda: "down for maintenance until" in on_slurm("show", "too-late", code=None).out,
            what="the reason",
        )
        assert "ask for less time: it has to end before" in on_slurm("show", "too-late").out
        wait(lambda: "expected to start by" in on_slurm("show", "too-late").out, what="Slurm's own estimate", pause=1)
        waits = on_slurm.json("show", "too-late")["waits"]
        starts_by = waits["starts_by"][:16].replace("T", " ")
        assert f"expected to start by {starts_by}Z" in on_slurm("explain", "too-late").out
        assert starts_by >= waits["why"].removeprefix("down for maintenance until ").removesuffix("Z")
    finally:
        slurm_cluster.run("scancel", "-n", "too-late")
        slurm_cluster.run("scontrol", "delete", f"ReservationName={name}")


def test_what_steno_asks_for_fits_the_limits_and_starts(on_slurm: Steno) -> None:
    """Bugs 1 and 6 of the first tool: a job asked for its part of a node, which its QOS may never have."""
    words = ("slurm", "run", "--partition", "capped", "--gpu", "1", "--time", "5m", "--name", "fits")
    ran = on_slurm(*words, "--json", "echo $SLURM_CPUS_PER_TASK CPUs")
    assert ran.json()["state"] == "succeeded", ran.err
    assert on_slurm("logs", "fits").out.strip() in ("1 CPUs", "2 CPUs")


def test_a_gap_that_is_too_short_for_a_job_takes_its_segments(on_slurm: Steno, slurm_cluster: Cluster) -> None:
    """Bug 8 of the first tool: the plan in segments was dropped beside a direct one of the same price and wait."""
    where = "starttime=now+150minutes", "duration=60", "nodes=node3", "flags=maint", "user=root"
    name = slurm_cluster.run("scontrol", "create", "reservation", *where).split()[-1]
    try:
        plan = on_slurm.json("slurm", "plan", "--type", "v100", "--time", "5h")
    finally:
        slurm_cluster.run("scontrol", "delete", f"ReservationName={name}")
    kinds = {way["kind"]: way for way in plan["strategies"]}
    assert kinds["checkpoint"]["minutes"] == 120
    assert "direct" in kinds
