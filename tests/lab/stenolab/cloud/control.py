"""The lab's own API beside the cloud's: `/lab/...`, for tests and people."""

from __future__ import annotations

from typing import Any

from stenolab.cloud.behaviour import Manners
from stenolab.cloud.machine import Machine
from stenolab.cloud.provider import Provider
from stenolab.cloud.wire import Reply, Request


class Control:
    """Answers `/lab/...` and hands everything else to the cloud.

    POST /lab/configure {trait: value}        the general conduct
    POST /lab/rule {pattern, conduct|null}    the conduct towards names
    POST /lab/origin {url, folder}            the folder that plays a git repository
    POST /lab/kill {machine, how}             gone, unreachable, revive, runner_crash; by address or part of the name
    GET  /lab/state                           the machines
    GET  /lab/bills                           what each has cost
    """

    def __init__(self, *, manners: Manners, provider: Provider) -> None:
        self._manners = manners
        self._provider = provider

    def __call__(self, request: Request) -> Reply:
        if not request.path.startswith("/lab/"):
            return self._provider(request)
        try:
            return self._control(request.path.removeprefix("/lab/"), request.json)
        except (ValueError, KeyError) as error:
            return Reply(status=400, json={"error": str(error)})

    def _control(self, command: str, body: Any) -> Reply:
        match command:
            case "configure":
                self._manners.configure(body)
            case "rule":
                self._manners.rule(body["pattern"], body["conduct"])
            case "origin":
                self._provider.origins[body["url"]] = body["folder"]
            case "kill":
                return self._kill(body["machine"], body["how"])
            case "state":
                return Reply(json={"machines": [_state(machine) for machine in self._provider.machines]})
            case "bills":
                return Reply(json={"bills": [machine.bill() for machine in self._provider.machines]})
            case _:
                return Reply(status=404, json={"error": f"no {command} here"})
        return Reply(json={})

    def _kill(self, wanted: str, how: str) -> Reply:
        machine = self._provider.find(wanted)
        if machine is None:
            return Reply(status=404, json={"error": f"no living machine {wanted}"})
        match how:
            case "gone":
                machine.destroy()
            case "unreachable":
                machine.cut_off()
            case "revive":
                machine.revive()
            case "runner_crash":
                machine.shim.crash()
            case _:
                return Reply(status=400, json={"error": f"kill how? {how}"})
        return Reply(json=_state(machine))


def _state(machine: Machine) -> dict[str, Any]:
    return {**machine.describe(), "ip": machine.ip, "tasks": machine.shim.statuses(), "deleted": machine.deleted}
