"""Predicted costs of other policies as text: a table beside the recorded figures, with bars."""

from steno.cli.render import paint, words
from steno.cli.render.words import short
from steno.projections.answers.whatif import Figures, WhatIf

_BAR = 30


def whatif_page(answer: WhatIf, columns: int) -> str:
    """The table, with a bar for each policy of a sweep, and how far it can be trusted."""
    window = f"{words.moment(answer.since)} to {words.moment(answer.until)}"
    lines = [f"{paint.bold(answer.source)}  {answer.runs} runs, {window}"]
    rows = [("recorded", *_cells(answer.recorded), "", "")]
    top = max([answer.recorded.bill_usd, *(each.high.bill_usd for each in answer.predictions)]) or 1
    room = max(10, min(_BAR, columns - 90))
    for each in answer.predictions:
        mark = " ◀ cheapest" if each.policy == answer.cheapest else ""
        bounds = f"{short(each.low.bill_usd)}–{short(each.high.bill_usd)}"
        bar = "█" * max(1, round(room * each.best.bill_usd / top)) if len(answer.predictions) > 1 else ""
        rows.append((each.policy, *_cells(each.best), bounds, bar + mark))
    head = ("POLICY", "BILL", "COLD", "WAIT P50", "WAIT P95", "IDLE", "BILL BETWEEN", "")
    lines += ["", paint.table(head, rows, right=range(1, 6)), ""]
    for each in answer.predictions[:1] if len(answer.predictions) == 1 else ():
        waits = " to ".join(words.lasted(bound.wait_p95_seconds) for bound in (each.low, each.high))
        lines.append(f"p95 wait {waits}, cold starts {each.low.cold_starts} to {each.high.cold_starts}")
    if answer.keep_p95_seconds is not None and answer.cheapest is None:
        lines.append(f"No policy here keeps the p95 wait within {words.lasted(answer.keep_p95_seconds)}.")
    predicted = short(answer.validation.bill_usd)
    lines.append(f"Error of the recorded policy, predicted alike: {answer.error:+.2%} of its bill ({predicted}).")
    if answer.left_out:
        lines.append(f"Left out: {answer.left_out} runs that had no machine, or that Steno did not submit.")
    if refused := max(each.refused for each in answer.predictions):
        lines.append(f"Refused: {refused} runs that need more machines than allowed.")
    if answer.assumed:
        lines.append(f"Assumed, as the record has no example: {', '.join(answer.assumed)}.")
    return "\n".join(lines)


def _cells(figures: Figures) -> tuple[str, ...]:
    waits = map(words.lasted, (figures.wait_p50_seconds, figures.wait_p95_seconds))
    return short(figures.bill_usd), str(figures.cold_starts), *waits, f"{figures.idle_share:.0%}"
