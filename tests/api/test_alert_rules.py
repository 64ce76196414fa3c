"""The alert rules, in a real Prometheus."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families
from stenotest.waiting import LIMIT_S, wait

if TYPE_CHECKING:
    from conftest import Serve

pytestmark = pytest.mark.slow

RULES = Path(__file__).parents[2] / "docs" / "prometheus" / "steno.rules.yml"
_HERE = {"instance": "here", "job": "steno"}


@pytest.fixture
def prometheus() -> str:
    """The server; its tool is beside it."""
    path = shutil.which("prometheus")
    if path is None or shutil.which("promtool") is None:
        why = "these tests need a Prometheus: `apt-get install prometheus`"
        if os.environ.get("STENO_REQUIRE_LAB") == "1":
            pytest.fail(why)
        pytest.skip(why)
    return path


def alerts() -> dict[str, dict[str, Any]]:
    """Every rule by its name."""
    (group,) = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    """A series of a unit test, one value a minute."""
    return {"series": _text(name, _HERE | labels), "values": values}


def _text(name: str, labels: dict[str, str]) -> str:
    every = ", ".join(f'{key}="{value}"' for key, value in sorted(labels.items()))
    return f"{name}{{{every}}}"


CASES: dict[str, tuple[list[dict[str, str]], str, list[dict[str, str]]]] = {
    "StenoSourceBlind": (
        [series("steno_source_observability", "0 0 1x20", source="dstack/main", state="blind")],
        "10m",
        [{"source": "dstack/main", "state": "blind"}],
    ),
    "StenoRecorderGone": ([series("steno_record_last_poll_timestamp_seconds", "60 120 120x20")], "10m", [{}]),
    "StenoOrphanSuspected": (
        [series("steno_machines", "0 1x20", phase="unconfirmed")],
        "10m",
        [{"phase": "unconfirmed"}],
    ),
    "StenoBudgetThreshold": (
        [
            series("steno_budget_spent_usd", "100 1200x20"),
            series("steno_budget_limit_usd", "1400x20"),
            series("steno_budget_threshold_ratio", "0.8x20"),
        ],
        "10m",
        [{}],
    ),
    "StenoBudgetExhausting": ([series("steno_budget_exhausted_timestamp_seconds", "9000x30")], "20m", [{}]),
    "StenoProjectionLag": ([series("steno_projection_lag_seconds", "0 40x20")], "10m", [{}]),
    "StenoRunStuck": (
        [series("steno_run_oldest_seconds", "3500 3700x20", state="pulling")],
        "10m",
        [{"state": "pulling"}],
    ),
    "StenoRunLost": (
        [series("steno_runs", "0 1x30", state="lost", reason="deleted")],
        "20m",
        [{"state": "lost", "reason": "deleted"}],
    ),
    "StenoPollFailures": (
        [
            series("steno_poll_failures_total", "0+6x30", source="dstack/main", endpoint="runs/list"),
            series("steno_poll_duration_seconds_count", "0+12x30", source="dstack/main", endpoint="runs/list"),
        ],
        "25m",
        [{"source": "dstack/main", "endpoint": "runs/list"}],
    ),
    "StenoNoticeFailing": ([series("steno_notices_given_up", "0 1x20")], "10m", [{}]),
    "StenoNotReady": ([series("steno_ready", "1 0x20")], "10m", [{}]),
}
"""Alert → (the series that make it fire, when it does, the labels it has beside its severity and the series')."""

QUIET = [
    series("steno_source_observability", "0x40", source="dstack/main", state="blind"),
    series("steno_record_last_poll_timestamp_seconds", "0+60x40"),
    series("steno_machines", "0x40", phase="unconfirmed"),
    series("steno_machines", "3x40", phase="busy"),
    series("steno_budget_spent_usd", "1100x40"),
    series("steno_budget_limit_usd", "1400x40"),
    series("steno_budget_threshold_ratio", "0.8x40"),
    series("steno_budget_exhausted_timestamp_seconds", "900000x40"),
    series("steno_projection_lag_seconds", "0.2x40"),
    series("steno_run_oldest_seconds", "90000x40", state="running"),
    series("steno_run_oldest_seconds", "90000x40", state="queued"),
    series("steno_run_oldest_seconds", "300x40", state="pulling"),
    series("steno_runs", "0x40", state="lost", reason=""),
    series("steno_runs", "9x40", state="failed", reason="exit_nonzero"),
    series("steno_poll_failures_total", "0+1x40", source="dstack/main", endpoint="runs/list"),
    series("steno_poll_duration_seconds_count", "0+12x40", source="dstack/main", endpoint="runs/list"),
    series("steno_notices_given_up", "0x40"),
    series("steno_ready", "1x40"),
]
"""A service in which all is well, though runs fail and a poll is lost now and then."""


def tool(*words: str) -> subprocess.CompletedProcess[str]:
    """A call of promtool."""
    return subprocess.run(["promtool", *words], capture_output=True, text=True, check=False)


def unit_tests(folder: Path, tests: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """A call of promtool with unit tests."""
    path = folder / "tests.yml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    return tool("test", "rules", str(path))


def test_the_rules_are_valid(prometheus: str) -> None:
    """By Prometheus' own tool."""
    done = tool("check", "rules", str(RULES))
    assert done.returncode == 0, done.stderr
    assert f"{len(alerts())} rules found" in done.stdout


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    """A summary, a description and a line to act by."""
    for name, rule in alerts().items():
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}, name
        assert rule["labels"]["severity"] in {"warning", "critical"}, name
    assert alerts().keys() == CASES.keys()


@pytest.mark.parametrize("name", sorted(CASES))
def test_an_alert_fires_where_it_should(prometheus: str, name: str, tmp_path: Path) -> None:
    """And no other does."""
    given, when, labels = CASES[name]
    firing = {"alertname": name, "alertstate": "firing", **alerts()[name]["labels"]}
    expected = [{"labels": _text("ALERTS", {**firing, **_HERE, **extra}), "value": 1} for extra in labels]
    all_of_them = 'ALERTS{alertstate="firing"}'
    tests = [
        {
            "interval": "1m",
            "input_series": given,
            "promql_expr_test": [{"expr": all_of_them, "eval_time": when, "exp_samples": expected}],
        }
    ]
    done = unit_tests(tmp_path, tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_service_in_which_all_is_well_is_quiet(prometheus: str, tmp_path: Path) -> None:
    """None fires."""
    quiet = {"expr": "count(ALERTS)", "eval_time": "30m", "exp_samples": []}
    done = unit_tests(tmp_path, [{"interval": "1m", "input_series": QUIET, "promql_expr_test": [quiet]}])
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_real_prometheus_scrapes_a_service_by_these_rules(
    prometheus: str, served: Serve, town: Path, tmp_path: Path
) -> None:
    """The target is up, every rule evaluates, and what the record shows is what it fires."""
    here = served(town, budget__total="1400")
    metrics = {
        sample.name
        for family in text_string_to_metric_families(here.client.get("/metrics").text)
        for sample in family.samples
    }
    with running(prometheus, tmp_path, here.url.removeprefix("http://")) as api:
        (target,) = wait(
            lambda: [active for active in _ask(api, "targets")["activeTargets"] if active["health"] == "up"]
        )
        assert target["lastError"] == ""
        (group,) = wait(
            lambda: [
                rules
                for rules in _ask(api, "rules")["groups"]
                if all(rule["health"] == "ok" for rule in rules["rules"])
            ]
        )
        assert {rule["name"] for rule in group["rules"]} == alerts().keys()
        wait(
            lambda: [
                alert for alert in _ask(api, "alerts")["alerts"] if alert["labels"]["alertname"] == "StenoRecorderGone"
            ]
        )
        known = set(_ask(api, "label/__name__/values"))
        assert {name for name in metrics if name.startswith("steno_")} <= known
    named = {name for rule in alerts().values() for name in re.findall("steno_[a-z_]+", rule["expr"])}
    assert named - metrics <= {
        "steno_budget_exhausted_timestamp_seconds",  # nothing is spent
        "steno_poll_failures_total",  # nothing is polled
        "steno_poll_duration_seconds_count",
    }


@contextmanager
def running(prometheus: str, folder: Path, target: str) -> Iterator[httpx.Client]:
    """A Prometheus that scrapes a target every two seconds, on a port of its own, which the system chooses."""
    config = {
        "global": {"scrape_interval": "2s", "scrape_timeout": "2s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "steno", "static_configs": [{"targets": [target]}]}],
    }
    path = folder / "prometheus.yml"
    path.write_text(yaml.safe_dump(config))
    with (
        (folder / "prometheus.log").open("wb") as log,
        subprocess.Popen(
            [
                prometheus,
                f"--config.file={path}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stdout=log,
            stderr=log,
        ) as process,
    ):
        try:
            port = wait(lambda: listening(process))
            with httpx.Client(base_url=f"http://127.0.0.1:{port}/api/v1/", trust_env=False, timeout=LIMIT_S) as api:
                yield api
        finally:
            process.kill()  # its data are nobody's


def listening(process: subprocess.Popen[bytes]) -> int | None:
    """The port a process listens at; None: not yet."""
    assert process.poll() is None
    sockets = set()
    for descriptor in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            sockets.add(str(descriptor.readlink()))
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
            return int(words[1].partition(":")[2], 16)
    return None


def _ask(api: httpx.Client, what: str) -> Any:
    try:
        answer = api.get(what)
    except httpx.TransportError:
        return {"activeTargets": [], "groups": [], "alerts": []}
    return answer.json()["data"] if answer.status_code == 200 else {"activeTargets": [], "groups": [], "alerts": []}
