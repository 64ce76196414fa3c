"""GPUs by their real names, at the command line: fake commands on PATH show a cluster that cannot be had."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from stenotest.command_line import Steno, refused

SINFO = """\
n1|gpu|idle|64|524288|0/64/0/64|gpu:A100:4(S:0-1)
n2|gpu|idle*|64|524288|0/64/0/64|gpu:A100:4(S:0-1)
n3|old|mixed|32|262144|1/31/0/32|gpu:8(S:0-3)
n4|mig|idle|64|524288|0/64/0/64|gpu:a100_3g.20gb:8(S:0-1),shard:8
n5|twins|idle|64|524288|0/64/0/64|gpu:gh200:1
n6|twins|idle|64|524288|0/64/0/64|gpu:GH200:1
"""
FAKE = """\
#!/bin/bash
echo "$(basename "$0") $*" >> "$FAKE/asked"
case "$(basename "$0") $*" in
"sinfo "*) cat "$FAKE/sinfo" ;;
"scontrol "*partition*) for one in gpu old mig twins; do echo "PartitionName=$one MaxTime=1-00:00:00 State=UP"; done ;;
"sbatch --test-only"*) echo "sbatch: Job 17 to start at 2099-01-01T00:00:00 using 4 processors" >&2 ;;
esac
"""


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, str]:
    """The variables with which Steno sees that cluster."""
    fake = tmp_path / "fake"
    (fake / "bin").mkdir(parents=True)
    (fake / "sinfo").write_text(SINFO)
    for name in ("sinfo", "scontrol", "sacctmgr", "squeue", "sacct", "sbatch"):
        (fake / "bin" / name).write_text(FAKE)
        (fake / "bin" / name).chmod(0o755)
    return {"PATH": f"{fake}/bin:{os.environ['PATH']}", "FAKE": str(fake), "STENO_PROVIDER": "slurm"}


def test_the_types_are_listed_as_the_cluster_spells_them(steno: Steno, cluster: dict[str, str]) -> None:
    """A node that does not respond is neither idle nor there; rates are found whatever their case."""
    done = steno("slurm", "gpus", "--json", **cluster, STENO_SLURM_RATES="a100=10")
    pools: list[dict[str, Any]] = json.loads(done.stdout)["pools"]
    assert {pool["gpu"]: (pool["nodes"], pool["idle"]) for pool in pools} == {
        "A100": (1, 1), "gpu": (1, 0), "a100_3g.20gb": (1, 1), "gh200": (1, 1), "GH200": (1, 1),
    }  # fmt: skip
    table = steno("slurm", "gpus", **cluster, STENO_SLURM_RATES="a100=10,cpu=0.5").stdout.splitlines()
    assert [line.split()[-2] for line in table if line.startswith("A100 ")] == ["10"]


@pytest.mark.parametrize(
    ("words", "gres"),
    [
        (("--type", "a100"), "gpu:A100:1"),
        (("--type", "A100", "--mig"), "gpu:a100_3g.20gb:1"),
        (("--type", "gpu"), "gpu:1"),
        (("--type", "GH200"), "gpu:GH200:1"),
    ],
)
def test_what_is_typed_becomes_the_clusters_own_name(
    steno: Steno, cluster: dict[str, str], words: tuple[str, ...], gres: str
) -> None:
    """In the probes and in the job script: case, no type, a slice of a model."""
    done = steno("slurm", "run", "--dry-run", "--time", "30m", *words, "true", **cluster)
    assert done.returncode == 0, done.stderr
    assert f"#SBATCH --gres={gres}\n" in done.stdout
    words = (Path(cluster["FAKE"]) / "asked").read_text().split()
    assert {word for word in words if word.startswith("--gres=")} == {f"--gres={gres}"}


def test_a_name_that_may_be_two_types_is_an_error(steno: Steno, cluster: dict[str, str]) -> None:
    """A line with both, and exit 2."""
    error = refused(steno("slurm", "plan", "--type", "Gh200", **cluster), 2)
    assert "gh200 or GH200" in error


RECORDED = Path(__file__).parents[1] / "providers" / "slurm" / "rates-upper-case.jsonl"


def test_gpus_without_a_rate_are_named_where_money_is_shown(steno: Steno, home: Path, cluster: dict[str, str]) -> None:
    """In costs, in the run's page and in the plan; its cost is unknown, not nothing."""
    text = RECORDED.read_text().replace("billing=8,", "").replace("A100", "H200")
    (home / "polls.jsonl").write_text(text)
    steno("import", "polls.jsonl")
    costs, page = steno("costs"), steno("show", "t")
    assert "not in the total, because machines had no price: no rate for H200" in costs.stderr
    assert "– (no rate for H200)" in page.stdout
    run = json.loads(steno("show", "t", "--json").stdout)
    assert (run["cost_usd"], run["unpriced"]) == (None, "no rate for H200")
    plan = steno("slurm", "plan", "--type", "a100", **cluster, STENO_SLURM_RATES="h200=1,cpu=1")
    assert "no rate for A100" in plan.stdout
