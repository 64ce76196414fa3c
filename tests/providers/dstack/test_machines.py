"""Ending a machine at a server that says anything: never another, never with a run on it; its words are kept."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from stenotest.http_server import Handler, LocalServer

from steno.engine.errors import ProviderError, ProviderFailing, ProviderRefused, VmInUse, VmNotFound
from steno.engine.providers.dstack.provider import DstackProvider
from steno.engine.providers.dstack.settings import address
from steno.events.clock import RandomIds, SystemClock
from steno.events.errors import StenoError

Row = dict[str, Any]
DELETE = "/api/project/main/fleets/delete_instances"


def row(identity: str = "a", **more: Any) -> Row:
    """An idle machine as `instances/list` shows it."""
    machine = {"id": identity, "name": "f-0", "fleet_name": "f", "instance_num": 0, "status": "idle", "price": 1.99}
    return {**machine, "busy_blocks": 0, "created": "2026-01-01T00:00:00Z", **more}


class Listing:
    """A server with these machines, newest first, that answers a deletion with `status` and `detail`."""

    def __init__(self, rows: list[Row], status: int, detail: object) -> None:
        self.requests: list[tuple[str, Any]] = []
        outer = self

        class Answer(Handler):
            def answer(self, body: bytes) -> None:
                wanted = json.loads(body)
                outer.requests.append((self.path, wanted))
                if self.path == DELETE:
                    self.reply(status, json.dumps(None if status == 200 else {"detail": detail}).encode())
                else:
                    ids = [listed["id"] for listed in rows]
                    start = ids.index(wanted["prev_id"]) + 1 if "prev_id" in wanted else 0
                    self.reply(200, json.dumps(rows[start : start + wanted["limit"]]).encode())

        self.server = LocalServer(Answer)
        where = address(self.server.url, "token", "main")
        self.provider = DstackProvider(where, clock=SystemClock(), ids=RandomIds())

    @property
    def deleted(self) -> list[Any]:
        return [body for path, body in self.requests if path == DELETE]

    def close(self) -> None:
        self.provider.close()
        self.server.close()


@pytest.fixture
def listing() -> Iterator[Callable[..., Listing]]:
    made: list[Listing] = []

    def start(*rows: Row, status: int = 200, detail: object = None) -> Listing:
        made.append(Listing(list(rows), status, detail))
        return made[-1]

    yield start
    for server in made:
        server.close()


def test_an_idle_machine_is_ended_by_its_present_number(listing: Callable[..., Listing]) -> None:
    """The number comes from a list read just before; a terminated machine that had it first does not matter."""
    server = listing(row("a", instance_num=2), row("old", instance_num=2, status="terminated"))
    server.provider.stop_vm("a")
    assert server.deleted == [{"name": "f", "instance_nums": [2]}]
    assert [path for path, _ in server.requests] == ["/api/instances/list", DELETE]


def test_an_old_machine_is_found_behind_many(listing: Callable[..., Listing]) -> None:
    """The list is read on until it shows the machine."""
    server = listing(*(row(f"n{n}", instance_num=n, status="terminated") for n in range(250)), row("a"))
    server.provider.stop_vm("a")
    assert len(server.requests) == 4
    assert server.deleted == [{"name": "f", "instance_nums": [0]}]


@pytest.mark.parametrize("status", ["terminating", "terminated"])
def test_a_machine_on_its_way_out_is_left_alone(listing: Callable[..., Listing], status: str) -> None:
    """Its number may be another's already, so nothing is asked of it."""
    server = listing(row("new", status="busy", busy_blocks=1), row("a", status=status))
    server.provider.stop_vm("a")
    assert server.deleted == []


@pytest.mark.parametrize(
    "more",
    [
        {"status": "busy"},
        {"status": "busy", "busy_blocks": 1},
        {"status": "provisioning", "busy_blocks": 1},
        {"status": "pending", "price": None},
        {"status": "something-new", "busy_blocks": 3},
    ],
)
def test_a_machine_with_a_run_is_not_ended(listing: Callable[..., Listing], more: Row) -> None:
    """Busy, made for a run, or only a place kept for one: nothing is asked, and the reason says what to do."""
    server = listing(row("a", **more))
    with pytest.raises(VmInUse, match="stop the run first"):
        server.provider.stop_vm("a")
    assert server.deleted == []


def test_two_machines_with_one_number_are_not_ended_together(listing: Callable[..., Listing]) -> None:
    """dstack ends by number: where it gave one twice, the other machine may not be meant."""
    server = listing(row("b", status="busy", busy_blocks=1), row("a"))
    with pytest.raises(VmInUse, match="two machines"):
        server.provider.stop_vm("a")
    assert server.deleted == []


@pytest.mark.parametrize("rows", [(), (row("b"),), tuple(row(f"n{n}", instance_num=n) for n in range(100))])
def test_a_machine_nobody_lists_is_not_found(listing: Callable[..., Listing], rows: tuple[Row, ...]) -> None:
    """Not on this page, not on the next: unknown."""
    with pytest.raises(VmNotFound, match="no machine a in project main"):
        listing(*rows).provider.stop_vm("a")


@pytest.mark.parametrize(
    "words",
    [
        "Failed to delete fleet f instances [0]. Fleet instances are in use.",
        "Failed to delete fleet f. Fleet is in use.",
        "Failed to delete fleet instances: fleets are being processed currently. Try again later.",
        "Failed to delete instance while the job is provisioning.",
    ],
)
def test_a_refusal_is_told_in_dstack_s_words(listing: Callable[..., Listing], words: str) -> None:
    """A stop that dstack may grant later is `in use`, with dstack's words: explained, never guessed."""
    server = listing(row("a"), status=400, detail=[{"msg": words, "code": "error"}])
    with pytest.raises(VmInUse) as error:
        server.provider.stop_vm("a")
    assert words in str(error.value)
    assert len(server.deleted) == 1


@pytest.mark.parametrize(
    ("status", "detail", "kind"),
    [
        (422, [{"loc": ["body", "name"], "msg": "field required"}], ProviderError),
        (500, "boom", ProviderFailing),
        (429, "slow down", ProviderFailing),
        (403, {"msg": "Access denied", "code": None}, ProviderRefused),
        (400, [{"msg": "Resource not found", "code": "resource_not_exists"}], VmNotFound),
    ],
)
def test_other_trouble_is_named_for_what_it_is(
    listing: Callable[..., Listing], status: int, detail: object, kind: type[StenoError]
) -> None:
    """A server that cannot read us, is broken, or forbids it, is not a machine in use."""
    with pytest.raises(kind) as error:
        listing(row("a"), status=status, detail=detail).provider.stop_vm("a")
    assert type(error.value) is kind


@pytest.mark.parametrize("more", [{"fleet_name": None}, {"instance_num": None}])
def test_a_machine_without_a_place_is_not_guessed(listing: Callable[..., Listing], more: Row) -> None:
    """No fleet or no number: we say so, and ask for nothing."""
    server = listing(row("a", **more))
    with pytest.raises(ProviderError, match="without fleet and number"):
        server.provider.stop_vm("a")
    assert server.deleted == []
