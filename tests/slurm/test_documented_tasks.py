"""Every task that docs/slurm-tasks.md shows: the options of its job, and (`long`) its run on a real cluster."""

import re
from pathlib import Path

import pytest
import yaml
from stenolab.slurm import Cluster
from stenolab.steno import Steno

from steno.engine.providers.slurm.script import render
from steno.engine.providers.slurm.spec import spec_of
from steno.engine.providers.task import Draft, complete_plain, parse_task

PAGE = Path(__file__).parents[2] / "docs" / "slurm-tasks.md"
TASKS = {
    yaml.safe_load(text)["name"]: text for text in re.findall(r"^```yaml\n(.*?)^```", PAGE.read_text(), re.M | re.S)
}
FIELDS = {
    "array",
    "dependency",
    "constraint",
    "qos",
    "nodes",
    "checkpoint",
    "total_time",
    "resubmissions",
    "working_dir",
}

OPTIONS = {
    "train": ("gres=gpu:a6000:1", "cpus-per-task=4", "mem=16384M", "time=120"),
    "shards": ("array=0-7%4",),
    "evaluate": ("dependency=afterok:{first}",),
    "on-nvlink": ("constraint=nvlink&ssd",),
    "urgent": ("qos=normal",),
    "two-nodes": ("nodes=2", "ntasks-per-node=1", "gres=gpu:a6000:2"),
    "segments": ("time=240", "signal=B:USR1@120"),
    "elsewhere": ("chdir={work}/data",),
}
"""The options that each task's job has by these fields."""
OUTPUT = {
    "train": r"trained \['--epochs', '3'\]\n",
    "evaluate": r"evaluating\n",
    "on-nvlink": r"\S+\n",
    "urgent": r"\S+\n",
    "two-nodes": r"node 0 of 2, the first is node[12]\nnode 1 of 2, the first is node[12]\n",
    "elsewhere": r"{work}/data\n",
}


def test_the_page_has_an_example_of_every_field_that_only_slurm_has() -> None:
    assert {field for text in TASKS.values() for field in yaml.safe_load(text)} >= FIELDS
    assert TASKS.keys() == OPTIONS.keys()


@pytest.mark.parametrize("name", TASKS)
def test_the_job_of_a_task_of_the_page_has_its_options(name: str) -> None:
    text = TASKS[name].replace("1234", "77")
    task = complete_plain(Draft(configuration=parse_task(text, name), where=name, environ={}))
    script = render(spec_of(task), name=name, run_id="0123456789ab", folder="/work")
    for option in OPTIONS[name]:
        assert f"\n#SBATCH --{option.format(first=77, work='/work')}\n" in script


@pytest.mark.long
def test_every_task_of_the_page_runs(on_slurm: Steno, slurm_cluster: Cluster) -> None:
    """Its job has the options that the page says, and prints what it should."""
    work = on_slurm.work
    program = "import sys, time\nprint('trained', sys.argv[1:])\ntime.sleep(900 * ('--resume' in sys.argv))\n"
    (work / "train.py").write_text(program)  # the segments go on until they are stopped
    (work / "data").mkdir()
    slurm_cluster.run("scontrol", "update", "NodeName=node1", "AvailableFeatures=nvlink,ssd")
    slurm_cluster.run("scontrol", "update", "NodeName=node2", "AvailableFeatures=nvlink")
    first = on_slurm("submit", "--wait", "--json", "--name", "first", "--memory", "200M", "--", "true").json()
    on_slurm.follow("0.5")
    runs = {}
    for name, text in TASKS.items():
        (work / "task.yml").write_text(text.replace("1234", first["provider_id"]))
        submitted = on_slurm("submit", "--json", "-f", "task.yml").json()
        sent = on_slurm("events", "--stream", f"run/{submitted['run_id']}", "--type", "SubmitSucceeded", "--json")
        script = sent.lines()[-1]["data"]["sent"]
        for option in OPTIONS[name]:
            assert f"\n#SBATCH --{option.format(first=first['provider_id'], work=work)}\n" in script, name
        runs[name] = submitted
    assert "Requeue=1" in slurm_cluster.run("scontrol", "show", "job", runs["segments"]["provider_id"])
    assert 'SLURM_RESTART_COUNT:-0}" -lt 5' in script_of(on_slurm, "segments")
    assert f'[ "$steno_elapsed" -lt {12 * 3600} ]' in script_of(on_slurm, "segments")
    for name, pattern in OUTPUT.items():
        assert on_slurm.wait(name, "succeeded", "failed", "stopped")["state"] == "succeeded", name
        lines = sorted(on_slurm("logs", name).out.splitlines(keepends=True))
        assert re.fullmatch(pattern.format(work=work), "".join(lines)), (name, lines)

    array = runs["shards"]["provider_id"]

    for task in range(8):
        what = f"{array}_{task}"
        on_slurm.until(lambda what=what: on_slurm("logs", what, code=None).out, what=what)
    assert on_slurm("logs", f"{array}_3").out == "shard 3 of 8\n"
    on_slurm("stop", "segments")


def script_of(steno: Steno, name: str) -> str:
    """The script of a run, as Slurm got it."""
    sent = [row["data"] for row in steno("events", "--type", "SubmitSucceeded", "--json").lines()]
    return next(data["sent"] for data in sent if f"#SBATCH --job-name={name}\n" in data["sent"])
