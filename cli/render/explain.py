"""The pages of `steno explain`: verdict, cause, rule, evidence, what would change it, anomalies and gaps."""

import textwrap
from collections.abc import Iterable, Sequence

import msgspec

from cli.render import paint, vms, words
from cli.render.runs import called, identity, verdict
from engine.fold.change import Anomaly
from engine.fold.vm import Vm
from engine.objects import VmObject
from projections.models.evidence import Quote, brief
from projections.models.explain import ExplainedStep, Explanation

_MARGIN = "  "


def page(found: Explanation, not_warm: Sequence[str], columns: int) -> str:
    """The whole page, wrapped to `columns` (at most 100); `not_warm` says why it got no warm machine."""
    width = min(columns, 100)
    run = found.run
    lines = [f"{paint.bold(called(run))}  {verdict(run)}", *identity(run), ""]
    lines += [*paint.wrapped(found.why, width), ""]
    sentence = textwrap.wrap(found.sentence, width, initial_indent=_MARGIN, subsequent_indent=_MARGIN)
    lines += _titled("The rule", [*sentence, paint.dim(f"{_MARGIN}{run.rule or '–'}")])
    for one in found.evidence:
        at = f"{words.moment(one.observed_at)}, {one.source} {one.asked}"
        lines += _titled(f"{one.kind.capitalize()} {one.position}, {at}", fields(one, width))
    lines += _items("Which source says what", found.witnesses, width)
    lines += _titled("How it got there", [_step(step, width) for step in found.steps])
    lines += _items("Why not warm", not_warm, width)
    lines += _items("What would have changed it", map(_flip, found.flips), width)
    lines += _odd(found.anomalies, width)
    gaps = [
        f"{words.hour(gap.start)} to {words.hour(gap.end)}, {words.duration(gap.end - gap.start)}: {gap.kind.words}"
        for gap in found.gaps
    ]
    lines += _items("Not seen", gaps, width)
    if found.evidence and found.evidence[-1].kind == "poll":
        lines.append(paint.dim(f"The full answer: steno poll {found.evidence[-1].position}"))
    return "\n".join(lines).rstrip()


def vm_page(
    found: VmObject, machine: Vm, why: Sequence[str], anomalies: Sequence[Anomaly], until: int, columns: int
) -> str:
    """A machine's page: state, why it still runs or ended, anomalies, and its bill so far."""
    width = min(columns, 100)
    head = f"{paint.bold(vms.called(found))}  {vms.verdict(found, machine)}"
    lines = [head, paint.dim(f"{machine.source} {found.provider_id}"), paint.dim(f"machine id {found.vm_id}"), ""]
    lines += _items("Why it still runs" if machine.billed else "Why it has ended", why, width)
    lines += _odd(anomalies, width)
    if found.intervals:
        lines += _titled("Its bill", [f"{_MARGIN}{row}" for row in vms.bill(found, until).splitlines()])
    return "\n".join(lines).rstrip()


def _titled(title: str, rows: list[str]) -> list[str]:
    return [paint.bold(title), *rows, ""] if rows else []


def _items(title: str, texts: Iterable[str], width: int) -> list[str]:
    first, more = f"{_MARGIN}- ", f"{_MARGIN}  "
    return _titled(
        title,
        [row for text in texts for row in textwrap.wrap(text, width, initial_indent=first, subsequent_indent=more)],
    )


def _odd(anomalies: Iterable[Anomaly], width: int) -> list[str]:
    return _items("Anomalies", [f"poll {one.position}: {one.kind}, {one.detail}" for one in anomalies], width)


def fields(one: Quote, width: int) -> list[str]:
    """The quoted values, under the path of the object they belong to."""
    if not one.fields:
        return [f"{_MARGIN}the answer does not show the run"]
    split = [field.path.rpartition(".") for field in one.fields]
    longest = max(len(name) for _, _, name in split)
    rows: list[str] = []
    under = None
    for field, (parent, _, name) in zip(one.fields, split, strict=True):
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
    kind = "poll" if step.said is None else step.said.kind
    front = f"{_MARGIN}{words.hour(step.at)}  {state}  {f'{kind} {step.position}':<11} "
    said = ", ".join(brief(step.said)) if step.said is not None else ""
    return front + paint.dim(paint.cut(said, max(20, width - paint.width(front))))


def _flip(sentence: str) -> str:
    """`Had the job exited 1 → failed/exit_nonzero`."""
    change, colon, verdict_then = sentence.partition(": ")
    return f"{change[:1].upper()}{change[1:]} → {verdict_then}" if colon else sentence
