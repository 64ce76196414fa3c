"""A command with its project on a real cluster: files, snapshots, environment, job script, node report."""

import json
import os
import stat
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from stenolab.slurm import Cluster
from stenolab.steno import Steno
from stenotest.waiting import wait

ONE = ("--partition", "gpu-a6000", "--gpu", "1", "--time", "5m", "--mem", "500M")
TRAIN = """
import os, sys
import helper
print("says", helper.WORD, sys.argv[1:])
for name in sorted(os.environ):
    if name.endswith(("_HOME", "_DIR", "_ROOT", "_THREADS", "PARALLELISM", "_ELAPSED")):
        print(f"{name}={os.environ[name]}")
"""


@pytest.fixture
def project(on_slurm: Steno) -> Path:
    """The current folder as a repository: a script, a module, one name with blanks and quotes, a file git ignores."""
    here = on_slurm.work
    (here / "train.py").write_text(TRAIN)
    (here / "helper.py").write_text("WORD = 'one'\n")
    (here / "it's a name.py").write_text("print('quoted')\n")
    (here / ".gitignore").write_text("*\n!.gitignore\n!*.py\n!*.txt\n")
    (here / "secret.bin").write_text("stays here")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], cwd=here, check=True)
    return here


def output(steno: Steno, *words: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """The run of a command that was followed to its end, and its output."""
    run = steno("slurm", "run", "--json", *words, code=None).done(code).json()
    return run, steno("logs", run["run_id"]).done().out


def shared(on_slurm: Steno, cluster: Cluster) -> Path:
    """Steno's folder on the cluster."""
    return cluster.folder / "jobs" / on_slurm.folder.name


def test_a_launcher_runs_the_projects_files_on_a_snapshot(
    on_slurm: Steno, slurm_cluster: Cluster, project: Path
) -> None:
    """Bug 3: a launcher in front of the script. Bugs 4, 5 and improvement 1: threads, tokenizers and caches."""
    run, text = output(on_slurm, *ONE, "env A=B python3 -u train.py --out 'a b'")
    assert run["state"] == "succeeded"
    lines = text.splitlines()
    assert lines[0] == "says one ['--out', 'a b']"
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    folder = shared(on_slurm, slurm_cluster)
    assert values["OMP_NUM_THREADS"] == "4"
    assert values["TOKENIZERS_PARALLELISM"] == "false"
    caches = "HF_HOME UV_CACHE_DIR VLLM_CACHE_ROOT VLLM_CACHE_DIR TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR"
    for name in caches.split():
        assert values[name].startswith(f"{folder}/cache/"), name
    assert values["RV_CHECKPOINT_DIR"] == values["STENO_CHECKPOINT_DIR"]
    assert values["RV_CHECKPOINT_DIR"].endswith(run["run_id"][-12:])
    assert values["RV_TOTAL_ELAPSED"] == "0"

    (first,) = [path for path in (folder / "projects" / project.name).iterdir() if not path.is_symlink()]
    assert sorted(path.name for path in first.iterdir() if path.name != "__pycache__") == [
        ".gitignore", "helper.py", "it's a name.py", "train.py",
    ]  # fmt: skip
    # A later edit makes a snapshot of its own; what is the same takes no space, and cannot be written.
    (project / "helper.py").write_text("WORD = 'two'\n")
    _, text = output(on_slurm, *ONE, "train.py")
    assert text.startswith("says two []")
    (second,) = [path for path in first.parent.iterdir() if not path.is_symlink() and path != first]
    assert (first / "helper.py").read_text() == "WORD = 'one'\n"
    assert (first / "train.py").stat().st_ino == (second / "train.py").stat().st_ino
    assert not (first / "train.py").stat().st_mode & stat.S_IWUSR


@pytest.mark.long
def test_names_with_blanks_and_quotes(on_slurm: Steno, project: Path) -> None:
    """They reach the job unchanged."""
    run, text = output(on_slurm, *ONE, "it's a name.py")
    assert (run["state"], text) == ("succeeded", "quoted\n")


def test_the_manifest_and_the_whole_script_are_in_the_record(
    on_slurm: Steno, slurm_cluster: Cluster, project: Path
) -> None:
    """Files with their hashes, and the script as Slurm got it, without the value of a variable."""
    output(on_slurm, *ONE, "train.py")
    polls = [row for row in on_slurm("polls", "--json").done().lines() if row["path"].startswith("slurm:manifest")]
    manifest = json.loads(on_slurm("poll", str(polls[-1]["position"])).done().out)
    assert manifest["snapshot"].startswith(f"{project.name}/2")
    assert set(manifest["files"]) == {".gitignore", "helper.py", "it's a name.py", "train.py"}
    sent = [row["data"] for row in on_slurm("events", "--type", "SubmitSucceeded", "--json").done().lines()]
    assert sent[-1]["sent"].startswith("#!/bin/bash\n")
    assert manifest["snapshot"] in sent[-1]["sent"]

    (forgotten := shared(on_slurm, slurm_cluster) / "env" / "of-last-year").parent.mkdir(exist_ok=True)
    forgotten.touch()
    os.utime(forgotten, (0, 0))
    run = on_slurm(
        "submit", "--wait", "--json", "--name", "secretive", "--partition", "gpu-a6000", "--memory", "500M",
        "--env", "API_TOKEN=hush'\nhush", "--", 'echo "$API_TOKEN" | tr a-z A-Z',
    ).done().json()  # fmt: skip
    assert on_slurm("logs", "secretive").done().out == "HUSH'\nHUSH\n"
    sent = on_slurm("events", "--stream", f"run/{run['run_id']}", "--json").done().out
    assert "hush" not in sent
    assert [file.name for file in forgotten.parent.iterdir()] == [run["run_id"]], "old values are deleted"


def wheel(folder: Path, version: str) -> Path:
    """A package without code to compile."""
    path = folder / f"steno_probe-{version}-py3-none-any.whl"
    info = f"steno_probe-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("steno_probe.py", f"VERSION = '{version}'\n")
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: steno-probe\nVersion: {version}\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return path


@pytest.mark.ci
def test_an_environment_is_built_once_for_its_lock(on_slurm: Steno, slurm_cluster: Cluster, project: Path) -> None:
    """By the hash of the file; built by the first job, its time a phase of its own, used by the next."""
    (project / "requirements.txt").write_text(f"steno-probe @ file://{wheel(project, '1.0')}\n")
    (project / "train.py").write_text("import steno_probe, sys; print(steno_probe.VERSION, sys.prefix)\n")
    prefixes = []
    for _ in range(2):
        run, text = output(on_slurm, *ONE, "train.py")
        assert run["state"] == "succeeded", text
        prefixes.append(text.splitlines()[-1].split()[1])
        built = "there is no uv" in text
    assert text.splitlines()[-1].startswith("1.0 ")
    assert prefixes[0] == prefixes[1]
    assert Path(prefixes[0]).parent == shared(on_slurm, slurm_cluster) / "envs"
    assert not built, "the second one did not build"
    life = on_slurm("timeline", run["run_id"], "--json").done().json()
    assert [phase["phase"] for phase in life["phases"]] == ["environment", "command"]
    assert "environment" in on_slurm("timeline", run["run_id"]).done().out


def test_a_dry_run_submits_nothing(on_slurm: Steno, project: Path) -> None:
    """It prints strategies and the script, and the record has no run."""
    done = on_slurm("slurm", "up", *ONE, "--run", "torchrun --nproc_per_node=1 train.py", "--dry-run").done()
    assert "1×a6000 on gpu-a6000" in done.out
    assert "torchrun --nproc_per_node=1 train.py" in done.out
    assert "#SBATCH" in done.out
    assert on_slurm("ps", "--json").done().json()["runs"] == []


def test_commands_of_the_login_node(on_slurm: Steno, slurm_cluster: Cluster, project: Path) -> None:
    """`exec` keeps the exit code; `sync` lists and copies; `quota` and `bench` print what they found."""
    assert on_slurm("slurm", "exec", "echo out; echo err >&2; exit 7", code=None).code == 7
    assert on_slurm("slurm", "exec", "squeue", "-h", "-n", "nobodys").done().out == ""
    listed = on_slurm("slurm", "sync", "--dry-run").done().out.splitlines()
    assert listed == [".gitignore", "helper.py", "it's a name.py", "train.py"]
    copied = on_slurm("slurm", "sync", "secret.bin", "--json").done().json()
    assert (Path(copied["folder"]) / "secret.bin").read_text() == "stays here"
    assert "Filesystem" in on_slurm("slurm", "quota").done().out
    assert on_slurm("slurm", "bench", "--size", "8").done().out.splitlines()[1].endswith("–")
    assert "median of 1" in on_slurm("slurm", "bench", "--size", "8").done().out
    both = on_slurm("slurm", "bench", "--size", "8", "--nodes", "--json").done().json()["bytes_per_second"]
    assert both["nodes"] > 1e6


NVIDIA = """#!/bin/sh
case "$*" in
-L) echo "GPU 0: NVIDIA RTX A6000 (UUID: GPU-0)" ;;
*) for _ in 0 1 2 3; do echo "NVIDIA RTX A6000, 49140"; done ;;
esac
"""


def test_other_gpus_than_asked_for_are_an_anomaly(on_slurm: Steno, project: Path, tmp_path: Path) -> None:
    """Test 6 of the seeds: a node of the V100 partition had A6000s. And more data workers than CPUs is said."""
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(NVIDIA)
    tool.chmod(0o755)
    path = f"{tool.parent}:/usr/sbin:/sbin:{os.environ['PATH']}"
    options = ["--env", "PATH", "--gpu", "2", "--type", "v100", "--time", "5m", "--mem", "500M"]
    ran = on_slurm("slurm", "run", "--json", *options, "python3 train.py --num-workers 64", PATH=path, code=None)
    run = ran.json()
    assert run["state"] == "succeeded", on_slurm("logs", run["run_id"]).out
    assert "64 data workers will share 8 CPUs; use 8" in ran.err
    assert "steno: 64 data workers share 8 CPUs; use 8" in on_slurm("logs", run["run_id"]).done().out
    details = on_slurm("show", run["run_id"], "--json").done().json()
    (odd,) = [anomaly for anomaly in details["anomalies"] if anomaly["kind"] == "gpu_mismatch"]
    assert odd["detail"].startswith("asked for v100 × 2, got NVIDIA RTX A6000 × 2 on ")


def test_attach_opens_a_shell_beside_a_run(on_slurm: Steno, slurm_cluster: Cluster) -> None:
    """In its allocation, by its name; an unknown name is one line."""
    held = on_slurm(
        "submit", "--json", "--name", "attached-to", "--partition", "gpu-a6000", "--memory", "500M", "--", "sleep 300"
    ).done()
    wait(lambda: "attached-to" in slurm_cluster.run("squeue", "-h", "-t", "R", "-o", "%j"), what="it to run")
    done = on_slurm("slurm", "attach", "attached-to", "--", "sh", "-c", "echo in $SLURM_JOB_ID").done()
    assert done.out == f"in {held.json()['provider_id']}\n"
    missing = on_slurm("slurm", "attach", "nothing", code=None)
    assert missing.code != 0
    assert "no running job" in missing.err
