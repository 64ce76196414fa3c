"""Reads about machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from projections.api.parameters import CURSOR, HIDDEN, LIMIT, Asked, cursor_of, cut, flag
from projections.api.reads import shapes
from projections.api.reads.read import Read
from projections.models.vm_facts import beside

if TYPE_CHECKING:
    from projections.api.service import Service
    from projections.store.reader_pool import Look


def _list(_: Service, look: Look, asked: Asked) -> object:
    limit, behind = asked.number("limit"), asked.given["cursor"]
    found = look.view.store.vms.page(
        behind=behind if isinstance(behind, int) else None,
        limit=limit + 1,
        live=asked.flag("live"),
        hidden=asked.flag("hidden"),
    )
    rows, more = cut(found, limit)
    return {
        "vms": [msgspec.Raw(value) for _, value in rows],
        "next": cursor_of(rows[-1][0]) if more else None,
        "position": look.position,
    }


def _one(_: Service, look: Look, asked: Asked) -> object:
    view = look.view
    found = view.vm(asked.path["id"])
    source = view.source_named(found.source, look.now)
    return (
        msgspec.to_builtins(found)
        | beside(view.machine(found.vm_id))
        | {
            "why_up": view.why_up(found.vm_id, look.now),
            "anomalies": view.anomalies_of_vm(found.vm_id),
            "position": look.position,
            "observability": None if source is None else source.observability,
        }
    )


READS = (
    Read(
        path="/api/vms",
        summary="Machines with their bills, newest first",
        answer=_list,
        shape=shapes.MachinePage,
        parameters=(CURSOR, LIMIT, flag("live", "Only machines that may still be billed."), HIDDEN),
        tag="machines",
    ),
    Read(
        path="/api/vms/{id}",
        summary="One machine: bill, facts from the provider, and why it is still up",
        answer=_one,
        shape=shapes.MachineAnswer,
        tag="machines",
    ),
)
