"""The explanation of a verdict: its rule, its polls, what would flip it, anomalies and gaps."""

import sys
from collections.abc import Iterator

from steno.engine.decide.queue import capacity_sentence
from steno.engine.decide.start_estimate import StartEstimate, start_estimate
from steno.engine.fold.poll_reader import PollReader
from steno.engine.live.adopted_rules import in_force
from steno.engine.objects import RunObject
from steno.engine.providers.registry import READINGS
from steno.engine.rules.cases import case_of
from steno.engine.rules.rule_file import row_named
from steno.engine.rules.sets import Decisive, RuleSet, decider, decisive, flips
from steno.engine.rules.why_ended import cause_now
from steno.engine.state.changes import Anomaly, AnomalyKind
from steno.engine.state.facts import Blame, JobFacts, RunFacts
from steno.engine.state.states import Reason
from steno.engine.state.world import policy_of, source_of
from steno.engine.wire import Position, Shape, Time
from steno.events.clock import parse_time
from steno.events.errors import PositionNotFound
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.answers.decided import ExplainedDecision, decisions_about
from steno.projections.answers.evidence import Quote, message_of, quote, quote_event
from steno.projections.answers.output_cause import OutputCause, OutputCauses
from steno.projections.answers.timeline import Gap, timeline
from steno.projections.answers.waits import wait_of
from steno.projections.read_models.schema import RunRow
from steno.projections.read_models.view import View

_ENOUGH: dict[Decisive, str] = {  # why one observation was enough
    Decisive.FINAL_STATUS: "{provider} reported the final status `{status}`",
    Decisive.TERMINATING: "{provider} is terminating the run, and every job has ended",
    Decisive.ENDED: "Every job has ended, and the task's retry policy does not cover how",
}

_RULES: dict[str, str] = {  # by the last part of a rule's name
    "all-exits-zero": "the last attempt of every job exited 0",
    "stop-asked-for": "the run's reason says that a stop was requested",
    "all-jobs-done": "it says that all jobs are done",
    "master-done": "its master exited 0, and the task ends with its master (`stop_criteria: master-done`): how the "
    "workers exited that were stopped then is not a failure",
    "failed-yet-done": "yet a job of it failed, so the provider contradicts itself, and the run counts as failed",
    "failure-reported": "the run failed, and nobody had requested a stop",
    "ended-unexplained": "nothing says why the run ended",
    "scheduled": "The provider starts it by its schedule until it is stopped; each firing is a run of its own.",
    "not-seen": "The provider shows a later firing: this one is over, and no answer showed its end.",
    "pending": "The provider has put the run back into its queue; a new attempt follows.",
    "retry": "The provider has started a new attempt: a higher submission number appeared.",
    "terminating": "The provider is terminating the run and has not yet reported how it ended.",
    "run-status": "The answer shows no job, so the state follows the run's own status.",
    "every-job-ending": "Every job has ended or is ending; the provider has not yet reported enough for a verdict.",
    "some-jobs-ended": "Some jobs have ended or are ending; the state is that of the most advanced other job.",
    "most-advanced-job": "The state is that of the most advanced job; the run's own status lags behind its jobs.",
    "ten-answered-minutes": "The provider has answered for ten minutes without this run; that is not a verdict: "
    "the run is lost until an answer shows it again.",
    "array": "The state of an array follows from its tasks: the most advanced that has not ended; once all have, the "
    "first that failed, else the first that was stopped.",
    "first-sight": "An answer showed the run for the first time.",
    "submit-failed": "The provider refused the task or could not be reached: it never ran, no poll is about it.",
    "held": "The run waits in Steno's queue; it has not been submitted to the provider yet.",
    "another-run": "A run with this run's mark was taken for it until the provider said that it is another.",
    "no-capacity": "The provider had no machine for it, so the same request is made again later: it waits in Steno's "
    "queue.",
    "never-ran": "Nothing of it ran, so the same request is made again later: it waits in Steno's queue.",
    "submit-abandoned": "The task was never handed to the provider: it never ran, no poll is about it.",
}
_WAITING = "The run is in the provider's queue."


