"""Offers of the provider for a run, by its newest answers to its own plan."""

from collections.abc import Iterator
from typing import Final

from steno.engine.decide.situation import Situation, terms_of
from steno.engine.state.policy import MINUTE
from steno.engine.state.run import ANY, Range, Requirements, Run
from steno.engine.state.world import PlanAnswer
from steno.engine.wire import DOLLAR

AGAIN: Final = MINUTE  # the provider is not asked the same more often
FRESH: Final = 3 * MINUTE  # an older answer says nothing
_USUAL: Final = {"cpu": Range(2), "memory": Range(8), "disk": Range(100)}
"""Sizes that every offer has, memory and disk in GB: a task that asks for no more does not lack an offer for it."""


def without_offer(situation: Situation, run: Run) -> PlanAnswer | None:
    """The answer that the provider has no machine of any GPU that the run may ask for; None: it may have one."""
    known = situation.state.plans.get(situation.source, {})
    answers = [known.get(key) for _, key in _questions(run)]
    none = [
        answer
        for answer in answers
        if answer is not None and not answer.offers and 0 <= situation.now - answer.at < FRESH
    ]
    return max(none, key=lambda answer: answer.since) if none and len(none) == len(answers) else None


def unanswered(situation: Situation) -> Iterator[tuple[Run, str | None, str]]:
    """The questions about waiting runs, each once: the run, the GPU model instead of its own, the question's key."""
    known, met = situation.state.plans.get(situation.source, {}), set[str]()
    for run in situation.queue:
        for gpu, key in _questions(run):
            last = known.get(key)
            if key not in met and (last is None or not 0 <= situation.now - last.at < AGAIN):
                met.add(key)
                yield run, gpu, key


def _questions(run: Run) -> Iterator[tuple[str | None, str]]:
    """A run that takes no new machine evicts nobody: nothing is asked about it."""
    terms = run.terms
    if terms is not None and terms.plan and terms.creation != "reuse":
        yield from ((gpu, f"{terms.plan} {gpu or ''}".rstrip()) for gpu in (None, *terms.fallback))


def sentence(situation: Situation, run: Run, answer: PlanAnswer) -> str:
    """The provider's answer as a sentence, with the limits of the task that may be the cause."""
    if answer.reason:
        return f"{situation.provider} refuses to plan it: {answer.reason}"
    limits = ", ".join(_limits(terms_of(run)))
    return f"{situation.provider} has no offer for it{f' ({limits})' if limits else ''}"


def _limits(terms: Requirements) -> Iterator[str]:
    if terms.nodes > 1:
        yield f"nodes {terms.nodes}"
    if terms.max_price is not None:
        yield f"max_price {terms.max_price / DOLLAR:g}"
    names = ("backends", "regions", "instance_types", "fleets")
    yield from (f"{name} {' or '.join(given)}" for name in names if (given := getattr(terms, name)))
    if terms.spot is not None:
        yield f"spot_policy {terms.spot}"
    models = " or ".join(dict.fromkeys((*terms.gpu, *terms.fallback)))
    counts = "" if terms.gpu_counts in {ANY, Range(1), Range(1, 1)} else f"{terms.gpu_counts}"
    if models or terms.gpu_vendor:
        yield f"gpu {':'.join(filter(None, (terms.gpu_vendor, models, counts)))}"
    elif counts and terms.gpu_counts != Range(0):
        yield f"number of GPUs {counts}"
    memories = (("memory of a GPU", terms.gpu_memory), ("memory of all GPUs", terms.total_gpu_memory))
    yield from (f"{name} {size} GB" for name, size in memories if size != ANY)
    sizes = (("cpu", terms.cpus, ""), ("memory", terms.memory, " GB"), ("disk", terms.disk, " GB"))
    yield from (f"{name} {size}{unit}" for name, size, unit in sizes if not size.contains(_USUAL[name]))
