"""Reads of the cases that the rules saw."""

from typing import Any

from steno.engine.providers.registry import UnknownRules, rules_named
from steno.engine.rules.sets import CURRENT
from steno.engine.state.states import PROGRESS, State
from steno.engine.wire import Position, wire
from steno.projections.answers.cases import (
    CasePage,
    CaseReport,
    UnseenRule,
    case_page,
    case_report,
    case_sets,
    unseen_rules,
)
from steno.projections.api.parameters import Asked, choice, text
from steno.projections.api.problems import Problem
from steno.projections.api.reads.read import Read, at_position
from steno.projections.api.service import Service
from steno.projections.read_models.reader_pool import Look

STATES = (*PROGRESS[1:], State.SUCCEEDED, State.FAILED, State.STOPPED)


class CaseAnswer(CaseReport, frozen=True, kw_only=True):
    """The cases, and the rules that none of them reached."""

    unseen: tuple[UnseenRule, ...]
    position: Position


def _cases(_: Service, look: Look, values: Asked) -> dict[str, Any] | CaseReport:
    left, right = values["left"], values["right"]
    parting = left is not None or right is not None
    try:
        sets = case_sets(*(rules_named(name or CURRENT.name) for name in (left, right) if parting))
    except UnknownRules as error:
        raise Problem(404, str(error)) from None
    state = None if values["state"] is None else State(values["state"])
    report = case_report(look.record, look.view, sets, state=state, parting=parting)
    if values["format"] == "csv":
        return report
    return wire(report) | {"unseen": [wire(rule) for rule in unseen_rules(look.view.state, sets)]}


def _case(_: Service, look: Look, values: Asked) -> dict[str, Any]:
    word = values["case"]
    if not word.isdecimal():
        raise Problem(404, f"{word[:60]!r} is not the number of a case", field="case")
    return wire(case_page(look.record, look.view, int(word), case_sets()))


READS = (
    Read(
        "/api/cases",
        "Every case that the rules saw, what each rule set makes of it, and the rules that none reached",
        _cases,
        CaseAnswer,
        "record",
        (
            choice("state", "Only cases that lead to this state, by the first rule set.", STATES),
            text("left", "A rule set, else `current`: only cases that it judges otherwise than `right`."),
            text("right", "The other rule set, else `current`."),
        ),
        tabled=True,
    ),
    Read("/api/cases/{case}", "One case, with runs that showed it", _case, at_position(CasePage), "record"),
)
