"""The result of a replay as text: one rule set, two side by side, or step by step."""

from collections.abc import Iterator, Mapping, Sequence

from steno.cli.render import paint, words
from steno.cli.render.runs import anomaly_table, gap_table, replayed, side_by_side
from steno.cli.render.vms import listing
from steno.engine.objects import blind_object
from steno.engine.replay.result import Replay, RunDifference, Step
from steno.engine.state.changes import Anomaly, Moved
from steno.engine.state.run import Run
from steno.events.clock import format_time
from steno.projections.answers.evidence import brief, quote


def summary(replay: Replay, columns: int) -> str:
    """Runs with verdicts, machines with bills, then anomalies and gaps."""
    runs = replay.run_objects()
    counts = f"{words.count(replay.events, 'event')}, {words.count(len(runs), 'run')}"
    if replay.vms:
        counts += f", {words.count(len(replay.vms), 'machine')}"
    lines = [f"{paint.bold(replay.rules.name)}  {paint.dim(replay.rules.summary)}", paint.dim(counts)]
    if runs:
        lines += ["", replayed(runs, columns)]
    if replay.vms:
        machines = {vm.vm_id: vm for vm in replay.vms}
        now = max(bill.until for bill in replay.bills.values())
        lines += ["", listing(replay.vm_objects(), machines.__getitem__, lambda _: now, columns)]
    if replay.anomalies:
        lines += ["", anomaly_table(replay.anomalies)]
    if replay.blind:
        lines += ["", gap_table([blind_object(blind) for blind in replay.blind])]
    return "\n".join(lines)


def comparison(left: Replay, right: Replay, differences: Sequence[RunDifference]) -> str:
    """Both verdicts of every run, differences marked."""
    lefts = {run.run_id: run for run in left.run_objects()}
    rights = {run.run_id: run for run in right.run_objects()}
    ids = dict.fromkeys((*lefts, *rights))
    pairs = [(lefts.get(run_id), rights.get(run_id)) for run_id in ids]
    head = f"{words.count(left.events, 'event')}, {words.count(len(ids), 'run')}, "
    verdict = "no difference" if not differences else words.count(len(differences), "difference")
    lines = [paint.dim(head) + paint.bold(verdict)]
    if pairs:
        lines += ["", side_by_side((left.rules.name, right.rules.name), pairs)]
    return "\n".join(lines)


def step_lines(step: Step, runs: Mapping[str, Run]) -> Iterator[str]:
    """A line for each transition and anomaly of a step; `runs` are those of the whole replay."""
    front = f"{step.position:>8}  {words.hour(step.at)}"
    for change in step.changes:
        if isinstance(change, Anomaly):
            yield f"{front}  {paint.bold(change.kind.value)}  {change.detail}"
        elif isinstance(change, Moved) and change.transition is not None:
            run, move = runs[change.run_id], change.transition
            reported = "" if step.poll is None else ", ".join(brief(quote(step.poll, step.position, run.provider_id)))
            arrow = f"{move.before.value} → {paint.state(move.after.value)}"
            yield f"{front}  {paint.bold(run.name or run.run_id)}  {arrow}  {paint.dim(reported)}"


def step_objects(step: Step, runs: Mapping[str, Run]) -> Iterator[dict[str, object]]:
    """A JSON object per transition: `{"position", "at", "run_id", "name", "from", "to", "rule"}`."""
    for change in step.changes:
        if isinstance(change, Moved) and change.transition is not None:
            move = change.transition
            yield {
                "position": step.position,
                "at": format_time(step.at),
                "run_id": change.run_id,
                "name": runs[change.run_id].name,
                "from": move.before.value,
                "to": move.after.value,
                "rule": move.rule,
            }
