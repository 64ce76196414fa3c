"""The page of `steno changes`: one line that sums it up, then a table for each kind of change."""

from collections.abc import Iterator, Sequence

from steno.cli.render import paint, words
from steno.cli.render.runs import dated_anomaly_table, gap_table
from steno.projections.answers.changes import ChangedMachine, Changes


def page(answer: Changes, columns: int) -> str:
    return "\n\n".join((_summary(answer), *_tables(answer, columns)))


def is_empty(answer: Changes) -> bool:
    lists = (answer.runs, answer.machines, answer.anomalies, answer.blind, answer.spent, answer.settings)
    return not any(lists) and not answer.submitted


def _summary(answer: Changes) -> str:
    ended = sum(group.count for group in answer.runs)
    bad = sum(group.count for group in answer.runs if group.state != "succeeded")
    parts = [
        f"{words.count(answer.submitted, 'run')} submitted",
        f"{ended:,} ended" + (f" ({bad:,} without success)" if bad else ""),
        *_machines_in_words(answer.machines),
        f"{words.short(answer.total_usd)} spent",
    ]
    whose = "" if answer.user is None else f", {answer.user} only"
    return f"{paint.bold(f'Since {words.moment(answer.start)}{whose}')}: {', '.join(parts)}."


def _machines_in_words(machines: Sequence[ChangedMachine]) -> Iterator[str]:
    for name, verb in (("came_at", "came"), ("ended_at", "ended"), ("vanished_at", "vanished")):
        if number := sum(getattr(machine, name) is not None for machine in machines):
            yield f"{words.count(number, 'machine')} {verb}"


def _tables(answer: Changes, columns: int) -> Iterator[str]:
    if answer.runs:
        rows = [
            (
                paint.cut(paint.plain(group.name), 40) + (f" ({group.count:,} runs)" if group.count > 1 else ""),
                paint.verdict(group.state, group.reason, f"exit {group.exit_status}" if group.exit_status else None),
                paint.plain(group.user),
                words.short(group.cost_usd) if group.cost_usd else "–",
                words.moment(group.last_at),
                paint.cut(group.why, 100) or "–",
            )
            for group in answer.runs
        ]
        yield paint.fitted(
            ("RUNS", "VERDICT", "USER", "COST", "ENDED", "WHY"), rows, columns, right=(3,), spare=(4, 3, 2)
        )
    if answer.machines:
        lines = [
            (
                paint.state(machine.state, paint.plain(machine.name)),
                paint.plain(machine.what),
                machine.gpu,
                paint.plain(machine.user or "–"),
                words.short(machine.cost_usd) if machine.cost_usd else "–",
            )
            for machine in answer.machines
        ]
        yield paint.fitted(
            ("MACHINES", "WHAT HAPPENED", "GPU", "USER", "COST"), lines, columns, right=(4,), spare=(2, 3, 4)
        )
    if answer.anomalies:
        yield dated_anomaly_table(answer.anomalies)
    if answer.blind:
        yield gap_table(answer.blind)
    if answer.spent:
        spent = [(paint.plain(each.user), words.short(each.cost_usd)) for each in answer.spent]
        yield paint.table(("SPENT BY", "COST"), spent, right=(1,))
    if answer.settings:
        settings = [(each.subject, each.what, each.who or "–", words.moment(each.at)) for each in answer.settings]
        yield paint.table(("SETTINGS OF", "CHANGE", "BY", "AT"), settings)
