"""Machines at a dstack server: found by id, ended by fleet and number."""

from collections.abc import Mapping

from engine.errors import ProviderError, TaskInvalid, VmInUse, VmNotFound
from engine.providers.dstack.answer import MOST_PAGES, rows, trouble
from engine.providers.dstack.client import Client

PAGE = 100
"""Rows of a page; dstack's limit."""
GOING = frozenset({"terminating", "terminated"})
"""Words of an instance's status after which nothing need be asked any more."""


def stop_vm(client: Client, provider_id: str) -> None:
    """End the machine of that id, unless a run is on it; one that is going or gone is left alone.

    dstack ends machines by fleet and number, and gives a number again as soon as its machine is gone. The number is
    therefore looked up by the id, from a fresh list, immediately before the call. What can still come between the
    list and the call:

    - a run gets the machine: the server looks under its own lock and refuses ("Fleet instances are in use");
    - the machine goes by itself and its number to a new one: that was made for a run, so the server refuses as well;
    - a run was taken for this fleet and has no machine yet: 0.22.5 ends the machine all the same. That run has not
      started; it gets another machine, or ends for want of one and is asked for again.

    A 200 is no proof either (a number nobody has is answered with 200, too): whether the machine goes, polls tell.

    Raises:
        VmInUse: a run is on it, or dstack refuses for now, in its own words.
        VmNotFound: dstack lists no such machine.
        ProjectNotFound, ProviderUnreachable, ProviderRefused, ProviderError: as they say.
    """
    found = _look(client, provider_id)
    row = found[provider_id]
    if str(row.get("status")) in GOING:
        return
    name, fleet, number = row.get("name"), row.get("fleet_name"), row.get("instance_num")
    if _in_use(row):
        raise VmInUse(f"machine {name} has a run on it; stop the run first, or end the machine once it is idle")
    if not isinstance(fleet, str) or not isinstance(number, int):
        raise ProviderError(f"cannot end machine {name}: dstack shows it without fleet and number; end it at dstack")
    if any(_same_place(row, other) for other in found.values()):
        raise VmInUse(f"dstack gave number {number} of fleet {fleet} to two machines; ending one would end both")
    request = {"name": fleet, "instance_nums": [number]}
    answer = client.ask(client.address.path("fleets/delete_instances"), request, again=False)
    if answer.ok:
        return
    error = trouble(answer, client.address.url, client.address.project, f"end machine {name}", gone=VmNotFound)
    if isinstance(error, TaskInvalid) and answer.status == 400:
        # dstack refuses with 400 what it may grant later: in use, being processed, its job still provisioning
        raise VmInUse(str(error))
    raise ProviderError(str(error)) if isinstance(error, TaskInvalid) else error


def _look(client: Client, provider_id: str) -> dict[str, dict[str, object]]:
    """Machines by id, newest first, down to the page that shows this one."""
    request: dict[str, object] = {"project_names": [client.address.project], "limit": PAGE}
    found: dict[str, dict[str, object]] = {}
    pages = 0
    while provider_id not in found:
        answer = client.ask("/api/instances/list", request)
        if not answer.ok:
            raise trouble(answer, client.address.url, client.address.project, "look for the machine")
        page = rows(answer)
        if page is None:
            raise ProviderError(
                f"cannot look for the machine: {client.address.url} answered no list; is it a dstack server?"
            )
        known, pages = len(found), pages + 1
        found.update((str(row["id"]), row) for row in page)
        if provider_id not in found and (len(page) < PAGE or len(found) == known or pages == MOST_PAGES):
            raise VmNotFound(f"dstack lists no machine {provider_id} in project {client.address.project}")
        request |= {"prev_created_at": page[-1].get("created") if page else None, "prev_id": page[-1]["id"]}
    return found


def _in_use(row: Mapping[str, object]) -> bool:
    """Whether the list shows a run on it; a row without a price is only a place kept for one."""
    blocks = row.get("busy_blocks")
    kept = row.get("status") == "pending" and row.get("price") is None
    return row.get("status") == "busy" or (isinstance(blocks, int) and blocks > 0) or kept


def _same_place(one: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Another living machine with the same fleet and number: 0.19.37 holds no lock while it numbers them."""
    return (
        one.get("id") != other.get("id")
        and str(other.get("status")) not in GOING
        and all(one.get(key) == other.get(key) for key in ("fleet_name", "instance_num"))
    )
