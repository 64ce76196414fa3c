"""dstack as a provider: one project of one server."""

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path

from steno.engine.errors import (
    NameInUse,
    NotConfigured,
    ProjectNotFound,
    ProviderError,
    RunNotFound,
    TaskInvalid,
    VmInUse,
    VmNotFound,
)
from steno.engine.providers.base import (
    Entrance,
    Named,
    Offers,
    Preparation,
    Provider,
    StopTarget,
    Submission,
    Submitted,
    Way,
)
from steno.engine.providers.dstack import fleet, logs, ssh
from steno.engine.providers.dstack.client import FINISHED, MACHINES, POLL_TIMEOUT, READ_TIMEOUT, RUNS, Client, time_of
from steno.engine.providers.dstack.fleet import ask_plan, count_offers
from steno.engine.providers.dstack.lenient import at
from steno.engine.providers.dstack.metrics import JobMetrics
from steno.engine.providers.dstack.rounds import Rounds
from steno.engine.providers.dstack.settings import Address
from steno.engine.providers.dstack.task import expect_package, normal_task, with_gpu, wording
from steno.engine.providers.dstack.uploads import upload_all
from steno.engine.providers.dstack.words import MARK
from steno.engine.providers.task import LISTENER, check_name
from steno.engine.state.samples import Sample
from steno.engine.state.sources import skew_of
from steno.events.clock import SECOND, Clock, Ids
from steno.events.poll import Poll

FLEET_NODES = 3  # the most machines of a fleet, by default
PLAN_TIMEOUT = 10.0  # seconds for the server to ask its clouds for offers; the run waits as long before its place
_GOING = ("terminating", "terminated")  # words of an instance's status after which nothing more is asked


