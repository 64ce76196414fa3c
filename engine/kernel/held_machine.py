"""A machine kept warm for kernels: the run of another provider that keeps it, and the listener that this run starts."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import engine
import events
from engine.errors import NotConfigured
from engine.kernel.executor import packed, program_of
from engine.kernel.listener_run import NO_GPU
from engine.policy import BACKSTOP
from engine.providers.task import LISTENER, choose_name
from engine.states import State
from events.clock import SECOND
from events.shape.secrets import PREFIX
from events.store.vault import Vault

if TYPE_CHECKING:
    from engine.providers.kind import ProviderKind
    from engine.settings.settings import Settings
    from events.store.store import Store

_SLOT: Final = "steno-slot-"  # as of every machine that holds one run at a time
_FIRST_PORT: Final = 20_000
_PORTS: Final = 10_000
_ENGINE_PATIENCE: Final = 600.0  # seconds for the machine's Docker engine to start, and to fetch the image
_FORGOTTEN: Final = 3600 * SECOND  # without an idle timeout: silence after which a listener ends by itself
_SENT: Final = (
    "engine/__init__.py",
    "engine/errors.py",
    "engine/kernel/__init__.py",
    "events/__init__.py",
    "events/errors.py",
    "events/installation.py",
)
_FOLDERS: Final = ("engine/kernel/machine", "engine/listener")
_SUFFIXES: Final = frozenset({".py", ".hpp", ".h", ".json"})


class HeldMachine(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    name: str
    gpu: str | None  # in capitals; None: without a GPU
    created: int  # microseconds, UTC: when it was asked for
    provider_id: str | None
    state: State
    over: bool
    failed_at: int | None = None  # it ended, and not because it was told to
    forgotten: bool = False  # its listener ended it: nobody asked for it for too long
    listened: bool = False  # its listener has answered before, perhaps to an earlier process
    why: str = ""  # why it ended, in words

    @property
    def slot(self) -> str:
        return f"{_SLOT}{self.name}"


def name_of(run_id: str, gpu: str | None) -> str:
    """The name of the run that keeps a machine; it tells the GPU."""
    return choose_name(run_id, f"kernels-{(gpu or NO_GPU).lower()}")


def port_of(run_id: str) -> int:
    """Where the listener of that run listens on its machine."""
    return _FIRST_PORT + int(hashlib.sha256(run_id.encode()).hexdigest()[:8], 16) % _PORTS


def token_of(store: "Store", run_id: str) -> str:
    """What the listener of that run expects of its engine; unpredictable without the key of the record's vault."""
    vault = Vault(store.blob("vault"))
    return vault.commitment(f"listener/{run_id}".encode()).removeprefix(PREFIX)


def listener_task(
    kind: "ProviderKind", settings: "Settings", run_id: str, gpu: str | None, token: str
) -> dict[str, object]:
    """The task that keeps a machine with this GPU and starts the listener there.

    Raises:
        NotConfigured: the provider cannot keep machines for kernels.
    """
    idle = settings.parsed("vms.idle_timeout")
    options = {
        "name": run_id,
        "token": token,
        "port": port_of(run_id),
        "image": settings.parsed("kernel.image"),
        "memory": settings.parsed("container.memory_limit"),
        "cpus": settings.parsed("container.cpu_limit"),
        "forgotten_after": ((_FORGOTTEN if idle is None else idle) + BACKSTOP) / SECOND,
        "waits": _ENGINE_PATIENCE,
    }
    files = (*_files(), ("listener.json", msgspec.json.encode(options)))
    task = kind.holding(program_of("engine.listener", LISTENER), {LISTENER: packed(files)}, gpu)
    if task is None:
        raise NotConfigured(f"the provider {kind.name} keeps no machines for kernels: set kernel.warm = off")
    return {**task, "name": name_of(run_id, gpu)}


def _files() -> tuple[tuple[str, bytes], ...]:
    """Every file of the listener, which needs nothing else of Steno."""
    homes = {"engine": Path(engine.__path__[0]).parent, "events": Path(events.__path__[0]).parent}
    paths = [homes[name.partition("/")[0]] / name for name in _SENT]
    for folder in _FOLDERS:
        paths += (path for path in (homes["engine"] / folder).rglob("*") if path.suffix in _SUFFIXES)
    roots = sorted(set(homes.values()))
    return tuple(
        (next(path.relative_to(root) for root in roots if path.is_relative_to(root)).as_posix(), path.read_bytes())
        for path in sorted(paths)
    )
