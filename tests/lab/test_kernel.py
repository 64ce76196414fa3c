"""Kernels on genuine dstack servers: the task dstack runs really compiles, checks and times on this machine."""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest
from stenolab.lab import Lab
from stenolab.plugin import StenoAt
from stenolab.steno import Background, Steno
from stenolab.versions import NEWEST
from stenotest.kernels import BRIEF, DOING, SHIPPED

from projections.api.client import follow_hip_kernel, get_orchestrator_metrics, submit_hip_kernel

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="there is no C++ compiler: apt-get install g++"),
]
_SERVING = re.compile(r"serving (http://\S+)")


def address(steno: Steno, up: Background) -> str:
    """Where `steno up` serves."""
    found = steno.until(lambda: _SERVING.search(up.out), what="the service")
    return found[1]


@pytest.mark.suffices(NEWEST)
def test_a_kernel_is_checked_and_timed_cold_then_warm_and_told_of_its_errors(dstack: Lab, steno_at: StenoAt) -> None:
    """From the submission to the verdict through dstack, its logs and its machines; a second one takes the warm one."""
    steno = steno_at(dstack, dstack.project())
    up = steno.up()
    url = address(steno, up)

    def told(source: str, endpoint: str = "checker") -> list[dict[str, Any]]:
        """What is told until the machine is free again: the verdict comes before dstack ends the run."""
        items = list(submit_hip_kernel(source, "vector-add", BRIEF, endpoint=endpoint, base_url=url, patience=240))
        steno.until(lambda: all(vm["state"] == "idle" for vm in steno.world().vms), what="the machine to be idle")
        return items

    cold = told(SHIPPED["vector-add"].example, "benchmark")
    names = [item["status"] for item in cold]
    assert set(names[:-9]) <= {"IN_QUEUE", "PROVISIONING"}  # the lab's machines come faster than polls
    assert names[-9:] == [
        "COMPILING",
        "CHECKING",
        *["TEST_RESULT"] * 3,
        "CHECKED",
        "BENCHMARKING",
        "BENCHMARK_RESULT",
        "BENCHMARKED",
    ]
    assert (cold[-1]["vm_state"], cold[-1]["message"]) == ("COLD_START", "Benchmark completed successfully")
    assert cold[-1]["cost_usd"] > 0

    wrong = told(DOING % "A = B;")
    assert [item["status"] for item in wrong][-2:] == ["TEST_RESULT", "WRONG_ANSWER"]
    assert wrong[-1]["vm_state"] == "WARM_REUSE"
    assert [item["status"] for item in told(DOING % "nothing;")][-1] == "COMPILE_ERROR"
    assert [item["status"] for item in told(DOING % "abort();")][-1] == "RUNTIME_ERROR"

    again = list(follow_hip_kernel(cold[0]["run_id"], base_url=url))
    assert [(item["position"], item["status"]) for item in again] == [
        (item["position"], item["status"]) for item in cold
    ]
    shown = steno.json("show", cold[0]["name"])
    assert (shown["state"], shown["reason"], shown["exit_status"]) == ("succeeded", "exit_zero", 0)
    assert steno.json("show", wrong[0]["name"])["reason"] == "wrong_answer"
    metrics = get_orchestrator_metrics(base_url=url)
    assert (metrics["tasks_completed"], metrics["cold_starts"], metrics["warm_reuses"]) == (4, 1, 3)
    steno("verify")
    up.kill()
