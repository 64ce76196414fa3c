"""`steno show`: what was odd about a run stands below it."""

import json
from pathlib import Path

from stenotest.command_line import Steno
from stenotest.story import Story, single


def test_show_has_the_runs_anomalies(steno: Steno, home: Path) -> None:
    """They are kept under `run/<run id>`; a provider that contradicts itself is one."""
    story = Story()
    for status in ("done", "failed"):
        story.listed(single(run=status)).wait(5)
    assert steno("import", story.write(home / "odd.jsonl")).returncode == 0
    (run,) = json.loads(steno("ps", "--all", "--json").stdout)["runs"]
    (odd,) = json.loads(steno("show", run["run_id"], "--json").stdout)["anomalies"]
    assert (odd["kind"], odd["subject"]) == ("contradiction", f"run/{run['run_id']}")
    assert "contradiction" in steno("show", run["run_id"]).stdout