def sentence(
    rule: str | None, facts: RunFacts | None, provider: str = "the provider", *, stop_requested: bool = False
) -> str:
    """A rule in one to three sentences. `facts`: of the deciding poll; `stop_requested`: also if the request came too
    late.
    """
    name = (rule or "").rsplit("/", 1)[-1]
    text = _RULES.get(name)
    if text is None:
        return "The run was requested; no poll has shown it yet." if rule is None else f"The rule {rule} decided."
    if text.endswith("."):
        return text
    why = None if facts is None else decisive(case_of(facts))
    if facts is None or why is None:
        return f"{text[:1].upper()}{text[1:]}."
    if name == "all-exits-zero" and why is Decisive.ENDED:
        return "Every job has ended; the last attempt of every job exited 0."
    enough = _ENOUGH[why].format(provider=provider, status=facts.status)
    if name != "failure-reported":
        return f"{enough}; {text}."
    stop = f"A stop was requested, but {provider} reports none" if stop_requested else "Nobody had requested a stop"
    return f"{enough}. The run failed: {_failure(facts)}. {stop}."


def row_sentence(rule: str | None, rules: RuleSet) -> str | None:
    """A row of a rule file in one sentence; None: another rule decided."""
    decided = row_named(rule, rules.texts)
    if decided is None:
        return None
    file, row = decided
    return f"The row `{row.name}` of the rules `{file.name}` says {row.then}: {row.when}."


def _failure(facts: RunFacts) -> str:
    """The first failure, chosen as the reason is (`steno.engine.rules.sets`)."""
    if facts.cause is Reason.PROVIDER_ERROR:
        return f"its reason is `{facts.reason}`"
    job = decider(facts)
    if job is not None and job.newest is not None and (job.newest.cause is not None or job.newest.exit_status):
        name, exit_status, word = _job(facts, job), job.newest.exit_status, job.newest.reason or job.newest.status
        return f"{name} exited {exit_status}" if exit_status else f"{name} ended with `{word}`"
    return f"its status is `{facts.status}`" + (f" and its reason `{facts.reason}`" if facts.reason else "")


def _job(facts: RunFacts, job: JobFacts) -> str:
    replicas = {job.replica_num for job in facts.jobs} != {0}
    return f"job {job.replica_num}-{job.job_num}" if replicas else f"job {job.job_num}"


class ExplainedStep(Shape, frozen=True, kw_only=True, rename={"state": "to", "quote": "said"}):
    """A transition with the words of the poll that moved the run."""

    position: Position
    at: Time
    state: str
    quote: Quote | None


class Explanation(Shape, frozen=True, kw_only=True, rename={"gaps": "blind"}):
    """Everything that speaks for a verdict, and what would speak against it."""

    run: RunObject
    sentence: str  # what the rule says, in one sentence
    rule: str | None
    evidence: tuple[Quote, ...]
    steps: tuple[ExplainedStep, ...]
    flips: tuple[str, ...]  # what else the provider could have said, and that verdict
    anomalies: tuple[Anomaly, ...]
    gaps: tuple[Gap, ...]
    witnesses: tuple[str, ...]  # one sentence per source, if several, and for what is unknown
    why: str  # cause and remedy, in one sentence
    blame: Blame | None  # where the cause lies; None: nothing went wrong, or it is unknown
    again: bool  # the same task, run again unchanged, may succeed
    output_cause: OutputCause | None  # None: it did not fail, or its output was not recorded
    wait: tuple[str, ...]  # of a run that waits, or waited long: the runs before it, who has the places, what it cost
    start: StartEstimate | None  # of a run that waits: when it may start
    not_warm: tuple[str, ...]  # why it got no warm machine
    decisions: tuple[ExplainedDecision, ...]  # what the policy decided about it


