"""The Grafana dashboard: well formed, over metrics that are served, in PromQL that Prometheus takes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

if TYPE_CHECKING:
    from conftest import Serve

pytestmark = pytest.mark.slow

DASHBOARD: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "docs" / "grafana" / "steno.json").read_text(encoding="utf-8")
)
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}
LABELS = {"le", "job", "instance", "source", "endpoint", "kind", "route", "method", "status"}
"""Labels that Prometheus adds, or of families that have no sample in a quiet service."""


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def targets() -> Iterator[tuple[str, dict[str, Any]]]:
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target


def test_it_is_a_dashboard() -> None:
    """As Grafana asks: ids, places that do not overlap, a data source of the reader's choice."""
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert (DASHBOARD["uid"], DASHBOARD["title"], DASHBOARD["schemaVersion"]) == ("steno", "Steno", 39)
    assert "__inputs" not in DASHBOARD  # provisioning knows no inputs
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    assert variables == {"datasource", "job"}
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    assert all(place["x"] + place["w"] <= 24 and min(place.values()) >= 0 for place in places)
    for place_a, other in combinations(places, 2):
        apart = (
            place_a["x"] + place_a["w"] <= other["x"] or other["x"] + other["w"] <= place_a["x"]
            or place_a["y"] + place_a["h"] <= other["y"] or other["y"] + other["h"] <= place_a["y"]
        )  # fmt: skip
        assert apart, (place_a, other)
    for panel in panels():
        assert panel["type"] in {"timeseries", "stat"}
        assert panel["title"]
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"]
        refs = [target["refId"] for target in panel["targets"]]
        assert refs == sorted(set(refs))
        assert refs
        for part in (panel, *panel["targets"]):
            assert part["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_every_metric_it_shows_is_served(served: Serve, town: Path) -> None:
    """With the labels that its legends name."""
    here = served(town, budget__total="1400")
    names, labels = set[str](), set(LABELS)
    for family in text_string_to_metric_families(here.client.get("/metrics").text):
        names |= {family.name + suffix for suffix in SUFFIXES.get(family.type, ())}
        labels |= {label for sample in family.samples for label in sample.labels}
    used = set[str]()
    for title, target in targets():
        metrics = set(re.findall(r"\bsteno_[a-z_]+", target["expr"]))
        assert metrics, title
        assert metrics <= names, title
        used |= metrics
        assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, title
        selectors = re.findall(r"steno_[a-z_]+({[^}]*})?", target["expr"])
        assert all('job="$job"' in selector for selector in selectors), title
    families = {re.sub("_(total|bucket|count|sum)$", "", name) for name in used}
    assert len(families) > 20


def test_prometheus_takes_every_expression(tmp_path: Path) -> None:
    """As Grafana would send it."""
    if shutil.which("promtool") is None:
        why = "this test needs a Prometheus: `apt-get install prometheus`"
        if os.environ.get("STENO_REQUIRE_LAB") == "1":
            pytest.fail(why)
        pytest.skip(why)
    sent = [target["expr"].replace("$__rate_interval", "2m").replace("$job", "steno") for _, target in targets()]
    assert not [query for query in sent if "$" in query]
    rules = [{"record": f"shown:{number}", "expr": expr} for number, expr in enumerate(sent)]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "shown", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(sent)} rules found" in done.stdout
    path.write_text(yaml.safe_dump({"groups": [{"name": "shown", "rules": [{"record": "x", "expr": "sum by (x"}]}]}))
    done = subprocess.run(["promtool", "check", "rules", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode != 0
