"""The exit code of who waits for a run, by the table of causes."""

from __future__ import annotations

from itertools import product

from msgspec.structs import replace

from cli.wiring.errors import CODES, NOT_SUCCEEDED, UNREACHABLE
from cli.wiring.session import code_of_failure
from engine.act.submitter import REFUSALS
from engine.decide import reasons
from engine.decide.why_ended import cause
from engine.facts import Finding, RunFacts
from engine.fold.run import Run
from engine.providers.dstack.endings import MESSAGES, REASONS
from engine.providers.slurm.words import ENDINGS
from engine.states import Reason, State


def ended(state: State, reason: Reason | None, provider_id: str | None, row: Finding | None = None) -> Run:
    run = Run(run_id="r", provider="dstack", first_position=1, first_at=0, last_position=1, last_at=0)
    run.state, run.reason, run.provider_id = state, reason, provider_id
    run.facts = None if row is None else RunFacts(provider_id="p", ending=row)
    return run


def code(run: Run) -> int:
    return code_of_failure(run, cause(run))


def test_of_every_row_the_exit_code_is_the_documented_one() -> None:
    """1 for whatever a provider had, whoever is to blame for its end; 3 where the provider failed to take it."""
    rows = (None, *(row for table in (REASONS, MESSAGES, ENDINGS) for row in table.values()))
    ends = (State.FAILED, State.STOPPED, State.LOST)
    for state, reason, row in product(ends, (None, *Reason), rows):
        assert code(ended(state, reason, "p", row and replace(row, word="w"))) == NOT_SUCCEEDED
    for reason in reasons.NOT_HANDED_OVER:
        wanted = UNREACHABLE if reason is Reason.UNREACHABLE else NOT_SUCCEEDED
        assert code(ended(State.FAILED, reason, None)) == wanted
    assert CODES[REFUSALS["unreachable"]] == UNREACHABLE