class DstackProvider(Provider):
    """Polls and calls. The poller and each calling thread have a keep-alive connection of their own."""

    name = "dstack"

    def __init__(
        self,
        address: Address,
        *,
        clock: Clock,
        ids: Ids,
        fleet_nodes: int | None = FLEET_NODES,
        ssh_key: Path | None = None,
        read_timeout: float = READ_TIMEOUT,
    ) -> None:
        """`fleet_nodes`: the most machines of a fleet; None: no limit. `ssh_key`: made when it is needed."""
        self.source = f"dstack/{address.project}"
        self.project = address.project
        self._fleet_nodes = fleet_nodes
        self._ssh_key = ssh_key
        self._connect = partial(Client, address, clock, read_timeout=read_timeout)
        self._clients = threading.local()
        patience = POLL_TIMEOUT if read_timeout == READ_TIMEOUT else read_timeout
        polls = Client(address, clock, read_timeout=patience, total_timeout=2 * patience)
        self._metrics = JobMetrics(self._connect())
        self._opened = [polls, self._metrics.client]
        self._rounds = Rounds(polls, ids, self.source)
        self._version: str | None = None

    @property
    def client(self) -> Client:
        client: Client | None = getattr(self._clients, "client", None)
        if client is None:
            self._clients.client = client = self._connect()
            self._opened.append(client)
        return client

    def close(self) -> None:
        for client in tuple(self._opened):
            client.close()

    def poll(self, follow: Collection[str], *, since: int | None) -> Iterator[Poll]:
        return self._rounds.round(follow, since)

    def logs(self, provider_id: str, name: str, *, follow: bool) -> Iterator[bytes]:
        return (piece for _, piece in self.dated_logs(provider_id, name, follow=follow))

    def dated_logs(self, provider_id: str, name: str, *, follow: bool) -> Iterator[tuple[int | None, bytes]]:
        """See `logs.logs`; over a connection of its own, so that another thread may read it."""
        with closing(self._connect()) as client:
            yield from logs.logs(client, provider_id, follow=follow)

    def unhurried_logs(self, provider_id: str, name: str) -> Iterator[bytes]:
        with closing(self._connect()) as client:
            yield from (piece for _, piece in logs.logs(client, provider_id, follow=True, every=logs.UNHURRIED))

    def samples(self, provider_id: str, name: str, *, since: int) -> tuple[str, list[Sample]]:
        return self.name, self._metrics.samples(provider_id, name, since)

    def expect_project(self) -> None:
        """Raise ProjectNotFound if the server does not show us the project: its lists would be empty, never refused.

        Raises nothing if the server does not answer or refuses the token: polls say so, and it may come back.
        """
        answer = self.client.ask(f"/api/projects/{self.project}/get")
        if not answer.ok:
            error = self.client.trouble(answer, "record the project")
            if isinstance(error, ProjectNotFound):
                raise error

    def server_version(self) -> str | None:
        """The server's version, asked once; None if it gives none."""
        if self._version is None:
            version = at(self.client.ask("/api/server/get_info").json(), "server_version")
            self._version = version if isinstance(version, str) else None
        return self._version

    def plan(self, submission: Submission, *, ahead: int = 0) -> Preparation | None:
        """The fleet to make before this task. Servers from 0.20 need one; no version makes a slot by itself."""
        slot = submission.slot
        if slot is not None:
            task = normal_task(with_gpu(submission))
            return fleet.plan_slot(slot, task, fleet.list_fleets(self.client), project=self.project)
        if not fleet.needs_fleet(self.server_version()):
            return None
        # the runs first: a run that gets its machine in between is counted twice, not missed
        waiting = ahead + fleet.count_waiting(self.client)
        fleets, task = fleet.list_fleets(self.client), normal_task(with_gpu(submission))
        return fleet.plan_fleet(task, fleets, project=self.project, nodes=self._fleet_nodes, waiting=waiting)

    def offers(self, submission: Submission) -> Offers | None:
        client = self.client
        answer = ask_plan(client, with_gpu(submission), self.server_version(), most=1, patience=PLAN_TIMEOUT)
        if not answer.ok:
            error = client.trouble(answer, "plan the task")
            if isinstance(error, TaskInvalid):
                return Offers(count=0, reason=answer.complaint)
            raise error
        count = count_offers(answer.json())
        return None if count is None else Offers(count=count)

    def prepare(self, preparation: Preparation) -> bool:
        return fleet.ensure_fleet(self.client, preparation)

    def submit(self, submission: Submission) -> Submitted:
        client, name = self.client, check_name(submission.name)
        if submission.project != self.project:
            raise NotConfigured(
                f"the task is for project {submission.project}, but this connection is to project {self.project}"
            )
        base = Path(submission.base) if submission.base is not None else Path.cwd()
        expect_package()
        taken = upload_all(client, submission.configuration, base)
        task = wording(submission)
        specification = {"run_name": name, "configuration": task, **taken}
        if at(submission.configuration, "env", LISTENER) is not None and self._ssh_key is not None:
            specification["ssh_key_pub"] = ssh.public_key(self._ssh_key)
        plan = {"plan": {"run_spec": specification, "current_resource": None}, "force": False}
        answer = client.ask(client.address.path("runs/apply"), plan, again=False)
        if not answer.ok:
            error = client.trouble(answer, "submit the task")
            if isinstance(error, TaskInvalid) and (there := self.holder(name)) is not None and not there.ended:
                raise NameInUse(f"an active run is named {name}; stop it first, or choose another name")
            raise error
        run = answer.json()
        if not isinstance(provider_id := at(run, "id"), str):
            raise ProviderError(f"{client.address.url} took the task but answered no run; is it a dstack server?")
        return Submitted(provider_id=provider_id, name=name, submitted_at=time_of(at(run, "submitted_at")))

    def reach(self, provider_id: str, port: int) -> Way:
        """An ssh tunnel through the run's machine into its container, as `dstack attach` makes one."""
        if self._ssh_key is None:
            raise ProviderError("there is no ssh key (dstack.ssh_key) to reach the task with")
        run = self.client.run({"id": provider_id}, "reach the task")
        return ssh.tunnel(run, port, self._ssh_key)

    def entrance(self, provider_id: str, name: str, port: int | None) -> Entrance:
        run = self.client.run({"id": provider_id}, "look for a way into the task")
        return ssh.entrance(run, name, port, self.client.address.url)

    def find(self, name: str, since: int) -> tuple[Named, ...]:
        """The runs of that name submitted at or after `since` (our clock), even if ended or deleted, newest first.

        The server's times are shifted where its clock certainly differs (`steno.engine.state.sources`).
        """
        runs: list[Named] = []
        for answer, page in self.client.history(RUNS, "look for the run"):
            date = answer.server_time
            skew = 0 if date is None else skew_of(date, answer.started_at, answer.observed_at)
            for run in page:
                submitted = time_of(run.get("submitted_at"))
                if submitted is None:
                    continue
                submitted -= skew
                # `Date` has whole seconds: a run up to a second early may be ours
                if submitted < since - SECOND:
                    return tuple(runs)
                if at(run, "run_spec", "run_name") == name:
                    runs.append(_named(run, submitted))
        return tuple(runs)

    def holder(self, name: str) -> Named | None:
        """The run of that name unless deleted: dstack refuses a second one while it runs, and deletes it afterwards."""
        try:
            return _named(self.client.run({"run_name": name}, "look up the name"))
        except RunNotFound:
            return None

    def is_same(self, submission: Submission, provider_id: str) -> bool:
        """True if that run has the configuration that this submission would have, and is the token's own user's."""
        try:
            run = self.client.run({"id": provider_id}, "compare the run")
        except RunNotFound:
            return False
        me = at(self.client.ask("/api/users/get_my_user").json(), "username")
        theirs = at(run, "run_spec", "configuration")
        if me is None or me != run.get("user") or not isinstance(theirs, dict):
            return False
        try:
            return _comparable(theirs) == _comparable(wording(submission))
        except (ValueError, TypeError, AttributeError, KeyError):  # from a version whose configurations we cannot read
            return False

    def stop(self, stop: StopTarget) -> None:
        """End the run of that id unless it has ended. dstack stops by name, which is unique among active runs."""
        client = self.client
        run = client.run({"id": stop.provider_id}, "stop the run")
        if run.get("status") in FINISHED:
            return
        name = at(run, "run_spec", "run_name")
        if not isinstance(name, str):
            raise ProviderError(f"{client.address.url} shows run {stop.provider_id} without a name; cannot stop it")
        if client.run({"run_name": name}, "stop the run").get("id") == stop.provider_id:
            request = {"runs_names": [name], "abort": stop.abort}
            client.expect(client.address.path("runs/stop"), request, what="stop the run")

    def stop_vm(self, provider_id: str) -> None:
        """End the machine of that id, unless a run is on it; does nothing to a machine that is ending or gone.

        dstack ends machines by fleet and number, and reuses a number at once, so the id is looked up in a fresh list
        just before the call. Between list and call:

        - A run gets the machine, or the number goes to a new machine made for a run: the server refuses.
        - A run is assigned to the fleet without a machine yet: 0.22.5 ends the machine. The run has not started; it
          gets another machine, or fails without capacity and is requested again.

        A 200 proves nothing (an unused number gets one too); polls show whether the machine ends.
        """
        client, machines = self.client, dict[str, dict[str, object]]()
        for _, page in client.history(MACHINES, "look for the machine"):
            machines.update((str(row["id"]), row) for row in page)
            if provider_id in machines:
                break
        else:
            raise VmNotFound(f"dstack lists no machine {provider_id} in project {self.project}")
        row = machines[provider_id]
        if row.get("status") in _GOING:
            return
        name, owner, number = row.get("name"), row.get("fleet_name"), row.get("instance_num")
        if _in_use(row):
            raise VmInUse(f"machine {name} has a run on it; stop the run first, or end the machine once it is idle")
        if not isinstance(owner, str) or not isinstance(number, int):
            raise ProviderError(
                f"cannot end machine {name}: dstack shows it without fleet and number; end it at dstack"
            )
        if any(_same_place(row, other) for other in machines.values()):
            raise VmInUse(f"dstack gave number {number} of fleet {owner} to two machines; ending one would end both")
        request = {"name": owner, "instance_nums": [number]}
        answer = client.ask(client.address.path("fleets/delete_instances"), request, again=False)
        if answer.ok:
            return
        error = client.trouble(answer, f"end machine {name}", gone=VmNotFound)
        if isinstance(error, TaskInvalid) and answer.status == 400:
            # dstack refuses with 400 what it may grant later: in use, in processing, still provisioning
            raise VmInUse(str(error))
        raise ProviderError(str(error)) if isinstance(error, TaskInvalid) else error


