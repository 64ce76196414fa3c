"""Habits of users of sbatch: the current folder, the variables of their shell, names that come again."""

import json
import os

import pytest
from stenolab.slurm import Cluster
from stenolab.sshd import SshServer
from stenolab.steno import Steno

JOB = ("--gpu", "a6000:1", "--memory", "500M")
A6000 = ("--partition", "gpu-a6000")


@pytest.mark.ci
def test_a_job_runs_in_the_current_folder(on_slurm: Steno) -> None:
    """The submitter's, as the request has it, whoever submits it later; a folder of the task wins, from there."""
    here = on_slurm.work
    (here / "data").mkdir()
    (here / "hello.sh").write_text("echo hello from $PWD\n")
    run = on_slurm("submit", "--wait", "--json", "--name", "here", *A6000, *JOB, "--", "bash hello.sh").json()
    assert on_slurm("logs", "here").out == f"hello from {here}\n"
    requests = on_slurm("events", "--stream", f"run/{run['run_id']}", "--type", "RunRequested", "--json").lines()
    assert requests[0]["data"]["configuration"]["working_dir"] == str(here)
    for folder, place in (("data", here / "data"), ("/tmp", "/tmp"), ("~", on_slurm.home)):
        task = {"type": "task", "name": "placed", "commands": ["pwd"], "working_dir": folder, "partition": "gpu-a6000"}
        (here / "task.yml").write_text(json.dumps({**task, "resources": {"memory": "200M"}}))
        run = on_slurm("submit", "--wait", "--json", "-f", "task.yml").json()
        assert on_slurm("logs", run["run_id"]).out == f"{place}\n"


def test_a_race_without_files_runs_in_the_current_folder_too(on_slurm: Steno) -> None:
    run = on_slurm("slurm", "run", "--json", *A6000, "--mem", "500M", "--time", "5m", "pwd").json()
    assert on_slurm("logs", run["run_id"]).out == f"{on_slurm.work}\n"


@pytest.mark.long
def test_a_folder_that_the_login_node_lacks_is_one_line(on_slurm: Steno, slurm_cluster: Cluster) -> None:
    """Over ssh the same path counts if it is the user's there; else the job runs in Steno's folder."""
    with SshServer.running(**slurm_cluster.environment) as login:
        far = {"STENO_SLURM_HOST": login.host, "PATH": login.path()}
        assert on_slurm("submit", "--name", "same", *A6000, *JOB, "--", "pwd", **far).err.count("no folder") == 0
        os.chown(on_slurm.work, 65534, 65534)
        done = on_slurm("submit", "--wait", "--name", "elsewhere", *A6000, *JOB, "--", "pwd", **far)
    (line,) = [line for line in done.err.splitlines() if "no folder" in line]
    assert line.startswith(f"{login.host} has no folder {on_slurm.work} of yours: the job runs in ")
    assert "`steno slurm run` sends files" in line
    assert on_slurm("logs", "elsewhere").out.endswith(f"/jobs/{on_slurm.folder.name}\n")


def test_variables_of_sbatch_count_and_are_shown(on_slurm: Steno, slurm_cluster: Cluster) -> None:
    """An option or a field of the task wins over them, they win over Steno's settings."""
    slurm_cluster.run("sacctmgr", "-i", "add", "account", "lab2", check=False)
    slurm_cluster.run("sacctmgr", "-i", "add", "user", "root", "account=lab2", check=False)
    shell = {
        "SBATCH_ACCOUNT": "lab2", "SBATCH_PARTITION": "low", "SBATCH_TIMELIMIT": "0-1", "SBATCH_WAIT": "1",
        "SBATCH_GRES": "gpu:a6000:1", "SBATCH_MEM_PER_NODE": "300", "STENO_SLURM_PARTITION": "gpu-v100",
    }  # fmt: skip
    show = 'scontrol -o show job "$SLURM_JOB_ID" | grep -oE " (Account|Partition|TimeLimit|MinMemoryNode)=[^ ]*"'
    done = on_slurm("submit", "--wait", "--json", "--name", "shell", "--memory", "200M", "--", show, **shell)
    assert done.err.splitlines()[0] == (
        "account=lab2 from SBATCH_ACCOUNT, gpu=a6000:1 from SBATCH_GRES, partition=low from SBATCH_PARTITION, "
        "max_duration=60m from SBATCH_TIMELIMIT; ignored: SBATCH_WAIT"
    )
    values = set(on_slurm("logs", "shell").out.split())
    assert values == {"Account=lab2", "Partition=low", "TimeLimit=01:00:00", "MinMemoryNode=200M"}
    again = on_slurm("rerun", "shell", "--json", SBATCH_QOS="normal")
    assert "SBATCH" not in again.err, "a recorded task is submitted as it was"
    on_slurm("stop", again.json()["run_id"])


@pytest.mark.parametrize("command", [("plan",), ("up", "--dry-run")])
def test_a_plan_heeds_them_too(on_slurm: Steno, command: tuple[str, ...]) -> None:
    ran = on_slurm("slurm", *command, "--json", SBATCH_PARTITION="gpu-v100", SBATCH_TIMELIMIT="30", SBATCH_QOS="normal")
    assert "partition=gpu-v100 from SBATCH_PARTITION" in ran.err
    assert {(way["partition"], way["minutes"]) for way in ran.json()["strategies"]} == {("gpu-v100", 30)}
    assert "#SBATCH --qos=normal" in ran.json().get("script", "#SBATCH --qos=normal")