def explain(record: Record, view: View, row: RunRow, now: int, causes: OutputCauses) -> Explanation:
    """The explanation of a run, from the polls that moved it and its output; `now` (microseconds UTC) ends an open
    run's time.
    """
    folded, run = row.decoded, row.public
    positions = {*run.evidence, *(move.position for move in run.transitions)}
    polls = {position: _poll(record, position) for position in positions}

    tasks = view.store.runs.tasks(row) if run.tasks else ()
    shown_as = (folded.listed_as, *folded.former_ids, *(task.provider_id for task in tasks))

    def said(position: int) -> Quote | None:
        poll = polls[position]
        if poll is not None:
            return _quoted(poll, position, shown_as)
        stored = record.at(position)
        return None if stored is None else quote_event(stored)

    decided = polls[run.evidence[-1]] if run.evidence else None
    facts = None if decided is None else _facts(decided, run.provider_id)
    if folded.is_schedule or folded.schedule is not None:
        facts = folded.facts  # one row shows a schedule and its firings
    rules = in_force(record, run.evidence[-1] if run.evidence else None)  # those that decided
    said_by_rule = row_sentence(run.rule, rules) or sentence(
        run.rule, facts, run.provider, stop_requested=folded.stop_by is not None
    )
    waits = None if run.waits is None else f"It waits: {run.waits}."
    if waits is not None and run.attempts == 1 and said_by_rule == _RULES["pending"]:
        said_by_rule = _WAITING
    capacity = capacity_sentence(folded, policy_of(view.state, source_of(folded)), now)
    reading, cause = READINGS.of(run.provider), cause_now(folded, view.state, now, message_of(record, folded))
    here = view.clock(row.archive, now)
    start = start_estimate(view.state, folded, here)
    stopping = "" if folded.stop_by is None or folded.terminal else " Its stop was requested, and it has not ended yet."
    return Explanation(
        run=run,
        witnesses=() if reading is None else reading.testimony(folded.views),
        sentence=" ".join(part for part in (said_by_rule, waits, capacity) if part is not None),
        rule=run.rule,
        evidence=tuple(quote for position in run.evidence if (quote := said(position)) is not None),
        steps=tuple(
            ExplainedStep(position=move.position, at=parse_time(move.at), state=move.target, quote=said(move.position))
            for move in run.transitions
        ),
        flips=() if decided is None or facts is None else _flips(decided, facts, folded.stop_by == "policy", rules),
        anomalies=(*view.anomalies_of(f"run/{row.run_id}"), *_of_machine(view, run)),
        gaps=tuple(
            Gap(source=gap.source, start=gap.start, end=gap.end, kind=gap.kind)
            for gap in timeline(run, view.blind_of(row, now), now, foreign=row.is_foreign).gaps
        ),
        why=cause.why + stopping,
        blame=cause.blame,
        again=cause.again,
        output_cause=causes.of(record, run, folded.provider_id),
        wait=wait_of(view, folded, here, start),
        start=start,
        not_warm=view.why_not_warm(row.run_id),
        decisions=decisions_about(record, view.state, view.state.runs[row.run_id], view.position),
    )


def _of_machine(view: View, run: RunObject) -> Iterator[Anomaly]:
    """The anomalies of its machine's health check, up to the run's end."""
    end = run.transitions[-1].position if run.transitions and run.finished_at is not None else sys.maxsize
    for anomaly in () if run.vm_id is None else view.anomalies_of(f"vm/{run.vm_id}"):
        if anomaly.kind is AnomalyKind.UNHEALTHY and anomaly.position <= end:
            yield anomaly


def _flips(poll: Poll, facts: RunFacts, by_policy: bool, rules: RuleSet) -> tuple[str, ...]:
    """Answers that would have flipped the verdict; none if nobody reads the provider's words."""
    reading = READINGS.asked(poll.path, poll.req)[1]
    if reading is None:
        return ()
    answers = flips(facts, lambda other: rules.move(other, stopped_by_policy=by_policy), reading.alternatives(facts))
    return tuple(map(str, answers))


def _quoted(poll: Poll, position: int, provider_ids: tuple[str | None, ...]) -> Quote:
    """A poll's evidence about a run under any of its provider ids."""
    quotes = (quote(poll, position, provider_id) for provider_id in provider_ids)
    first = next(quotes)
    return first if first.fields else next((other for other in quotes if other.fields), first)


def _poll(record: Record, position: int) -> Poll | None:
    """The poll there; None for one of our own intents."""
    try:
        return record.poll(position)
    except PositionNotFound:
        return None


def _facts(poll: Poll, provider_id: str | None) -> RunFacts | None:
    listed = (seen.facts for seen in PollReader(READINGS).read(0, poll).runs)
    return next((facts for facts in listed if facts.provider_id == provider_id), None)
