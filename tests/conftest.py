"""Shared by all tests: the lab's fixtures (`tests/lab/README.md`).

The lab is a package that is not installed and stays off `sys.path`, where a second `tests` or `conftest` could hide
behind it: it is loaded from its folder, under the name `stenolab`, and then registered like any plugin.
"""

import ctypes
import gc
import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings


def _load(name: str, folder: Path) -> None:
    if name in sys.modules:
        return
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


_load("stenolab", Path(__file__).parent / "lab" / "stenolab")
importlib.import_module("stenotest.small_segments").shrink_if_asked()

# A shell that starts the tests in the background has them and their children ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "stenolab.plugin",
    "stenolab.browser",
    "stenolab.docker",
    "stenolab.machine_ssh",
    "stenotest.packages",
    "stenotest.postgres",
    "pytester",
]

# Laws are not timed, and how long or large an example was to make is nobody's failure: a machine that does other work
# at the same time breaks none of them. Where CI runs, every run tries the same examples, so that what a change did not
# touch does not fail it; anywhere else each run tries others. `make test-long` tries twenty times as many.
settings.register_profile(
    "steno",
    max_examples=int(os.environ.get("STENO_TEST_EXAMPLES", "20")),
    deadline=None,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
        HealthCheck.filter_too_much,
    ],
    derandomize=os.environ.get("STENO_REQUIRE_LAB") == "1",
)
settings.load_profile("steno")


gc.disable()  # until all tests are collected: they stay, and an eighth of the time went into visiting them


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules stay until the end: the garbage collector need not visit them."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.fixture
def held_by_permissions(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Permissions hold root too until the test ends, and the processes it starts: nobody may override them."""
    monkeypatch.setenv("STENO_TEST_FORK", "0")  # the fork server keeps its rights
    if os.geteuid() != 0:
        yield
        return
    before = capabilities()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(PR_SET_SECUREBITS, SECBIT_NOROOT, 0, 0, 0) == 0
    capabilities(before & ~OVERRIDES)
    try:
        yield
    finally:
        capabilities(before)
        assert libc.prctl(PR_SET_SECUREBITS, 0, 0, 0, 0) == 0


PR_SET_SECUREBITS = 28
SECBIT_NOROOT = 1
"""A program that root starts gets no capabilities for it (linux/securebits.h)."""


OVERRIDES = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH of linux/capability.h."""


def capabilities(effective: int | None = None) -> int:
    """This thread's effective capabilities (the first 32), after setting them if given; those permitted stay."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    data = (ctypes.c_uint32 * 6)()
    assert libc.capget(header, data) == 0
    if effective is not None:
        data[0] = effective
        assert libc.capset(header, data) == 0
    return data[0]
