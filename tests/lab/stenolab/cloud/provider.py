"""DigitalOcean's API, as much of it as dstack uses, and the machines behind it."""

from __future__ import annotations

import re
import socket
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from stenolab.cloud.behaviour import Manners
from stenolab.cloud.journal import journal
from stenolab.cloud.machine import Machine
from stenolab.cloud.shim import Shim
from stenolab.cloud.wire import Reply, Request, Service

REGION = "atl1"
GIB = 1024
SPOT = "-spot"  # DigitalOcean has no spot machines: here they are sizes of their own, see stenolab.server.offline
SPOT_DISCOUNT = 0.4  # of the on-demand price


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """A kind of machine, as much as dstack wants to know of it."""

    gpus: int
    model: str
    vram: int  # GiB a GPU
    vcpus: int
    memory: int  # MiB
    disk: int  # GiB
    price: float  # dollars an hour of the whole machine

    def spot(self) -> Size:
        """The same machine, cheaper, as a spot one."""
        return replace(self, price=round(self.price * SPOT_DISCOUNT, 4))

    def describe(self, slug: str) -> dict[str, Any]:
        """As DigitalOcean's API describes it."""
        return {
            "slug": slug,
            "vcpus": self.vcpus,
            "memory": self.memory,
            "price_hourly": self.price,
            "regions": [REGION],
            "available": True,
            "disk_info": [{"type": "local", "size": {"amount": self.disk, "unit": "gib"}}],
            "gpu_info": {"count": self.gpus, "vram": {"amount": self.vram, "unit": "gib"}, "model": self.model},
        }


_MI300X = Size(gpus=1, model="amd_mi300x", vram=192, vcpus=20, memory=240 * GIB, disk=720, price=1.99)
_ON_DEMAND = {
    "gpu-mi300x1-192gb-devcloud": _MI300X,
    # Two are cheaper here than twice one: whose price a bill rests on must make a difference.
    "gpu-mi300x2-384gb-devcloud": replace(_MI300X, gpus=2, vcpus=40, memory=480 * GIB, disk=1440, price=3.90),
    "gpu-mi300x8-1536gb-devcloud": replace(_MI300X, gpus=8, vcpus=160, memory=1920 * GIB, disk=2046, price=15.92),
    "gpu-mi210x1-64gb-devcloud": replace(_MI300X, model="amd_mi210", vram=64, memory=120 * GIB, price=0.99),
}
SIZES = _ON_DEMAND | {slug + SPOT: size.spot() for slug, size in _ON_DEMAND.items()}


class Provider:
    """The cloud. `origins` (repository URL to folder) is shared with every runner and may grow while they live."""

    def __init__(self, *, version: str, manners: Manners, state_folder: Path) -> None:
        self._version = version
        self._manners = manners
        self._state_folder = state_folder
        self._lock = threading.Lock()
        self._keys: list[dict[str, Any]] = []
        self.machines: list[Machine] = []
        self.origins: dict[str, str] = {}

    def enter(self, ip: str, port: int, connection: socket.socket) -> Service | None:
        """A way into the newest living machine with that address."""
        for machine in reversed(self.machines):
            if machine.ip == ip and machine.deleted is None:
                return machine.enter(port, connection)
        return None

    def find(self, wanted: str) -> Machine | None:
        """The newest living machine with that address, or with `wanted` in its name."""
        for machine in reversed(self.machines):
            if machine.deleted is None and (machine.ip == wanted or wanted in machine.name):
                return machine
        return None

    def close(self) -> None:
        """Ends every machine and every job on it."""
        for machine in self.machines:
            machine.destroy()

    def __call__(self, request: Request) -> Reply:
        match request.method, request.path:
            case "GET", "/v2/account":
                return Reply(json={"account": {"status": "active"}})
            case "GET", "/v2/projects":
                return Reply(json={"projects": [{"id": "p1", "name": "lab"}]})
            case "GET", "/v2/sizes":
                return Reply(json={"sizes": [size.describe(slug) for slug, size in SIZES.items()]})
            case "GET", "/v2/account/keys":
                return Reply(json={"ssh_keys": self._keys})
            case "POST", "/v2/account/keys":
                return self._add_key(request.json)
            case "POST", "/v2/droplets":
                return self._order(request.json)
        match = re.fullmatch(r"/v2/droplets/(\d+)", request.path)
        if match is None:
            return Reply(status=404, json={"id": "not_found", "message": f"no {request.path} in the lab's cloud"})
        return self._droplet(int(match.group(1)), request.method)

    def _add_key(self, body: dict[str, Any]) -> Reply:
        with self._lock:
            key = {"id": len(self._keys) + 1, **body}
            self._keys.append(key)
        return Reply(status=201, json={"ssh_key": key})

    def _order(self, body: dict[str, Any]) -> Reply:
        conduct = self._manners.towards(f"{body['name']} {body['size']}")
        if conduct.no_capacity:
            journal("cloud", refused=body["name"])
            message = "Size is not available in this region (lab)"
            return Reply(status=422, json={"id": "unprocessable_entity", "message": message})
        if conduct.create_error is not None:
            return Reply(status=conduct.create_error, json={"message": "lab error"})
        shim = Shim(version=self._version, manners=self._manners, state_folder=self._state_folder, origins=self.origins)
        with self._lock:
            machine = Machine(
                number=len(self.machines),
                name=body["name"],
                size=body["size"],
                price=SIZES[body["size"]].price,
                conduct=conduct,
                shim=shim,
            )
            self.machines.append(machine)
        journal("cloud", machine=machine.number, ip=machine.ip, name=machine.name, event="created")
        return Reply(status=202, json={"droplet": machine.describe()})

    def _droplet(self, number: int, method: str) -> Reply:
        machine = next((known for known in self.machines if known.number == number), None)
        if machine is None or machine.deleted is not None:
            return Reply(status=404, json={"id": "not_found", "message": "not found"})
        if method != "DELETE":
            return Reply(json={"droplet": machine.describe()})
        if self._manners.towards(machine.name).stubborn:
            return Reply(status=500, json={"id": "server_error", "message": "lab error"})
        since = time.monotonic()
        while time.monotonic() - since < self._manners.towards(machine.name).delete_s:  # which may change meanwhile
            time.sleep(0.05)
        machine.destroy()
        return Reply(status=204)
