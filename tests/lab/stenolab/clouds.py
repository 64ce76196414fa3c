"""The simulated cloud as a test holds it: its process and the levers of `/lab/...`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from stenotest.waiting import wait

from stenolab.process import Process
from stenolab.rest import Refused, ask


class Cloud:
    """A running cloud for agents of that dstack version."""

    def __init__(self, version: str, folder: Path) -> None:
        self._process = Process(
            Path(sys.executable), "stenolab.cloud", version, folder / "state", log=folder / "cloud.log"
        )
        try:
            self.port: int = wait(self._said_port, what=f"the cloud, log {folder / 'cloud.log'}")
        except BaseException:
            self.close()
            raise

    def configure(self, **conduct: Any) -> None:
        """Changes how the cloud behaves towards everything: the fields of `stenolab.cloud.behaviour.Conduct`."""
        self._ask("configure", conduct)

    def rule(self, pattern: str, **conduct: Any) -> None:
        """Changes how it behaves towards machines, containers and runs whose name `pattern` finds.

        A machine's name holds project and run or fleet name, a container's and a run's the run name. Of an order the
        size counts as well: `mi210` finds those of that GPU, `-spot` those of spot machines.
        """
        self._ask("rule", {"pattern": pattern, "conduct": conduct})

    def unrule(self, pattern: str) -> None:
        """Takes that rule back."""
        self._ask("rule", {"pattern": pattern, "conduct": None})

    def play_repository(self, url: str, folder: Path) -> None:
        """From now on that folder is what jobs clone for the repository `url`."""
        self._ask("origin", {"url": url, "folder": str(folder)})

    def kill(self, machine: str, how: str = "gone") -> dict[str, Any]:
        """gone, unreachable, revive or runner_crash, to the machine of that address or with that in its name."""
        answer: dict[str, Any] = self._ask("kill", {"machine": machine, "how": how})
        return answer

    def state(self) -> list[dict[str, Any]]:
        """All machines ever, as DigitalOcean describes them, with ip, tasks and the time of their end."""
        machines: list[dict[str, Any]] = self._ask("state")["machines"]
        return machines

    def bills(self) -> list[dict[str, Any]]:
        """The charge of each machine so far: `stenolab.cloud.machine.Machine.bill`."""
        bills: list[dict[str, Any]] = self._ask("bills")["bills"]
        return bills

    def close(self) -> None:
        """Ends every machine, and the cloud."""
        self._process.end()

    def _ask(self, command: str, body: object = None) -> Any:
        answer = ask(self.port, f"/lab/{command}", body)
        if answer.status != 200:
            raise Refused(command, answer)
        return answer.json

    def _said_port(self) -> int | None:
        assert self._process.alive, f"the cloud did not start:\n{self._process.last_words()}"
        first, newline, _ = self._process.log.read_text().partition("\n")
        return int(json.loads(first)["port"]) if newline else None
