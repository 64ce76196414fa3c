"""A record of what a hostile server said: every command still answers, and prints nothing a terminal obeys."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from stenotest.machines import machine_item
from stenotest.story import job, run_item, submission

from cli.program import steno
from cli.wiring.app import App
from cli.wiring.errors import exit_code_of

ODD = {
    "a huge number": "9" * 400,
    "a number beyond 64 bits": str(2**64),
    "a number beyond floats": "1e400",
    "the largest float": "1e308",
    "below zero": "-1e308",
    "a list": "[]",
    "an object": "{}",
    "the year 1": '"0001-01-01T00:00:00+23:59"',
    "the year 9999": '"9999-12-31T23:59:59-23:59"',
    "escapes": r'"\u001b]0;owned\u0007\u001b[2J\u009b2J\r\u202e\u0000\u007f"',
    "more rows": r'"a\nsteno: all is well\nb"',
    "longer than a screen": '"' + "x" * 3000 + '"',
}
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def variants(value: Any) -> Iterator[str]:
    """The JSON text of an item with each value in turn replaced by each odd one, and an id of its own."""
    for number, text in enumerate(_parts(value)):
        if json.dumps(value["id"]) in text:
            yield text.replace(json.dumps(value["id"]), json.dumps(f"{value['id']}/{number}"), 1)


def _parts(value: Any) -> Iterator[str]:
    yield from ODD.values()
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        for odd in _parts(part):
            changed = dict(value) if isinstance(value, dict) else list(value)
            changed[key] = "the odd one"
            yield json.dumps(changed).replace('"the odd one"', odd)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`page("ps")`: a command about a record of some hundred odd runs and machines, in this process."""
    home = tmp_path_factory.mktemp("home")
    ended = submission("done", exit_status=0, hostname="10.0.0.1", price=1.99)
    runs = list(variants(run_item("odd", "done", job(ended), reason="all_jobs_done", cost=0.5)))[::5]
    machines = list(variants(machine_item("fleet-0", "idle", created=1.5)))[::5]
    trace = home / "odd.jsonl"
    with trace.open("w") as file:
        for path, rows in (("/api/runs/list", runs), ("/api/instances/list", machines)):
            for first in range(0, len(rows), 50):
                head = {"t": f"2026-01-01T00:00:{first // 50:02d}Z", "path": path, "status": 200, "ms": 5}
                head["req"] = {"project_name": "main"} if "runs" in path else {"project_names": ["main"]}
                file.write(json.dumps(head)[:-1] + f',"body":[{",".join(rows[first : first + 50])}]}}\n')
    surroundings = {"COLUMNS": "120", "HOME": str(home), "STENO_RECORD": str(home / "record.db"), "FORCE_COLOR": "1"}
    for name in ("STENO_PROVIDER", "STENO_PROJECT", "DSTACK_PROJECT", "NO_COLOR"):
        surroundings[name] = ""

    def show(*words: object) -> Result:
        return CliRunner(env=surroundings).invoke(steno, [str(word) for word in words], obj=App())

    assert len(runs) + len(machines) > 150
    assert show("import", trace).exit_code == 0
    return show


READERS = ("ps --all", "vms --all", "costs --by run", "costs --by vm", "costs --by user", "budget", "polls", "replay")


@pytest.mark.parametrize("command", READERS)
def test_every_reader_answers_and_prints_nothing_a_terminal_obeys(page: Any, command: str) -> None:
    """No value that a server sends ends a command, moves the cursor, sets a title or adds a row of its own."""
    for words in (command.split(), [*command.split(), "--json"]):
        done = page(*words)
        assert done.exit_code == 0, (done.output[-300:], done.exception)
        assert not OBEYED.search(re.sub("\x1b\\[[0-9]{1,2}m", "", done.output.replace("\r\n", "\n")))
    assert not any(line.startswith("steno: all is well") for line in page(*command.split()).output.splitlines())


def test_every_page_of_a_run_and_of_a_machine_answers(page: Any) -> None:
    """Also of those whose times, exit statuses, prices and names cannot be what they say."""
    runs = json.loads(page("ps", "--all", "--json").stdout)["runs"]
    machines = json.loads(page("vms", "--all", "--json").stdout)["vms"]
    assert len(runs) > 50
    calls = [(command, run["run_id"]) for run in runs[::11] for command in ("show", "timeline", "explain")]
    calls += [("explain", machine["vm_id"]) for machine in machines[::11]]
    for words in calls:
        done = page(*words)
        assert done.exit_code == 0, (words, done.output[-300:], done.exception)
        assert not OBEYED.search(re.sub("\x1b\\[[0-9]{1,2}m", "", done.output))


def test_an_argument_that_is_not_utf_8_is_a_mistake_of_usage(page: Any) -> None:
    """The shell hands over any bytes; no run has such a name."""
    assert exit_code_of(page("show", "\udcff").exception) == 2
