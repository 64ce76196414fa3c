"""The read that predicts what another policy would have cost."""

from typing import Final

from steno.engine.state.policy import CENT, DAY
from steno.events.clock import SECOND
from steno.projections.answers.whatif import FIELDS, WhatIf, WhatIfQuestion, sweep_of, what_if
from steno.projections.api.parameters import Asked, choice, integer, text, time
from steno.projections.api.reads.read import Read, at_position
from steno.projections.api.service import Service
from steno.projections.read_models.reader_pool import Look

MOST_RUNS: Final = 500  # a simulation takes a thread of the service some seconds
_MOST: Final = DAY // SECOND


def _what_if(_: Service, look: Look, values: Asked) -> WhatIf:
    times = {name: None if values[name] is None else values[name] * SECOND for name in ("idle_timeout", "keep_p95")}
    fields = {"mode": values["policy"], "idle_timeout": times["idle_timeout"], "max_vms": values["max_vms"]}
    sweep = None
    if (name := values["sweep"]) is not None:
        least, most = sorted((values["least"], values["most"]))
        sweep = sweep_of(f"{name}={least}..{most}" if least < most else f"{name}={least}")
        del fields[FIELDS[sweep[0]]]
    question = WhatIfQuestion(
        **{name: values[name] for name in ("source", "since", "until", "seed")},
        changes=tuple((field, value) for field, value in fields.items() if value is not None),
        price=None if values["price_cents"] is None else values["price_cents"] * CENT,
        sweep=sweep,
        keep_p95=times["keep_p95"],
        most=MOST_RUNS,
    )
    return what_if(look.view.whole(), question)


READS = (
    Read(
        "/api/whatif",
        "What another policy would have cost: bills, cold starts and waits, beside the record",
        _what_if,
        at_position(WhatIf),
        "money",
        (
            text("source", "A source of the record; default: the one with most runs."),
            time("since", "Runs requested from then on; default: 30 days before the end."),
            time("until", "The end of the window; default: the newest poll."),
            choice("policy", "Who chooses the machine of a run.", ("provider", "pool")),
            integer("idle_timeout", "How long a machine may idle, seconds.", low=0, high=_MOST),
            integer("max_vms", "The most machines at once.", low=1, high=10_000),
            integer("price_cents", "Cents an hour of every machine.", low=1, high=1_000_000),
            choice("sweep", "Predict several values of this.", FIELDS),
            integer("least", "The first value of a sweep: machines, or seconds.", low=1, high=10_000, default=1),
            integer("most", "The last value of a sweep.", low=1, high=10_000, default=6),
            integer("keep_p95", "Name the cheapest policy whose p95 wait is at most this, seconds.", low=1, high=_MOST),
            integer("seed", "Another seed, other draws.", low=0, high=1_000_000, default=1),
        ),
        tabled=True,
        lacking="Nothing is recorded from which it could be predicted.",
    ),
)
