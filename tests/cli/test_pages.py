"""Whole pages, as a person sees them on a terminal of eighty columns."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cli.program import steno
from cli.wiring.app import App

TRACES = Path(__file__).parent.parent / "traces" / "dstack-0.22.5"

Page = Callable[..., Result]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """`page("show", "bad-run")`: a command about a record of one failed run, in this process."""
    home = tmp_path_factory.mktemp("home")
    surroundings = {"COLUMNS": "80", "NO_COLOR": "1", "HOME": str(home), "STENO_RECORD": str(home / "record.db")}
    for name in ("STENO_PROVIDER", "STENO_PROJECT", "DSTACK_PROJECT", "FORCE_COLOR"):
        surroundings[name] = ""

    def show(*words: object) -> Result:
        return CliRunner(env=surroundings).invoke(steno, [str(word) for word in words], obj=App())

    assert show("import", TRACES / "failure.jsonl.zst").exit_code == 0
    return show


EXPLAINED = """\
bad-run  ● failed · exit_nonzero · exit 1
dstack 32df2f72-b39d-405e-adbb-c03f6fa16996
run id f6a1948d-829e-5802-affc-b1b28751ac63

It exited 1; read its output: `steno logs bad-run --tail 50`.

The rule
  Every job has ended, and the task's retry policy does not cover how. The run
  failed: job 0 exited 1. Nobody had requested a stop.
  current@1/failure-reported

Poll 316, 2026-11-20 13:40:15Z, dstack/failure /api/project/failure/runs/get
  .
    status              "running"
    termination_reason  null
  .jobs[0].job_submissions[0]
    status              "terminating"
    termination_reason  "container_exited_with_error"
    exit_status         1

How it got there
  13:39:26.9Z  queued        poll 2      run submitted, job submitted
  13:39:27.9Z  provisioning  poll 16     run submitted, job provisioning
  13:39:49.0Z  pulling       poll 150    run provisioning, job pulling
  13:40:04.1Z  running       poll 242    run provisioning, job running
  13:40:15.1Z  failed        poll 316    run running, job terminating, containe…

Why not warm
  - There was no earlier machine.

What would have changed it
  - Had the job exited 0 → succeeded/exit_zero
  - Had the job still been running → no verdict yet (running)
  - Had the task's retry policy covered how the job ended → no verdict yet
    (finishing)
  - Had the run been stopped before its end → stopped/stopped_by_user

The full answer: steno poll 316
"""

DRAWN = """\
bad-run  ● failed · exit_nonzero · exit 1
dstack 32df2f72-b39d-405e-adbb-c03f6fa16996
run id f6a1948d-829e-5802-affc-b1b28751ac63
submitted 2026-11-20 13:39:26Z  ran 20.9 s  cold start
cost $0.0321, dstack says $0.0321

not yet seen   ·                                                         86 ms
queued         █▏                                                        0.9 s
provisioning    ██████████████████████▉                                 21.1 s
pulling                               ████████████████▋                 15.1 s
running                                                ████████████     11.1 s
               └─────────┴──────────┴──────────┴──────────┴────────     48.2 s
               0         10 s       20 s       30 s       40 s
its machine
provisioning   ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒                                       16.5 s
busy                            ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒     31.6 s
"""


def lines(text: str) -> list[str]:
    """The lines of a page; spaces at their ends are not seen."""
    return [line.rstrip() for line in text.splitlines()]


def test_explain_is_verdict_rule_polls_and_what_would_flip_it(page: Page) -> None:
    """Who reads it needs no other source."""
    assert lines(page("explain", "bad-run").stdout) == lines(EXPLAINED)


def test_a_timeline_shows_where_the_time_went(page: Page) -> None:
    """One bar a state on one scale."""
    assert lines(page("timeline", "bad-run").stdout) == lines(DRAWN)


def test_no_page_is_wider_than_the_terminal(page: Page) -> None:
    """Lines that wrap are not read."""
    for words in (["ps", "--all"], ["show", "bad-run"], ["timeline", "bad-run"], ["explain", "bad-run"], ["replay"]):
        done = page(*words)
        assert done.exit_code == 0, done.output
        assert [line for line in done.stdout.splitlines() if len(line) > 80] == [], words


def test_nothing_is_coloured_where_nobody_wants_it(page: Page) -> None:
    """NO_COLOR, and no terminal."""
    assert "\x1b" not in page("explain", "bad-run").output
