"""Every rule in a sentence: what it looks at, and what follows from that."""

from engine.facts import JobFacts, RunFacts
from engine.rules.current import Decisive, decisive
from engine.states import Reason

_ENOUGH: dict[Decisive, str] = {
    Decisive.FINAL_STATUS: "{provider} reported the final status `{status}`",
    Decisive.TERMINATING: "{provider} is terminating the run, and every job has ended",
    Decisive.ENDED: "Every job has ended, and the task's retry policy does not cover how",
}
"""Why an observation was enough for a verdict."""

_RULES: dict[str, str] = {
    "all-exits-zero": "the last attempt of every job exited 0",
    "stop-asked-for": "the run's reason says that a stop was requested",
    "all-jobs-done": "it says that all jobs are done",
    "failure-reported": "the run failed, and nobody had requested a stop",
    "ended-unexplained": "nothing says why the run ended",
    "pending": "The provider has put the run back into its queue; a new attempt follows.",
    "retry": "The provider has started a new attempt: a higher submission number appeared.",
    "terminating": "The provider is terminating the run and has not yet reported how it ended.",
    "run-status": "The answer shows no job, so the state follows the run's own status.",
    "every-job-ending": "Every job has ended or is ending; the provider has not yet reported enough for a verdict.",
    "some-jobs-ended": "Some jobs have ended and others still run, so the run is running.",
    "most-advanced-job": "The state is that of the most advanced job; the run's own status lags behind its jobs.",
    "ten-answered-minutes": "The provider has answered for ten minutes without this run; that is no verdict: "
    "the run is lost until an answer shows it again.",
    "first-sight": "An answer showed the run for the first time.",
    "submit-failed": "The provider refused the task or could not be reached: it never ran, no poll is about it.",
    "held": "The run waits in Steno's queue; it has not been submitted to the provider yet.",
    "another-run": "A run with this run's mark was taken for it until the provider said that it is another.",
    "no-capacity": "The provider had no machine for it, so the same request is made again later: it waits in Steno's "
    "queue.",
    "submit-abandoned": "The task was never handed to the provider: it never ran, no poll is about it.",
}
"""By the last part of a rule's name."""


def sentence(
    rule: str | None, facts: RunFacts | None, provider: str = "the provider", *, stop_requested: bool = False
) -> str:
    """What a rule says, in one to three sentences.

    Args:
        facts: those of the poll that decided.
        stop_requested: somebody asked Steno to stop the run, whether or not that came in time.
    """
    name = (rule or "").rsplit("/", 1)[-1]
    said = _RULES.get(name)
    if said is None:
        return "The run was requested; no poll has shown it yet." if rule is None else f"The rule {rule} decided."
    if said.endswith("."):
        return said
    why = None if facts is None else decisive(facts)
    if facts is None or why is None:
        return f"{said[:1].upper()}{said[1:]}."
    if name == "all-exits-zero" and why is Decisive.ENDED:
        return "Every job has ended; the last attempt of every job exited 0."
    enough = _ENOUGH[why].format(provider=provider, status=facts.status)
    if name != "failure-reported":
        return f"{enough}; {said}."
    stop = f"A stop was requested, but {provider} reports none" if stop_requested else "Nobody had requested a stop"
    return f"{enough}. The run failed: {_failure(facts)}. {stop}."


def _failure(facts: RunFacts) -> str:
    """What failed first, as the verdict's reason is chosen (`engine.rules.current`)."""
    if facts.cause is Reason.PROVIDER_ERROR:
        return f"its reason is `{facts.reason}`"
    failing = [job for job in facts.jobs if job.newest is not None and job.newest.cause is not None]
    failing += [job for job in facts.jobs if job.newest is not None and job.newest.exit_status]
    for job in failing:
        if job.newest is not None:
            name, exit_status = _job(facts, job), job.newest.exit_status
            return f"{name} exited {exit_status}" if exit_status else f"{name} ended with `{job.newest.reason}`"
    return f"its status is `{facts.status}`" + (f" and its reason `{facts.reason}`" if facts.reason else "")


def _job(facts: RunFacts, job: JobFacts) -> str:
    replicas = {one.replica_num for one in facts.jobs} != {0}
    return f"job {job.replica_num}-{job.job_num}" if replicas else f"job {job.job_num}"
