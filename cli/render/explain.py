"""The pages of `steno explain`: verdict, cause, rule, evidence, what would change it, anomalies and gaps."""

import textwrap
from collections.abc import Iterable, Sequence

import msgspec

from steno.cli.render import paint, vms, words
from steno.cli.render.runs import called, identity, verdict
from steno.engine.objects import VmObject
from steno.engine.state.changes import Anomaly
from steno.engine.state.states import State
from steno.engine.state.vm import Vm
from steno.events.clock import duration
from steno.projections.answers.decided import ExplainedDecision
from steno.projections.answers.evidence import Quote, brief
from steno.projections.answers.explain import ExplainedStep, Explanation
from steno.projections.answers.output_cause import OutputCause

_MARGIN = "  "
_QUOTED = 300  # characters of a line of output


def page(explanation: Explanation, columns: int) -> str:
    """The whole page, wrapped to `columns` (at most 100)."""
    width = min(columns, 100)
    run = explanation.run
    lines = [f"{paint.bold(called(run))}  {verdict(run)}", *identity(run), ""]
    lines += [*paint.wrapped(explanation.why, width), ""]
    lines += _titled("What its output says", _output(explanation.output_cause, width))
    sentence = textwrap.wrap(explanation.sentence, width, initial_indent=_MARGIN, subsequent_indent=_MARGIN)
    lines += _titled("The rule", [*sentence, paint.dim(f"{_MARGIN}{run.rule or '–'}")])
    for quote in explanation.evidence:
        at = f"{words.moment(quote.observed_at)}, {quote.source} {quote.title}"
        lines += _titled(f"{quote.kind.capitalize()} {quote.position}, {at}", fields(quote, width))
    lines += _items("Which source says what", explanation.witnesses, width)
    lines += _titled("How it got there", [_step(step, width) for step in explanation.steps])
    lines += _items("Its wait", explanation.wait, width)
    lines += _items("Why not warm", explanation.not_warm, width)
    lines += _items("What was decided", map(_decided, explanation.decisions), width)
    lines += _items("What would have changed it", map(_flip, explanation.flips), width)
    lines += _odd(explanation.anomalies, width)
    gaps = [
        f"{words.hour(gap.start)} to {words.hour(gap.end)}, {duration(gap.end - gap.start)}: {gap.kind.words}"
        for gap in explanation.gaps
    ]
    lines += _items("Not seen", gaps, width)
    if explanation.evidence and explanation.evidence[-1].kind == "poll":
        lines.append(paint.dim(f"The full answer: steno poll {explanation.evidence[-1].position}"))
    if run.state == State.FAILED and run.started_at is not None and explanation.output_cause is None:
        lines.append(paint.dim(f"The line of its output that explains it: steno logs {called(run)} | steno causes -"))
    return "\n".join(lines).rstrip()


def _output(cause: OutputCause | None, width: int) -> list[str]:
    if cause is None:
        return []
    missing = f"; {cause.missing:,} bytes are not kept any more" if cause.missing else ""
    if cause.line is None:
        return [f"{_MARGIN}no line of the {cause.read:,} bytes that were read explains the end{missing}"]
    blame = "" if cause.blame is None else f", blame: {cause.blame.value}"
    rows = [
        f"{_MARGIN}{paint.bold(cause.cause)}{blame}",
        *textwrap.wrap(quoted(cause.line), width, initial_indent=_MARGIN * 2),
    ]
    where = f"bytes {cause.start:,} to {cause.end:,} of the output, event {cause.chunk:,}, rule {cause.rule}{missing}"
    return [
        *rows,
        paint.dim(f"{_MARGIN * 2}{where}"),
        *textwrap.wrap(cause.remedy or "", width, initial_indent=_MARGIN),
    ]


def quoted(line: str) -> str:
    """A line of output, cut where it is long, with nothing in it that steers the terminal."""
    return f"“{paint.visible(line if len(line) <= _QUOTED else f'{line[:_QUOTED]}…')}”"


def vm_page(
    answer: VmObject,
    machine: Vm,
    why: Sequence[str],
    decided: Sequence[ExplainedDecision],
    anomalies: Sequence[Anomaly],
    until: int,
    columns: int,
) -> str:
    """A machine's page: state, why it still runs or ended, anomalies, and its bill so far."""
    width = min(columns, 100)
    head = f"{paint.bold(vms.called(answer))}  {vms.verdict(answer, machine)}"
    lines = [head, paint.dim(f"{machine.source} {answer.provider_id}"), paint.dim(f"machine id {answer.vm_id}"), ""]
    lines += _items("Why it still runs" if machine.billed else "Why it has ended", why, width)
    lines += _items("What was decided", map(_decided, decided), width)
    lines += _odd(anomalies, width)
    if answer.intervals:
        lines += _titled("Its bill", [f"{_MARGIN}{row}" for row in vms.bill(answer, until).splitlines()])
    return "\n".join(lines).rstrip()


def _decided(made: ExplainedDecision) -> str:
    polls = ", ".join(f"{position:,}" for position in made.polls) or "none"
    return f"{words.hour(made.at)} event {made.position:,}: {made.why} (polls {polls})"


def _titled(title: str, rows: list[str]) -> list[str]:
    return [paint.bold(title), *rows, ""] if rows else []


def _items(title: str, texts: Iterable[str], width: int) -> list[str]:
    first, more = f"{_MARGIN}- ", f"{_MARGIN}  "
    return _titled(
        title,
        [row for text in texts for row in textwrap.wrap(text, width, initial_indent=first, subsequent_indent=more)],
    )


def _odd(anomalies: Iterable[Anomaly], width: int) -> list[str]:
    return _items(
        "Anomalies", [f"poll {anomaly.position}: {anomaly.kind}, {anomaly.detail}" for anomaly in anomalies], width
    )


def fields(quote: Quote, width: int) -> list[str]:
    """The quoted values, under the path of the object they belong to."""
    if not quote.fields:
        return [f"{_MARGIN}the answer does not show the run"]
    split = [field.path.rpartition(".") for field in quote.fields]
    longest = max(len(name) for _, _, name in split)
    rows: list[str] = []
    under = None
    for field, (parent, _, name) in zip(quote.fields, split, strict=True):
        if parent != under:
            under = parent
            rows.append(paint.dim(f"{_MARGIN}{parent or '.'}"))
        first = f"{_MARGIN * 2}{paint.dim(name.ljust(longest))}  "
        text = msgspec.json.encode(field.value).decode()
        value = paint.wrapped(text, max(24, width - longest - 6))
        rows.append(first + value[0])
        rows += [" " * (longest + 6) + more for more in value[1:4]]
    return rows


def _step(step: ExplainedStep, width: int) -> str:
    state = paint.pad(paint.state(step.state), 12)
    kind = "poll" if step.quote is None else step.quote.kind
    front = f"{_MARGIN}{words.hour(step.at)}  {state}  {f'{kind} {step.position}':<11} "
    brief_quote = ", ".join(brief(step.quote)) if step.quote is not None else ""
    return front + paint.dim(paint.cut(brief_quote, max(20, width - paint.width(front))))


def _flip(sentence: str) -> str:
    """`Had the job exited 1 → failed/exit_nonzero`."""
    change, colon, verdict_then = sentence.partition(": ")
    return f"{change[:1].upper()}{change[1:]} → {verdict_then}" if colon else sentence
