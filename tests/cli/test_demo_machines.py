"""Machines of this host on the command line: priced, kept warm, gone by themselves, and seen so."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from stenotest.command_line import Steno, refused

from engine.providers.local.durable import is_locked

pytestmark = pytest.mark.slow

PRICED = {"STENO_LOCAL_PRICE": "1.99", "STENO_LOCAL_GPU": "MI300X:1"}


def test_a_machine_that_went_unseen_is_seen_gone_at_the_next_look(
    steno: Steno, until: Callable[[Callable[[], object]], None], record_file: Path
) -> None:
    """Nobody records: two runs share a machine, and it dies meanwhile; the list then says so, and bills it."""
    for name, start in (("first", "cold"), ("second", "warm")):
        done = steno("submit", "--wait", "--json", "--name", name, "--idle-duration", "2h", "--", "true", **PRICED)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["start"] == start
    (started,) = Path(f"{record_file}.local", ".machines").glob("*/started.json")
    os.kill(json.loads(started.read_text())["pid"], signal.SIGKILL)
    until(lambda: not is_locked(started.parent))
    (vm,) = json.loads(steno("vms", "--all", "--json", **PRICED).stdout)["vms"]
    assert (vm["state"], vm["reason"], vm["price_usd_per_hour"]) == ("terminated", "unreachable", "1.990000")
    assert len(vm["runs"]) == 2
    assert float(vm["cost_usd"]) > 0


def test_a_label_that_is_none_is_one_line(steno: Steno) -> None:
    """What is wrong, where it was said, and what it must be."""
    said = refused(steno("submit", "--", "true", STENO_LOCAL_GPU="2x"), 2)
    assert "local.gpu is '2x' (STENO_LOCAL_GPU); it must be a GPU model with its number" in said
