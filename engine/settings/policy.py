"""The policy that the settings describe for one provider, checked: what decisions are made by from now on."""

from engine.errors import NotConfigured
from engine.policy import Billing, Policy, Rate
from engine.settings.settings import Settings


def policy_from(settings: Settings, provider: str | None = None) -> Policy:
    """The policy in force for that provider; rates in micro-dollars, times in microseconds. Without a provider: for one
    whose machines have prices. If a provider gives all its machines one price, estimates assume that. A user's rate is
    an override; the shipped rate of the MI300X is what estimates assume without a recorded price.

    Raises:
        NotConfigured: `vms.share = user` without `vms.mode = pool`: a provider chooses among its idle machines without
            asking whose they were.
    """
    mode, share, text = settings.parsed("vms.mode"), settings.find("vms.share"), settings.parsed
    if share.value == "user" and mode != "pool":
        raise NotConfigured(
            f"vms.share is user ({share.source}), and only Steno's own pool can see to that: set vms.mode to pool"
        )
    if settings.hosted(provider):
        return Policy(
            mode="pool",
            max_vms=None,
            idle_timeout=text("vms.idle_timeout"),
            share=share.parsed,
            queue_patience=text("queue.patience"),
            assumed=(),
            budget_total=None,
        )
    rates: dict[bool, tuple[Rate, ...]] = {True: (), False: ()}
    for entry in settings.entries:
        if entry.name.startswith("rates.") and entry.value is not None:
            rates[entry.given] += (Rate(gpu=entry.name.removeprefix("rates."), hourly=entry.parsed),)
    rates[False] += tuple(Rate(gpu=gpu, hourly=price) for gpu, price in settings.prices(provider).items())
    hourly = settings.hourly(provider)
    if hourly is not None:
        rates[False] = (Rate(gpu="", hourly=hourly),) if hourly else ()
    return Policy(
        mode=mode,
        max_vms=None if settings.schedules(provider) else text("vms.max"),
        idle_timeout=text("vms.idle_timeout"),
        share=share.parsed,
        queue_patience=text("queue.patience"),
        rates=rates[True],
        assumed=rates[False],
        billing=_billing(settings),
        budget_total=text("budget.total"),
        thresholds=text("budget.alerts"),
        assumed_duration=text("budget.assumed_duration"),
        free=hourly == 0,
    )


def _billing(settings: Settings) -> tuple[Billing, ...]:
    spans: dict[str, dict[str, int]] = {}
    for entry in settings.entries:
        if entry.name.startswith("billing.") and entry.value is not None:
            backend, _, key = entry.name.removeprefix("billing.").rpartition(".")
            spans.setdefault(backend, {})[key] = entry.parsed
    return tuple(Billing(backend=backend, **found) for backend, found in spans.items())
