"""Every rule in a sentence: what it looks at, and what follows from that."""

from engine.facts import RunFacts
from engine.rules.evidence import Decisive, decisive

_ENOUGH: dict[Decisive, str] = {
    Decisive.FINAL_STATUS: "The provider calls the run {status}, after which nothing comes",
    Decisive.TERMINATING: "The provider is ending the run and every job has ended",
    Decisive.ENDED: "Every job has ended, in a way that the task's own retry policy does not cover",
}
"""Why an observation was enough for a verdict."""

_RULES: dict[str, str] = {
    "all-exits-zero": "every job's newest submission exited 0, so the run succeeded",
    "stop-asked-for": "the run's reason says that somebody asked for the stop, so it counts as stopped",
    "all-jobs-done": "the provider says that all jobs are done, so the run succeeded",
    "failure-reported": "a job failed, or the run says so, and nobody asked for a stop, so the run failed",
    "ended-unexplained": "nothing says why it ended, so it counts as stopped for an unknown reason",
    "pending": "The provider has taken the run back to its queue; a new attempt follows.",
    "retry": "A higher submission number has appeared: the provider is trying again.",
    "terminating": "The provider is ending the run and has not yet said how it ended; that alone is no verdict.",
    "run-status": "The answer shows no job, so the run's own status moves it forward, and never to an end.",
    "every-job-ending": "Every job is ending or has ended, and the provider has not yet said enough for a verdict.",
    "some-jobs-ended": "Some jobs have ended and others go on, so the run is running.",
    "most-advanced-job": "The most advanced job decides where an open run is, not the run's own lagging status.",
    "ten-answered-minutes": "The provider has answered for ten minutes without this run; that is no verdict: "
    "the run is lost until an answer shows it again.",
    "first-sight": "An answer showed the run for the first time.",
    "submit-failed": "The provider refused the task or could not be reached: it never ran, no poll is about it.",
    "held": "The run waits in Steno's queue; nothing has been said to the provider yet.",
    "no-capacity": "The provider had no machine for it, so the same request is made again later: it waits in Steno's "
    "queue.",
    "submit-abandoned": "The task was never handed to the provider: it never ran, no poll is about it.",
}
"""By the last part of a rule's name."""


def sentence(rule: str | None, facts: RunFacts | None) -> str:
    """What a rule says, in one sentence; `facts` are those of the poll that decided."""
    said = _RULES.get((rule or "").rsplit("/", 1)[-1])
    if said is None:
        return "The run was asked for; no poll has shown it yet." if rule is None else f"The rule {rule} decided."
    why = decisive(facts) if facts is not None else None
    if why is None or said.endswith("."):
        return said if said.endswith(".") else f"{said[:1].upper()}{said[1:]}."
    return f"{_ENOUGH[why].format(status=facts.status if facts is not None else '')}; {said}."
