"""Whether the provider has a machine for a run at all, by its newest answers to its own plan."""

from collections.abc import Iterator
from typing import Final

from engine.decide.source_view import Scene, terms_of
from engine.fold.run import Run
from engine.fold.world_codec import PlanAnswer
from engine.policy import DOLLAR, MINUTE
from engine.requirements import Requirements

AGAIN: Final = MINUTE  # the provider is not asked the same more often
FRESH: Final = 3 * MINUTE  # an older answer says nothing


def without_offer(scene: Scene, run: Run) -> PlanAnswer | None:
    """The answer that the provider has no machine of any GPU that the run may ask for; None: it may have one."""
    known = scene.state.plans.get(scene.source, {})
    found = [known.get(key) for _, key in _questions(run)]
    none = [one for one in found if one is not None and not one.offers and 0 <= scene.now - one.at < FRESH]
    return max(none, key=lambda one: one.since) if none and len(none) == len(found) else None


def unanswered(scene: Scene) -> Iterator[tuple[Run, str | None, str]]:
    """What to ask about waiting runs, each question once: the run, the GPU model instead of its own, what is asked."""
    known, met = scene.state.plans.get(scene.source, {}), set[str]()
    for run in scene.queue:
        for gpu, key in _questions(run):
            last = known.get(key)
            if key not in met and (last is None or not 0 <= scene.now - last.at < AGAIN):
                met.add(key)
                yield run, gpu, key


def _questions(run: Run) -> Iterator[tuple[str | None, str]]:
    """A run that takes no new machine evicts nobody: nothing is asked about it."""
    terms = run.terms
    if terms is not None and terms.plan and terms.creation != "reuse":
        yield from ((gpu, f"{terms.plan} {gpu or ''}".rstrip()) for gpu in (None, *terms.fallback))


def sentence(scene: Scene, run: Run, answer: PlanAnswer) -> str:
    """What the provider answered, and which limits of the task may be the cause."""
    if answer.reason:
        return f"{scene.provider} refuses to plan it: {answer.reason}"
    limits = ", ".join(_limits(terms_of(run)))
    return f"{scene.provider} has no offer for it{f' ({limits})' if limits else ''}"


def _limits(terms: Requirements) -> Iterator[str]:
    if terms.nodes > 1:
        yield f"nodes {terms.nodes}"
    if terms.max_price is not None:
        yield f"max_price {terms.max_price / DOLLAR:g}"
    names = ("backends", "regions", "instance_types", "fleets")
    yield from (f"{name} {' or '.join(given)}" for name in names if (given := getattr(terms, name)))
    models = (*terms.gpu, *terms.fallback)
    if models:
        yield f"gpu {' or '.join(dict.fromkeys(models))}"
