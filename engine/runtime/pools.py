"""Pools for the pieces of a record: processes of this machine, or the workers of a Dask cluster."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import socket
import threading
from concurrent.futures import CancelledError, ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from steno.engine.runtime.signals import Terminated, stoppable
from steno.events.errors import PoolFailed, StenoError
from steno.events.installation import installing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from distributed import Client, Future

    from steno.events.store.verify_pieces import WorkPool

T = TypeVar("T")
R = TypeVar("R")

WORTH_IT: Final = 100_000
"""Events of a record from which processes of this machine save more time than their start takes."""
_EACH: Final = 2  # pieces for each process or thread: they do not take equally long
_PATIENCE: Final = 10.0  # seconds until the scheduler has to answer, and between two looks whether there are workers
_ALONE: Final = 6  # looks without any worker until a cluster is given up


@contextmanager
def pool(jobs: int | None, dask: str | None) -> Iterator[WorkPool | None]:
    """The pool that the options `--jobs` and `--dask` ask for; None: all is done in this process."""
    if dask is not None:
        cluster = _Cluster(dask)
        try:
            yield cluster
        finally:
            cluster.close()
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    at_once = cores if jobs is None else jobs
    if at_once < 2:
        yield None
        return
    processes = _Processes(at_once, least=WORTH_IT if jobs is None else 0)
    try:
        with stoppable(signal.SIGTERM, Terminated):
            yield processes
    except Terminated:
        raise SystemExit(128 + signal.SIGTERM) from None  # as a shell says of who was ended by it
    finally:
        processes.close()


class _Processes:
    """Processes that end with this process."""

    def __init__(self, jobs: int, *, least: int) -> None:
        self.size, self.least = _EACH * jobs, least
        self._jobs = jobs
        self._executor: ProcessPoolExecutor | None = None
        self._busy = False

    def map(self, work: Callable[[T], R], pieces: Sequence[T], done: Callable[[T], None]) -> list[R]:
        if self._executor is None:
            self._executor = _started(self._jobs, work.__module__)
        self._busy = True
        futures = {self._executor.submit(work, piece): piece for piece in pieces}
        try:
            for future in as_completed(futures):
                future.result()
                done(futures[future])
        except BrokenProcessPool as error:
            raise PoolFailed(
                "A process that worked on a piece of the record was killed. If memory ran out, use fewer: --jobs 1."
            ) from error
        self._busy = False
        return [future.result() for future in futures]

    def close(self) -> None:
        """End the processes, at once if they still work."""
        if self._executor is None:
            return
        if self._busy:
            for child in multiprocessing.active_children():
                child.kill()
        self._executor.shutdown(cancel_futures=True)


def _started(jobs: int, module: str) -> ProcessPoolExecutor:
    from multiprocessing import forkserver

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module])
    # What the server inherits: Ctrl-C reaches all processes of a terminal, and this one ends the others.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_end_with_parent)


def _end_with_parent() -> None:
    """End this process when its parent has ended, for whatever reason."""
    parent = multiprocessing.parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


class _Cluster:
    """The workers of a Dask scheduler."""

    least = 0

    def __init__(self, address: str) -> None:
        self._address = address
        self._opened = False

    @property
    def size(self) -> int:
        """PoolFailed: there are no workers."""
        threads: int = sum(self._client.nthreads().values())
        if not threads:
            raise PoolFailed(
                f"The Dask scheduler {self._address} has no workers: start some with "
                f"`dask worker {self._address} --nthreads 1`."
            )
        return _EACH * threads

    def map(self, work: Callable[[T], R], pieces: Sequence[T], done: Callable[[T], None]) -> list[R]:
        there = partial(_there, work, _code())
        futures = {self._client.submit(there, piece, pure=False): piece for piece in pieces}
        try:
            for future in self._finished(set(futures)):
                self._result(future)
                done(futures[future])
            return [self._result(future) for future in futures]
        except CancelledError as error:
            raise PoolFailed(f"The Dask scheduler {self._address} ended or was lost.") from error
        except OSError as error:
            raise PoolFailed(f"The Dask scheduler {self._address} was lost: {_said(error)}.") from error

    def close(self) -> None:
        if self._opened:
            self._client.close(timeout=2)

    @cached_property
    def _client(self) -> Client:
        try:
            from distributed import Client
        except ImportError as error:
            raise StenoError(f"--dask needs Dask: `{installing('dask')}`.") from error
        for name in ("distributed", "distributed.client"):  # they have levels of their own
            logging.getLogger(name).setLevel(logging.CRITICAL)  # what is worth a line is raised here
        try:
            client = Client(self._address, timeout=_PATIENCE)
        except (OSError, ValueError) as error:
            raise PoolFailed(f"The Dask scheduler {self._address} cannot be reached: {_said(error)}.") from error
        self._opened = True
        versions: Any = client.get_versions()
        for name, of in (("scheduler", versions["scheduler"]), *versions["workers"].items()):
            ours, theirs = _versions(versions["client"]), _versions(of)
            if ours != theirs:
                client.close()
                raise PoolFailed(f"Dask's {name} has {theirs}, this machine {ours}: install the same versions.")
        return client

    def _finished(self, open_: set[Future]) -> Iterator[Future]:
        from distributed import wait

        alone = 0
        while open_:
            try:
                finished = wait(open_, timeout=_PATIENCE, return_when="FIRST_COMPLETED").done
            except TimeoutError:
                alone = 0 if self._client.nthreads() else alone + 1
                if alone >= _ALONE:
                    raise PoolFailed(f"All workers of the Dask scheduler {self._address} are gone.") from None
                continue
            yield from finished
            open_ -= finished

    def _result(self, future: Future) -> Any:
        from distributed import KilledWorker

        try:
            return future.result()
        except StenoError:
            raise
        except KilledWorker as error:
            raise PoolFailed("Several Dask workers were killed at the same piece: give them more memory.") from error
        except ImportError as error:
            raise PoolFailed(f"A Dask worker does not have this Steno ({error}): install the same version.") from error


def _said(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _versions(of: dict[str, Any]) -> str:
    python = ".".join(of["host"]["python"].split(".")[:2])
    return f"Python {python} and distributed {of['packages']['distributed']}"


def _code() -> str:
    from steno.engine.fold.snapshot_store import code

    return code()


def _there(work: Callable[[T], R], code: str, piece: T) -> R:
    """Work on a piece, on a worker of a cluster."""
    host = socket.gethostname()
    if _code() != code:
        raise PoolFailed(f"The Dask worker on {host} has another Steno: install the same version there.")
    try:
        return work(piece)
    except StenoError as error:
        raise type(error)(f"On the Dask worker {host}: {error}") from error
