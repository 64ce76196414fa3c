"""Samples of runs on this machine, by stand-ins for the tools of vendors; and the sampler as a program."""

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from stenotest import smi
from stenotest.waiting import LIMIT_S, wait

from steno.engine.providers.local import tree
from steno.engine.providers.sample_text import samples_of
from steno.engine.providers.sampler import MOST_BYTES, SCRIPT
from steno.engine.state.samples import TASK, Sample

SPIN = "sh -c 'while :; do :; done' & "


def samples(machine, run_id: str, tool: str, device: str, since: int = 0) -> list[Sample]:
    answer = machine.provider.samples(run_id, "", since=since)
    return [sample for sample in answer[1] if sample.device == device] if answer and answer[0] == tool else []


@pytest.mark.parametrize(
    ("tool", "duty"), [*(("nvidia-smi", duty) for duty in (0, 25, 50, 100)), ("amd-smi", 25), ("rocm-smi", 50)]
)
def test_the_duty_of_a_gpu_is_that_of_its_load(machine, tmp_path: Path, tool: str, duty: int) -> None:
    """The mean of the samples is within 3 points of the duty cycle, while the run goes on and after its end."""
    if any(shutil.which(other) for other in smi.HEADERS):
        pytest.skip("this machine has a vendor's tool of its own")
    path = smi.stand_in(tmp_path / "tools", tool, duty)
    run_id = machine.submit(machine.gated, env={"PATH": path})
    wait(lambda: len(samples(machine, run_id, tool, "0")) == smi.LINES)
    machine.open()
    machine.end(run_id)
    all_of = samples(machine, run_id, tool, "0")
    uses = [sample.use for sample in all_of if sample.use is not None]
    assert len(uses) == smi.LINES
    assert abs(sum(uses) / len(uses) - duty) <= 3
    assert all_of[0].memory == 7_234
    assert samples(machine, run_id, tool, "0", since=all_of[-2].at) == all_of[-1:]


def test_a_task_without_a_gpu_has_samples_of_its_processes(machine) -> None:
    """A tool that is none, garbage and hangs harms nothing; neither does it delay the end, nor outlive it."""
    tools = machine.base / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'NVIDIA, has, failed'; trap '' TERM; exec sleep 600\n")
    (tools / "nvidia-smi").chmod(0o755)
    run_id = machine.submit(machine.gated, env={"PATH": f"{tools}:{os.environ['PATH']}"})
    wait(lambda: samples(machine, run_id, "processes", TASK))
    machine.open()
    assert machine.end(run_id) == ("ended", "exited", 0)
    assert not tree.marked(run_id)


def test_a_stopped_run_takes_its_sampler_with_it(machine) -> None:
    """An abort kills the sampler too, and a short run has none."""
    short, long = machine.submit("true"), machine.submit("sleep 600")
    wait(lambda: samples(machine, long, "processes", TASK))
    machine.kill_supervisor(long)
    machine.end(long)
    assert not tree.marked(long)
    machine.end(short)
    assert machine.provider.samples(short, "", since=0) is None


def sampler(folder: Path, root: int, script: str = SCRIPT, **environment: str) -> subprocess.Popen[bytes]:
    """The sampler of that process, with a look each 50 ms, without a GPU."""
    words = [str(root), str(folder / "samples"), "0.05", "1", environment.pop("gpus", "-"), "job_12"]
    return subprocess.Popen(
        ["bash", "-c", script, "sampler", *words], env={"PATH": os.environ["PATH"], **environment},
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def written(folder: Path) -> list[Sample]:
    with suppress(FileNotFoundError):
        answer = samples_of([(folder / "samples").read_bytes()], 0)
        return answer[1] if answer is not None else []
    return []


def test_it_ends_with_the_process_that_it_watches(machine, tmp_path: Path) -> None:
    """And counts the descendants of that process alone: what ended, too, and not itself."""
    root = subprocess.Popen(["sh", "-c", f"{SPIN} sh -c '{SPIN.replace(chr(39), chr(34))} wait' & wait"],
                            start_new_session=True)  # fmt: skip
    program = sampler(tmp_path, root.pid)
    last = tmp_path / "samples"
    try:
        wait(lambda: last.exists() and int(last.read_text().splitlines()[-1].split(",")[2] or 0) > 1_000)
    finally:
        os.killpg(root.pid, signal.SIGKILL)
        root.wait()
    assert program.wait(LIMIT_S) == 0
    (memory, *_) = [sample.memory for sample in written(tmp_path)]
    assert memory is not None


@pytest.mark.parametrize("version", [1, 2])
def test_a_job_is_measured_by_its_control_group(machine, tmp_path: Path, version: int) -> None:
    """The group of version 1 or 2, at the level of the job: steps of `srun` count."""
    path, job = "/slurm/uid_1000/job_12", tmp_path / "groups"
    if version == 2:
        lines, files = f"0::{path}/step_batch/user/task_0\n", {
            f"{path}/cpu.stat": "usage_usec 5000000\nuser_usec 1\n",
            f"{path}/memory.stat": "anon 2097152\nfile 999999999\nshmem 1048576\n",
        }  # fmt: skip
    else:
        lines, files = f"4:memory:{path}/step_batch\n3:cpu,cpuacct:{path}/step_batch\n0::/\n", {
            f"/cpuacct{path}/cpuacct.usage": "5000000000\n",
            f"/memory{path}/memory.stat": "rss 1\ntotal_cache 999999999\ntotal_rss 3145728\n",
        }  # fmt: skip
    for name, text in files.items():
        (file := job / name[1:]).parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "own").write_text(lines)
    script = SCRIPT.replace("/sys/fs/cgroup", str(job)).replace("/proc/self/cgroup", str(tmp_path / "own"))
    program = sampler(tmp_path, os.getpid(), script)
    wait(lambda: len(written(tmp_path)) > 1)
    program.terminate()
    assert program.wait(LIMIT_S) == 0
    first = (tmp_path / "samples").read_text().splitlines()[0]
    assert first.split(",")[1:] == ["processes", "5000", "3072"]


def test_a_tool_that_floods_begins_a_new_file(machine, tmp_path: Path) -> None:
    """At the limit of the first, which stays; at once only in this test."""
    path = smi.stand_in(tmp_path / "tools", "nvidia-smi", 50)
    tool = tmp_path / "tools" / "nvidia-smi"
    tool.write_text(tool.read_text().replace("exec sleep 1000", "yes $(printf %01000d) | head -c 9000000"))
    script = SCRIPT.replace("-gt 600", "-gt -1")
    program = sampler(tmp_path, os.getpid(), script, PATH=path, gpus="")
    wait(lambda: (tmp_path / "samples.old").exists() and len(written(tmp_path)) > smi.LINES)
    program.terminate()
    program.wait(LIMIT_S)
    assert 0 <= (tmp_path / "samples.old").stat().st_size - MOST_BYTES <= 65_536
