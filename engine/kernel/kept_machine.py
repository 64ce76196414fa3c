"""A machine kept warm for kernels: the run of another provider that keeps it, and the listener that this run starts."""

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import steno
from steno import engine, events
from steno.engine.errors import NotConfigured
from steno.engine.providers.task import LISTENER, choose_name
from steno.engine.state.kernel_mark import NO_GPU
from steno.engine.state.policy import BACKSTOP
from steno.engine.state.states import State
from steno.events.clock import SECOND
from steno.events.shape.secrets import PREFIX
from steno.events.store.vault import Vault

if TYPE_CHECKING:
    from steno.engine.providers.kind import ProviderKind
    from steno.engine.settings.settings import Settings
    from steno.events.store.store import Store

_SLOT: Final = "steno-slot-"  # as of every machine that holds one run at a time
_FIRST_PORT: Final = 20_000
_PORTS: Final = 10_000
_ENGINE_PATIENCE: Final = 300.0  # seconds for the machine's Docker engine to start; it costs some cents
_FORGOTTEN: Final = 3600 * SECOND  # without an idle timeout: silence after which a listener ends by itself
_SAMPLER: Final = ("providers/__init__.py", "providers/sampler.py")
_SENT: Final = {
    steno: ("__init__.py",),
    engine: ("__init__.py", "errors.py", "kernel/__init__.py", "kernel/machine/**/*", "listener/*", *_SAMPLER),
    events: ("__init__.py", "errors.py", "installation.py"),
}
"""The files of Steno's packages that a listener needs."""
_LONG_AGO: Final = (1980, 1, 1, 0, 0, 0)  # constant file times: the same files are the same bytes
_SUFFIXES: Final = frozenset({".py", ".hpp", ".h", ".ll", ".json"})


class KeptMachine(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    name: str
    provider_id: str | None
    state: State
    over: bool
    gpu: str | None = None  # in capitals; None: without a GPU
    created: int = 0  # microseconds, UTC: when it was requested
    failed_at: int | None = None  # it ended without a request to stop
    forgotten: bool = False  # its listener ended it: it had no requests for too long
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
    """The token that the listener of that run expects; unpredictable without the key of the record's vault."""
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
    task = kind.holding(program_of("steno.engine.listener", LISTENER), {LISTENER: packed(files)}, gpu)
    if task is None:
        raise NotConfigured(f"the provider {kind.name} keeps no machines for kernels: set kernel.warm = off")
    return {**task, "name": name_of(run_id, gpu)}


def _files() -> Iterator[tuple[str, bytes]]:
    """Every file of the listener, which needs nothing else of Steno."""
    for package, patterns in _SENT.items():
        home = Path(package.__path__[0])
        for path in sorted(path for pattern in patterns for path in home.glob(pattern)):
            if path.suffix in _SUFFIXES:
                yield f"{package.__name__.replace('.', '/')}/{path.relative_to(home).as_posix()}", path.read_bytes()


def packed(files: Iterable[tuple[str, bytes]]) -> str:
    """Files as a zip file in base64."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as file:
        for name, data in files:
            file.writestr(zipfile.ZipInfo(name, _LONG_AGO), data, zipfile.ZIP_DEFLATED, 9)
    return base64.b64encode(archive.getvalue()).decode("ascii")


def program_of(module: str, variable: str) -> str:
    """The Python program that unpacks `packed` files from a variable into a folder of its own and runs a module of
    them, which gets the folder as its argument.
    """
    return (
        "import base64, io, os, runpy, sys, tempfile, zipfile; "
        "folder = tempfile.mkdtemp(prefix='steno-'); "
        f"zipfile.ZipFile(io.BytesIO(base64.b64decode(os.environ.pop('{variable}')))).extractall(folder); "
        f"sys.path.insert(0, folder); sys.argv = ['{module}', folder]; "
        f"runpy.run_module('{module}', run_name='__main__')"
    )
