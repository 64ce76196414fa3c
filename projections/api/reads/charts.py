"""Reads behind charts; each is also to be had as CSV."""

from engine.money.daily import STACKS, STRIPS, Spend, Utilisation
from engine.money.starts import Like, Starts
from projections.api.parameters import Asked, choice, time
from projections.api.problems import Problem
from projections.api.reads.read import Read, at_position
from projections.models import charts
from projections.models.reader_pool import Look

RANGE = (
    time("since", "Begin with the day of this time (UTC); default: 29 days before the last day."),
    time("until", "End with the day of this time (UTC); default: the moment shown."),
)


def range_asked(look: Look, asked: Asked) -> charts.ChartRange:
    since, until = asked["since"], asked["until"]
    if since is not None and since > min(look.now if until is None else until, look.now):
        raise Problem(400, "since is later than the end of the range", field="since")
    return charts.ChartRange(since=since, until=until, now=look.now)


READS = (
    Read(
        "/api/spend",
        "Spend by day, stacked by purpose, GPU or user",
        lambda _, look, asked: charts.spend(look.view.store, asked["by"], range_asked(look, asked)),
        at_position(Spend),
        "money",
        (choice("by", "What a part of a day's stack is.", STACKS, default="line"), *RANGE),
        tabled=True,
    ),
    Read(
        "/api/utilisation",
        "How long machines were busy of the time they were billed, by day",
        lambda _, look, asked: charts.utilisation(look.view.store, asked["by"], range_asked(look, asked)),
        at_position(Utilisation),
        "machines",
        (choice("by", "What a strip is: all machines of a GPU, or one machine.", STRIPS, default="gpu"), *RANGE),
        tabled=True,
    ),
    Read(
        "/api/starts",
        "Distribution of start-up times, cold and warm",
        lambda _, look, asked: charts.starts(look.view.store, range_asked(look, asked)),
        at_position(Starts),
        parameters=RANGE,
        tabled=True,
    ),
    Read(
        "/api/runs/{id}/like",
        "A run's queue, provisioning and running times beside the medians of its name",
        lambda _, look, asked: charts.like(look.view.store, look.view.row(asked["id"])),
        at_position(Like),
        tabled=True,
    ),
)
