"""Our figures beside the provider's, every difference by its cause."""

from collections.abc import Sequence

from cli.render import paint, words
from engine.fold.world_codec import WorldState
from engine.money.reconcile import Difference, Reconciliation
from engine.money.words import money


def page(runs: Sequence[Reconciliation], everything: Reconciliation, state: WorldState, columns: int) -> str:
    """One row a run, then everything; the causes sum to the difference exactly."""
    head = ("RUN", "OURS", "THEIRS", "DIFFERENCE", "BECAUSE OF")
    rows = [(*_figures(_name(one, state), one), _causes(one.lines)) for one in runs]
    total = _figures("everything", everything)
    drawn = paint.fitted(head, [*rows, (*total, "")], columns + 60, right=(1, 2, 3), spare=())
    lines = ["\n".join(_cut(line, columns) for line in drawn.splitlines()), "", paint.bold("Ours, less theirs")]
    width = max((len(line.cause.value) for line in everything.lines), default=0)
    lines += [f"  {line.cause.value.ljust(width)}  {_signed(line.amount):>12}" for line in everything.lines]
    lines.append(f"  {'together'.ljust(width)}  {_signed(_difference(everything) or 0):>12}")
    if any(one.divergence for one in runs):
        lines += ["", "unexplained: dstack's figure is not what its own submissions give"]
    return "\n".join(lines)


def _figures(name: str, one: Reconciliation) -> tuple[str, str, str, str]:
    difference = _difference(one)
    return (
        paint.cut(name, 32),
        words.short(money(one.ours)),
        words.short(money(one.theirs)),
        "–" if difference is None else _signed(difference),
    )


def _causes(lines: Sequence[Difference]) -> str:
    ordered = sorted(lines, key=lambda line: -abs(line.amount))
    return ", ".join(f"{line.cause.value} {_signed(line.amount)}" for line in ordered)


def _cut(line: str, columns: int) -> str:
    return line if paint.width(line) <= columns else paint.cut(line, columns)


def _difference(one: Reconciliation) -> int | None:
    return None if one.theirs is None else one.ours - one.theirs


def _signed(amount: int) -> str:
    sign = "+" if amount > 0 else "−" if amount < 0 else ""
    return f"{sign}{words.short(money(abs(amount)))}"


def _name(one: Reconciliation, state: WorldState) -> str:
    run = state.runs.get(one.run_id or "")
    return (None if run is None else run.name) or one.run_id or "–"
