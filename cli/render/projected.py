"""The calculation behind every cost figure of the first site's documents, as a page and as JSON values."""

import textwrap
from collections.abc import Sequence

import click

from cli.render import paint
from engine.money.model import Inputs
from engine.money.projection import Claim, Verdict
from engine.money.words import money, rate, span, usd
from events.clock import SECOND

_COLOURS = {Verdict.HOLDS: "green", Verdict.PARTLY: "yellow", Verdict.WRONG: "red", Verdict.ADDED: "bright_black"}


def page(inputs: Inputs, claims: Sequence[Claim], columns: int) -> str:
    """What it starts from, then a block a figure: what was said, what comes out, by which calculation, and why."""
    width = min(columns, 100)
    lines = [paint.bold("From"), *_wrapped(_inputs(inputs), width, "  "), ""]
    for one in claims:
        verdict = click.style(one.verdict.value, fg=_COLOURS[one.verdict])
        lines.append(f"{paint.bold(one.topic)}  {verdict}")
        for label, text in (("said", one.seeds), ("is", one.result), ("by", one.formula), ("but", one.why)):
            if text:
                lines += _labelled(label, text, width)
        lines.append("")
    return "\n".join(lines).rstrip()


def inputs_object(inputs: Inputs) -> dict[str, object]:
    """What the calculation starts from, as JSON values."""
    return {
        "usd_per_hour": money(inputs.hourly),
        "provisioning_seconds": inputs.provisioning / SECOND,
        "provisioning_longest_seconds": inputs.provisioning_longest / SECOND,
        "run_seconds": inputs.run / SECOND,
        "warm_start_seconds": inputs.warm_start / SECOND,
        "idle_timeout_seconds": inputs.idle_timeout / SECOND,
        "idle_timeout_configured_seconds": inputs.idle_timeout_configured / SECOND,
        "runs": inputs.runs,
        "tasks_a_day": inputs.tasks_a_day,
        "days": inputs.days,
        "budget_usd": money(inputs.grant),
    }


def claim_object(one: Claim) -> dict[str, object]:
    """One figure as JSON values."""
    return {
        "topic": one.topic,
        "said": one.seeds,
        "formula": one.formula,
        "result": one.result,
        "amount_usd": money(one.amount),
        "verdict": one.verdict.value,
        "why": one.why,
    }


def _inputs(inputs: Inputs) -> str:
    return (
        f"{rate(inputs.hourly)}; making a machine takes {span(inputs.provisioning)} to "
        f"{span(inputs.provisioning_longest)}, a run {span(inputs.run)}, a warm start {span(inputs.warm_start)}; idle "
        f"timeout {span(inputs.idle_timeout)} in the worked example, {span(inputs.idle_timeout_configured)} as "
        f"configured; {inputs.days} days a month; budget {usd(inputs.grant)}"
    )


def _labelled(label: str, text: str, width: int) -> list[str]:
    rows = textwrap.wrap(text, width - 8, break_long_words=False) or [""]
    return [f"  {paint.dim(label.ljust(4))}  {rows[0]}", *(" " * 8 + row for row in rows[1:])]


def _wrapped(text: str, width: int, margin: str) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=margin, subsequent_indent=margin)
