"""`examples/slurm-cluster` with the real command line: the six dry runs of the seeds, as their documents have them."""

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from stenotest import steno_process
from stenotest.seeds_cluster import COMMANDS

README = (COMMANDS.parent / "README.md").read_text()
EXPORTED = dict(re.findall(r"(STENO_\w+)='?([^'\s]+)'?$", README, re.MULTILINE))
SIX = [line.split()[1:] for line in README.splitlines() if line.startswith("steno slurm up ")]
LARGE = {"v100", "a6000", "a40", "a100_40", "a100_80"}
ONE_NODE, TWO_NODES = "one", "two"

WANTED: list[tuple[int, set[str], dict[str, set[str]]]] = [
    (7, {"rtx3090", "a40", "a100_40"}, {ONE_NODE: {*LARGE, "rtx3090", "h200"}, TWO_NODES: set()}),
    (12, set(), {ONE_NODE: {*LARGE, "h200"}, TWO_NODES: {*LARGE, "h200"}}),
    (2, set(), {ONE_NODE: {"a100_80"}, TWO_NODES: {"a100_80"}}),
    (9, set(), {ONE_NODE: LARGE - {"v100"}, TWO_NODES: LARGE}),
    (9, set(), {ONE_NODE: LARGE - {"v100"}, TWO_NODES: LARGE}),
    (1, set(), {ONE_NODE: {"h200"}, TWO_NODES: set()}),
]
"""How many strategies, the types that a gap is found for, and the types on one node and on two."""


def steno(folder: Path, *words: str) -> Any:
    """Its decoded answer, in an empty home."""
    path = f"{COMMANDS}:{os.environ['PATH']}"
    environment = {"PATH": path, "HOME": str(folder), "LANG": "C.UTF-8", **EXPORTED}
    done = steno_process.run(["--record", str(folder / "record.db"), *words, "--json"], cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("number", range(6))
def test_a_dry_run_of_the_seeds(number: int, tmp_path: Path) -> None:
    """Test 3 and 7 of their document: the readme shows the six commands, and submits nothing."""
    count, soon, by_nodes = WANTED[number]
    strategies = steno(tmp_path, *SIX[number])["strategies"]
    assert len(strategies) == count
    assert {way["gpu"] for way in strategies if way["kind"] == "backfill"} == soon
    assert {way["kind"] for way in strategies} <= {"direct", "backfill"}, "no gap is shorter than the time"
    for nodes, types in ((1, by_nodes[ONE_NODE]), (2, by_nodes[TWO_NODES])):
        assert Counter(way["gpu"] for way in strategies if way["nodes"] == nodes) == Counter(types)
    if number == 5:
        assert 816 < strategies[0]["units"] <= 817
    assert steno(tmp_path, "ps")["runs"] == []
