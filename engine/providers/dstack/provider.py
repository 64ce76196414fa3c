"""dstack as a provider: one project of one server."""

import threading
from collections.abc import Collection, Iterator
from contextlib import closing
from functools import partial

from engine.errors import NotConfigured, ProjectNotFound
from engine.providers.base import Named, Preparation, Provider, Submission, Submitted
from engine.providers.dstack import fleet, logs, machines, runs
from engine.providers.dstack.answer import trouble
from engine.providers.dstack.client import POLL_TIMEOUT, READ_TIMEOUT, Client
from engine.providers.dstack.rounds import Rounds
from engine.providers.dstack.settings import Address
from engine.providers.dstack.task import normal_task, with_gpu
from events.clock import Clock, Ids
from events.poll import Poll

FLEET_NODES = 3
"""Machines a fleet may hold where nobody says otherwise."""


class DstackProvider(Provider):
    """Polls, submits, finds, stops; polls and each thread that calls have a keep-alive connection of their own."""

    name = "dstack"

    def __init__(
        self,
        address: Address,
        *,
        clock: Clock,
        ids: Ids,
        fleet_nodes: int | None = FLEET_NODES,
        read_timeout: float = READ_TIMEOUT,
    ) -> None:
        """`fleet_nodes`: the most machines a fleet made for a task may hold; None: no limit."""
        self.source = f"dstack/{address.project}"
        self.project = address.project
        self._fleet_nodes = fleet_nodes
        self._read_timeout = read_timeout
        self._connect = partial(Client, address, clock, read_timeout=read_timeout)
        self._clients = threading.local()
        patience = POLL_TIMEOUT if read_timeout == READ_TIMEOUT else read_timeout
        polls = Client(address, clock, read_timeout=patience, total_timeout=2 * patience)
        self._opened = [polls]
        self._rounds = Rounds(polls, ids, self.source)
        self._version: str | None = None

    @property
    def client(self) -> Client:
        """The connection of this thread."""
        found: Client | None = getattr(self._clients, "client", None)
        return self._opened_here() if found is None else found

    def _opened_here(self) -> Client:
        self._clients.client = client = self._connect()
        self._opened.append(client)
        return client

    def poll(self, follow: Collection[str], *, since: int | None) -> Iterator[Poll]:
        """One round, see `rounds`; never raises for what the server does."""
        return self._rounds.round(follow, since)

    def submit(self, submission: Submission) -> Submitted:
        """See `runs.submit`."""
        if submission.project != self.client.address.project:
            raise NotConfigured(
                f"the task is for project {submission.project}, "
                f"but this connection is to project {self.client.address.project}"
            )
        return runs.submit(self.client, submission)

    def find(self, name: str, since: int) -> tuple[Named, ...]:
        """See `runs.find`."""
        return runs.find(self.client, name, since)

    def holder(self, name: str) -> Named | None:
        """See `runs.holder`."""
        return runs.holder(self.client, name)

    def is_same(self, submission: Submission, provider_id: str) -> bool:
        """See `runs.is_same`."""
        return runs.is_same(self.client, submission, provider_id)

    def stop(self, provider_id: str, name: str, abort: bool) -> None:  # noqa: ARG002 - the run itself knows its name
        """See `runs.stop`."""
        runs.stop(self.client, provider_id, abort)

    def stop_vm(self, provider_id: str) -> None:
        """See `machines.stop_vm`."""
        machines.stop_vm(self.client, provider_id)

    def logs(self, provider_id: str, name: str, *, follow: bool) -> Iterator[bytes]:  # noqa: ARG002
        """See `logs.logs`; over a connection of its own, so that it may be read in another thread."""
        with closing(Client(self.client.address, self.client.clock, read_timeout=self._read_timeout)) as client:
            yield from logs.logs(client, provider_id, follow=follow)

    def plan(self, submission: Submission, *, ahead: int = 0) -> Preparation | None:
        """The fleet to be made before this task; None where one is there, or where the server makes its own.

        A slot is made on every version: no server makes one by itself.
        """
        if submission.slot is not None:
            task = normal_task(with_gpu(submission))
            return fleet.plan_slot(submission.slot, task, fleet.list_fleets(self.client), project=self.project)
        if not fleet.needs_fleet(self.server_version()):
            return None
        # the runs first: one that gets its machine in between is counted twice rather than not at all
        waiting = ahead + fleet.count_waiting(self.client)
        fleets, task = fleet.list_fleets(self.client), normal_task(with_gpu(submission))
        return fleet.plan_fleet(task, fleets, project=self.project, nodes=self._fleet_nodes, waiting=waiting)

    def prepare(self, preparation: Preparation) -> bool:
        """Make the fleet; True if it was there already."""
        return fleet.ensure_fleet(self.client, preparation)

    def expect_project(self) -> None:
        """Ask whether the server shows us the project: its lists are empty for one that is not ours, never refused.

        A server that does not answer, or refuses the token, raises nothing: polls say so, and it may come back.

        Raises:
            ProjectNotFound: there is no such project, or we are no member.
        """
        answer = self.client.ask(f"/api/projects/{self.project}/get")
        if not answer.ok:
            error = trouble(answer, self.client.address.url, self.project, "record the project")
            if isinstance(error, ProjectNotFound):
                raise error

    def server_version(self) -> str | None:
        """The server's version, asked once; None if it does not say."""
        if self._version is None:
            found = self.client.ask("/api/server/get_info").json()
            version = found.get("server_version") if isinstance(found, dict) else None
            self._version = version if isinstance(version, str) else None
        return self._version

    def close(self) -> None:
        """Drop the connections."""
        for client in tuple(self._opened):
            client.close()
