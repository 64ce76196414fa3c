"""Cases, and the rules that none reached, as text."""

from collections.abc import Sequence

from steno.cli.render import paint, words
from steno.projections.answers.cases import CaseJudged, CasePage, CaseReport, UnseenRule


def case_table(report: CaseReport, columns: int) -> str:
    """A line for each case; a column for each rule set."""
    sets = [each.rules for each in report.cases[0].judged]
    cells = [
        (
            str(row.case),
            f"{row.observations:,}",
            f"{row.runs:,}",
            words.moment(row.first_at),
            row.words,
            *map(_verdict, row.judged),
            *(each.rule for each in row.judged[:1]),
        )
        for row in report.cases
    ]
    head = ("CASE", "SEEN", "RUNS", "SINCE", "WHAT THE RULES SEE", *map(str.upper, sets), "BY RULE")
    return paint.fitted(head, cells, columns, right=(0, 1, 2), spare=(3, 2, len(head) - 1))


def case_facts(page: CasePage) -> str:
    """A case: its number, the verdict of each rule set, and runs that showed it."""
    rows = [
        ("case", str(page.case)),
        ("sees", page.words),
        ("seen", f"{words.count(page.observations, 'time')} in {words.count(page.runs, 'run')}"),
        ("first", f"{words.moment(page.first_at)}, position {page.first_position:,}"),
        ("last", f"{words.moment(page.last_at)}, position {page.last_position:,}"),
        *((each.rules, f"{_verdict(each)}, by {each.rule}") for each in page.judged),
    ]
    cells = [(each.name or "", each.run_id, words.moment(each.at), f"{each.position}") for each in page.examples]
    runs = paint.table(("RUN", "ID", "SHOWN AT", "POLL"), cells, right=(3,))
    poll = page.examples[0].position if page.examples else page.first_position
    return "\n".join((*paint.facts(rows), "", runs, "", paint.dim(f"`steno poll {poll}` prints what was answered")))


def unseen_table(rules: Sequence[UnseenRule], columns: int) -> str:
    """The rules that no observation reached, and the smallest case that would."""
    if not rules:
        return "every rule was reached by an observation"
    cells = [(each.rule, each.words, _verdict(each.judged)) for each in rules]
    return paint.fitted(("RULE", "WOULD TAKE", "AND SAY"), cells, columns, spare=())


def _verdict(each: CaseJudged) -> str:
    return each.words if each.ended else each.words.removeprefix("no verdict yet").strip(" ()") or "no state"