def _comparable(task: dict[str, object]) -> dict[str, object]:
    """A task without tags and without what a server adds by itself: tasks that mean the same are equal."""
    normal = normal_task({**task, "tags": None})
    gpu = at(normal, "resources", "gpu")
    if at(gpu, "name"):
        gpu.pop("vendor", None)  # 0.22.5 adds it to a model's name, 0.19.37 does not
    return {**normal, "nodes": normal.get("nodes") or 1, "priority": normal.get("priority") or 0}


def _named(run: dict[str, object], submitted_at: int | None = None) -> Named:
    mark = at(run, "run_spec", "configuration", "tags", MARK)
    return Named(
        provider_id=str(run["id"]),
        mark=mark if isinstance(mark, str) else None,
        ended=run.get("status") in FINISHED,
        submitted_at=submitted_at,
    )


def _in_use(row: Mapping[str, object]) -> bool:
    """True if the list shows a run on it; a row without a price is only a reserved place."""
    blocks = row.get("busy_blocks")
    kept = row.get("status") == "pending" and row.get("price") is None
    return row.get("status") == "busy" or (isinstance(blocks, int) and blocks > 0) or kept


def _same_place(machine: Mapping[str, object], other: Mapping[str, object]) -> bool:
    """Another living machine with the same fleet and number: 0.19.37 numbers them without a lock."""
    return (
        machine.get("id") != other.get("id")
        and other.get("status") not in _GOING
        and all(machine.get(key) == other.get(key) for key in ("fleet_name", "instance_num"))
    )
