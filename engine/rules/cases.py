"""Cases: all that a rule may see of one observation. They are few: a run of 64 nodes has the cases of a run of two.

A case holds no id, name, time, attempt number or word of a provider, so a rule set is a table with a row for each.
"""

from typing import Final

import msgspec

from steno.engine.state.facts import JobFacts, RunFacts
from steno.engine.state.states import Reason, State


class AttemptCase(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The newest attempt of a job; its fields are those of `AttemptFacts`."""

    ended: bool = False
    state: State | None = None
    failed: bool = False
    cause: Reason | None = None
    retried: bool = False
    exit_status: int | None = None
    decides: bool = True  # as `JobFacts.decides`

    @property
    def fails(self) -> bool:
        """It failed, by its reason or status, or by its exit status if that counts."""
        return self.cause is not None or self.failed or (self.decides and bool(self.exit_status))


class RunCase(msgspec.Struct, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """An observation of a run, as rules see it; its fields are those of `RunFacts`."""

    final: bool = False
    finite: bool = True
    requeued: bool = False
    scheduled: bool = False  # it is a schedule
    state: State | None = None
    failed: bool = False
    cause: Reason | None = None
    stopped_by_policy: bool = False  # our newest request to stop this run came from a policy
    bare: bool = False  # a job shows no attempt
    attempts: tuple[AttemptCase, ...] = ()
    """The distinct newest attempts of its jobs, in order of first appearance: the first is of the first job."""


encode_case: Final = msgspec.json.Encoder().encode
decode_case: Final = msgspec.json.Decoder(RunCase).decode


def attempt_case(job: JobFacts) -> AttemptCase | None:
    """The case of a job's newest attempt; None: it shows none."""
    newest = job.newest
    if newest is None:
        return None
    return AttemptCase(
        ended=newest.ended,
        state=newest.state,
        failed=newest.failed,
        cause=newest.cause,
        retried=newest.retried,
        exit_status=newest.exit_status,
        decides=job.decides,
    )


def case_of(facts: RunFacts, *, stopped_by_policy: bool = False) -> RunCase:
    """The case of an observation."""
    attempts = dict.fromkeys(map(attempt_case, facts.jobs))
    return RunCase(
        final=facts.final,
        finite=facts.finite,
        requeued=facts.requeued,
        scheduled=facts.schedule is not None,
        state=facts.state,
        failed=facts.failed,
        cause=facts.cause,
        stopped_by_policy=stopped_by_policy,
        bare=None in attempts,
        attempts=tuple(attempt for attempt in attempts if attempt is not None),
    )
