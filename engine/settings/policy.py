"""The policy that the settings describe for one provider, checked: what decisions are made by from now on."""

from engine.errors import NotConfigured
from engine.fold.world_codec import WorldState
from engine.policy import Billing, Policy, Rate
from engine.settings.settings import Settings
from engine.settings.values import budget, machines, positive_duration, rate, thresholds, timeout
from events.clock import parse_duration

_MINIMUM, _GRANULARITY = ".minimum", ".granularity"


def policy_from(settings: Settings, provider: str | None = None) -> Policy:
    """The policy in force for that provider; rates in micro-dollars, times in microseconds.

    Without a provider it is that of one whose machines have prices. Where a provider gives all its machines one price,
    that is what estimates assume. A rate that somebody set is an override; the shipped one of the MI300X is what
    estimates assume where no price was ever recorded.

    Raises:
        NotConfigured: `vms.share = user` without `vms.mode = pool`: a provider chooses among its idle machines without
            asking whose they were.
    """
    mode, share = _text(settings, "vms.mode"), _text(settings, "vms.share")
    if share == "user" and mode != "pool":
        raise NotConfigured(
            f"vms.share is user ({settings.find('vms.share').source}), and only Steno's own pool can see to that: "
            "set vms.mode to pool"
        )
    overrides, assumed = _rates(settings)
    hourly = settings.hourly(provider)
    if hourly is not None:
        assumed = (Rate(gpu="", hourly=hourly),) if hourly else ()
    return Policy(
        mode="pool" if mode == "pool" else "provider",
        max_vms=machines(_text(settings, "vms.max")),
        idle_timeout=timeout(_text(settings, "vms.idle_timeout")),
        share="user" if share == "user" else "any",
        queue_patience=parse_duration(_text(settings, "queue.patience")),
        rates=overrides,
        assumed=assumed,
        billing=_billing(settings),
        budget_total=budget(_text(settings, "budget.total")),
        thresholds=thresholds(_text(settings, "budget.alerts")),
        assumed_duration=positive_duration(_text(settings, "budget.assumed_duration")),
        free=hourly == 0,
    )


def policy_in_force(state: WorldState, source: str, settings: Settings) -> Policy:
    """The policy that the record has for a source, else the settings' own.

    Raises:
        NotConfigured: as `policy_from`.
    """
    adopted = state.policies.get(source)
    return adopted[-1].policy if adopted else policy_from(settings, source.partition("/")[0])


def _text(settings: Settings, name: str) -> str:
    return settings.value(name) or ""


def _rates(settings: Settings) -> tuple[tuple[Rate, ...], tuple[Rate, ...]]:
    """(what somebody set, what is only assumed), each in the order of `steno config`."""
    found = [
        (entry.given, Rate(gpu=entry.name.removeprefix("rates."), hourly=rate(entry.value)))
        for entry in settings.entries
        if entry.name.startswith("rates.") and entry.value is not None
    ]
    return tuple(one for given, one in found if given), tuple(one for given, one in found if not given)


def _billing(settings: Settings) -> tuple[Billing, ...]:
    spans = {
        entry.name.removeprefix("billing."): parse_duration(entry.value)
        for entry in settings.entries
        if entry.name.startswith("billing.") and entry.value is not None
    }
    backends = dict.fromkeys(name.rsplit(".", 1)[0] for name in spans)
    return tuple(
        Billing(
            backend=backend,
            minimum=spans.get(backend + _MINIMUM, 0),
            granularity=spans.get(backend + _GRANULARITY, 0),
        )
        for backend in backends
    )
