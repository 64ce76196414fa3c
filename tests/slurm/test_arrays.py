"""An array that Steno submits, on a real cluster: one run over its tasks."""

import pytest
from stenolab.slurm import Cluster
from stenolab.steno import Steno
from stenotest.waiting import wait

TASK = """
type: task
name: {name}
commands: ["{command}"]
array: {array}
partition: gpu-a6000
resources: {{memory: 100M}}
max_duration: 5m
"""


def written(steno: Steno, name: str, array: str, command: str) -> str:
    file = steno.work / f"{name}.yml"
    file.write_text(TASK.format(name=name, array=array, command=command))
    return str(file)


def test_waiting_for_an_array_is_waiting_for_its_tasks(on_slurm: Steno) -> None:
    """The first task that fails decides; each has its own verdict, output and cost, and they sum to the array's."""
    file = written(on_slurm, "odd", "1-3%2", "echo I am $SLURM_ARRAY_TASK_ID; exit $((SLURM_ARRAY_TASK_ID - 1))")
    done = on_slurm("submit", "-f", file, "--wait", code=1)
    assert "A task of the array failed" in done.out
    array = on_slurm.shown("odd")
    assert (array["state"], array["reason"], array["exit_status"], array["tasks"]) == ("failed", "exit_nonzero", 1, 3)
    tasks = [on_slurm.shown(f"odd[{number}]") for number in (1, 2, 3)]
    assert [(task["state"], task["exit_status"]) for task in tasks] == [("succeeded", 0), ("failed", 1), ("failed", 2)]
    assert {task["array"] for task in tasks} == {array["run_id"]}
    costs = [float(task["cost_usd"]) for task in tasks]
    assert float(array["cost_usd"]) == pytest.approx(sum(costs), abs=2e-6)
    assert on_slurm("logs", "odd[2]").out == "I am 2\n"
    assert [line for line in on_slurm("logs", "odd").out.splitlines() if line.startswith("I am")] == [
        "I am 1", "I am 2", "I am 3",
    ]  # fmt: skip
    followed = {line for line in on_slurm("logs", "-f", "odd").out.splitlines() if "I am" in line}
    assert followed == {f"odd[{number}] | I am {number}" for number in (1, 2, 3)}
    listed = on_slurm("ps", "--all").out
    assert next(line for line in listed.splitlines() if "odd" in line).startswith("odd [3 runs]")
    assert "odd[1]" not in listed


def test_a_task_and_then_the_array_is_stopped(on_slurm: Steno, slurm_cluster: Cluster) -> None:
    """The others go on when one is stopped; the array ends all. Seen: of a task that waited no source kept a record,
    so it and its array never ended.
    """
    file = written(on_slurm, "long", "0-5%2", "sleep 300")
    on_slurm("submit", "-f", file)
    on_slurm.follow("1s")

    def states() -> list[str]:
        runs = on_slurm("ps", "--all", "--json").json()["runs"]
        return sorted(run["state"] for run in runs if run["name"] == "long" and run.get("group") is not None)

    wait(lambda: "running" in states(), what="a task to run", pause=0.5)
    on_slurm("stop", "long[0]")
    wait(lambda: states().count("stopped") == 1, what="the task to be stopped", pause=0.5)
    on_slurm("stop", "long[5]")
    wait(lambda: states().count("stopped") == 2, what="the task that waits to be stopped", pause=0.5)
    assert on_slurm.shown("long")["state"] == "running"
    on_slurm("stop", "long")
    wait(lambda: states() == ["stopped"] * 6, what="every task to be stopped", pause=0.5)
    array = on_slurm.shown("long")
    assert (array["state"], array["reason"]) == ("stopped", "stopped_by_user")
    assert array["provider_id"] not in slurm_cluster.run("squeue", "-h", "-o", "%F")
