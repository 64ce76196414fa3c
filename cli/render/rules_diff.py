"""The runs that a rule set changes, as text, as Markdown and as a JUnit report."""

from collections.abc import Iterator
from xml.etree import ElementTree

from steno.cli.render import paint, words
from steno.engine.replay.result import Opinion
from steno.engine.wire import usd
from steno.projections.answers.evidence import Quote, brief
from steno.projections.answers.rules_diff import RulesDiff, RunChange

_MOST = 40  # lines of a list of costs; --json has all


def diff_text(diff: RulesDiff, record: str | None = "") -> str:
    """The runs that change, and the costs; or the smallest case on which the two differ. `record`: the option that
    names the record; None: it is a trace, which `steno bisect` does not read.
    """
    left, right = diff.rules
    lines = [paint.dim(f"{_how(diff)}: ") + paint.bold(_verdict(diff))]
    if diff.changes:
        sets, width = f"{left} {right}{record}", 4 if record is None else 5
        cells = [(*_row(change), f"steno bisect {change.run_id[:13]} {sets}")[:width] for change in diff.changes]
        lines += ["", paint.table(("RUN", left, right, "PART AT", "SEE")[:width], cells, right=(3,))]
    if diff.costs:
        lines += ["", paint.table(("COST OF", left, right), _costs(diff)[:_MOST], right=(1, 2))]
        more = len(diff.costs) - _MOST
        lines += [paint.dim(f"and {more:,} more; --json lists all")] if more > 0 else []
    return "\n".join((*lines, *_smallest(diff)))


def diff_markdown(diff: RulesDiff) -> str:
    """A heading, a line and tables, for the summary of a CI job."""
    left, right = diff.rules
    lines = [f"### Rules {left} → {right}", "", f"**{_verdict(diff)}** ({_how(diff)})"]
    changes = [_row(change) for change in diff.changes]
    for head, rule, rows in (
        (("run", left, right, "part at"), "|---|---|---|--:|", changes),
        (("cost of", left, right), "|---|--:|--:|", _costs(diff)),
    ):
        drawn = [f"| {' | '.join(map(_cell, row))} |" for row in (head, *rows)]
        lines += ["", drawn[0], rule, *drawn[1:]] if rows else []
    return "\n".join((*lines, *_smallest(diff)))


def junit_of(diff: RulesDiff) -> bytes:
    """A failure for each run that changes; if there is none, one test that passed."""
    left, right = diff.rules
    suite = ElementTree.Element("testsuite", name=f"steno rules diff {left} {right}")
    suite.set("tests", str(max(1, len(diff.changes))))
    suite.set("failures", str(len(diff.changes)))
    for change in diff.changes:
        name = f"{_plain(change.name or '')} {change.run_id}".strip()
        case = ElementTree.SubElement(suite, "testcase", classname="steno.rules", name=name)
        message = f"{left}: {_opinion(change.left)}; {right}: {_opinion(change.right)}; part at {change.position}"
        ElementTree.SubElement(case, "failure", message=message)
    if not diff.changes:
        ElementTree.SubElement(suite, "testcase", classname="steno.rules", name="no run changes")
    text: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def parting_text(rules: tuple[str, str], name: str, change: RunChange | None, poll: Quote | None) -> str:
    """Where two rule sets part about one run, and what was answered there."""
    if change is None:
        return f"{rules[0]} and {rules[1]} make the same history of {name}"
    rows = [
        ("run", name),
        ("part at", "" if change.position is None else f"position {change.position}"),
        (rules[0], _opinion(change.left)),
        (rules[1], _opinion(change.right)),
    ]
    lines = []
    if poll is not None:
        rows.append(("answered", f"{words.moment(poll.observed_at)}  {', '.join(brief(poll)) or poll.endpoint}"))
        lines = ["", paint.dim(f"`steno poll {poll.position}` prints the whole answer")] if poll.kind == "poll" else []
    return "\n".join((*paint.facts(rows), *lines))


def _how(diff: RulesDiff) -> str:
    why = diff.why if diff.how == "cases" else f"folded in full because {diff.why}"
    return f"{words.count(diff.events, 'event')}, {why}; {words.count(diff.folded, 'event')} folded"


def _verdict(diff: RulesDiff) -> str:
    verdicts = sum(change.verdict for change in diff.changes)
    ways = len(diff.changes) - verdicts
    parts = [words.count(verdicts, "verdict changes", "verdicts change")] if verdicts else []
    parts += [f"{words.count(ways, 'run')} only on the way"] if ways else []
    return ", ".join(parts) or "no run changes"


def _row(change: RunChange) -> tuple[str, ...]:
    position = "–" if change.position is None else str(change.position)
    return change.name or change.run_id, _opinion(change.left), _opinion(change.right), position


def _opinion(opinion: Opinion | None) -> str:
    if opinion is None:
        return "not seen"
    exit_status = "" if opinion.exit_status is None else f" (exit {opinion.exit_status})"
    return "/".join(filter(None, (opinion.state, opinion.reason))) + exit_status


def _costs(diff: RulesDiff) -> list[tuple[str, ...]]:
    return [
        (cost.subject, *("unknown" if amount is None else usd(amount) for amount in (cost.left, cost.right)))
        for cost in diff.costs
    ]


def _smallest(diff: RulesDiff) -> Iterator[str]:
    case = diff.smallest
    if case is not None:
        where = "no run showed it" if case.case is None else f"case {case.case}"
        yield from ("", f"The smallest case on which they differ ({where}): {case.words}")
        for name, judged in zip(diff.rules, (case.left, case.right), strict=True):
            yield f"  {name}: {judged.words}, by {judged.rule}"


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    """A text without control characters, which neither XML nor a table takes."""
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
