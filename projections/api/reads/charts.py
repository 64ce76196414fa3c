"""Reads behind charts; each is also to be had as CSV."""

from engine.money.daily import STACKS, STRIPS, Spend, Utilisation
from engine.money.starts import Like, Starts
from projections.api.parameters import Asked, choice, time
from projections.api.problems import Problem
from projections.api.reads.read import Read, at_position
from projections.api.service import Service
from projections.models import charts
from projections.models.reader_pool import Look

RANGE = (
    time("since", "Begin with the day of this time (UTC); default: 29 days before the last day."),
    time("until", "End with the day of this time (UTC); default: the moment shown."),
)


def _range(look: Look, asked: Asked) -> charts.ChartRange:
    since, until = asked["since"], asked["until"]
    if since is not None and since > min(look.now if until is None else until, look.now):
        raise Problem(400, "since is later than the end of the range", field="since")
    return charts.ChartRange(since=since, until=until, now=look.now)


def _spend(_: Service, look: Look, asked: Asked) -> Spend:
    return charts.spend(look.view.store, asked["by"], _range(look, asked))


def _utilisation(_: Service, look: Look, asked: Asked) -> Utilisation:
    return charts.utilisation(look.view.store, asked["by"], _range(look, asked))


def _starts(_: Service, look: Look, asked: Asked) -> Starts:
    return charts.starts(look.view.store, _range(look, asked))


def _like(_: Service, look: Look, asked: Asked) -> Like:
    return charts.like(look.view.store, look.view.row(asked["id"]))


READS = (
    Read(
        "/api/spend",
        "Spend by day, stacked by purpose, GPU or user",
        _spend,
        at_position(Spend),
        "money",
        (choice("by", "What a part of a day's stack is.", STACKS, default="line"), *RANGE),
        tabled=True,
    ),
    Read(
        "/api/utilisation",
        "How long machines were busy of the time they were billed, by day",
        _utilisation,
        at_position(Utilisation),
        "machines",
        (choice("by", "What a strip is: all machines of a GPU, or one machine.", STRIPS, default="gpu"), *RANGE),
        tabled=True,
    ),
    Read(
        "/api/starts",
        "Distribution of start-up times, cold and warm",
        _starts,
        at_position(Starts),
        parameters=RANGE,
        tabled=True,
    ),
    Read(
        "/api/runs/{id}/like",
        "A run's queue, provisioning and running times beside the medians of its name",
        _like,
        at_position(Like),
        tabled=True,
    ),
)
