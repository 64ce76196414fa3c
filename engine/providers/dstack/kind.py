"""dstack, as the registry knows it."""

from __future__ import annotations

import shlex
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from steno.engine.errors import NotConfigured, TaskInvalid
from steno.engine.providers.dstack.settings import BLOCK, TASK_FILES, address_of, fleet_nodes
from steno.engine.providers.kind import KernelRights, Option, ProviderKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from steno.engine.providers.dstack.provider import DstackProvider
    from steno.engine.providers.dstack.reading import DstackReading
    from steno.engine.providers.kind import Checkup, TaskProfile
    from steno.engine.providers.task import Draft
    from steno.engine.rules.sets import RuleSet
    from steno.engine.settings.settings import Settings
    from steno.events.clock import Clock, Ids
    from steno.events.store.store import Store


_WITH_PACKAGES = (
    "python3 -c 'import docker, numpy' 2>/dev/null || "
    "{ apt-get -q update && apt-get -q install -y python3-docker python3-numpy; }"
)
_SHARED_MEMORY = "4GB"  # of the tensors of a batch, and of what its reference gets and gives


class DstackKind(ProviderKind):
    """Machines that a dstack server rents."""

    name = "dstack"
    summary = "machines that your dstack server rents"
    settings = BLOCK
    options = (
        Option(
            flag="--backend",
            field="backends",
            metavar="NAME",
            multiple=True,
            help="Only these backends; may be repeated.",
        ),
        Option(
            flag="--spot-policy",
            field="spot_policy",
            choices=("spot", "on-demand", "auto"),
            help="Spot machines, or not.",
        ),
    )
    delete_run = "dstack delete {name}"
    delete_machine = "dstack fleet delete {fleet}"
    ends_idle = True
    has_trial = True
    kernels = KernelRights.ISOLATED
    task_files = TASK_FILES

    def reading(self) -> DstackReading:
        from steno.engine.providers.dstack.reading import DstackReading

        return DstackReading()

    def rule_sets(self) -> tuple[RuleSet, ...]:
        """The rule sets of December 2025, which judge dstack's own words."""
        from steno.engine.providers.dstack import rules_2025

        return rules_2025.RULE_SETS

    def open(self, settings: Settings, *, clock: Clock, ids: Ids, record: Store | None) -> DstackProvider:
        from steno.engine.providers.dstack.provider import DstackProvider

        key = Path(settings.value("dstack.ssh_key") or "").expanduser()
        nodes = fleet_nodes(settings)
        return DstackProvider(address_of(settings), clock=clock, ids=ids, fleet_nodes=nodes, ssh_key=key)

    def project(self, settings: Settings) -> str:
        return address_of(settings).project

    def complete(self, draft: Draft, settings: Settings) -> dict[str, object]:
        from steno.engine.providers.dstack.task import completed

        return completed(draft, settings)

    def profile(self, name: str | None, environ: Mapping[str, str]) -> TaskProfile | None:
        from steno.engine.providers.dstack.task import find_profile

        return find_profile(name, environ)

    def check(self, draft: Draft) -> dict[str, object]:
        from steno.engine.providers.dstack.task import complete_task

        return complete_task(draft.configuration, draft.environ, draft.where, draft.fallback)

    def holding(self, program: str, env: Mapping[str, str], gpu: str | None) -> dict[str, object]:
        """A privileged task, in which dstack starts a Docker engine; its machine ends with it."""
        return {
            "type": "task",
            "docker": True,
            "commands": [_WITH_PACKAGES, f"exec python3 -c {shlex.quote(program)}"],
            "env": dict(env),
            "resources": {"shm_size": _SHARED_MEMORY} | ({} if gpu is None else {"gpu": f"{gpu}:1"}),
            "idle_duration": 0,
        }

    def warm_up(self) -> None:
        from steno.engine.providers.dstack.task import complete_task

        with suppress(TaskInvalid, NotConfigured):  # only the import matters
            complete_task({"type": "task", "commands": ["true"]}, {}, "nothing")

    def checkup(self, settings: Settings, *, clock: Clock, ids: Ids, wanted: bool, trial: bool = False) -> Checkup:
        from steno.engine.providers.dstack.doctor import checkup

        open_ = partial(self.open, settings, clock=clock, ids=ids, record=None)
        return checkup(settings, open_, wanted=wanted, trial=trial)


KIND = DstackKind()
