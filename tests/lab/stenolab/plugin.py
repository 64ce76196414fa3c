"""The lab as pytest fixtures. One server of each version per test process, started when first asked for.

`dstack_22`, `dstack_19`: that server. `dstack`: both, one after the other. `real_lab`: one at dstack's own pace.
`steno`, `steno_at`: our command, to run against them. `slurm_cluster`, `slurm_unaccounted`: a Slurm of four nodes with
and without accounting, in three processes.

Tests that use a server are marked `lab` by themselves, and xdist keeps those of one version in one process, so that a
whole run starts each server once; it ends with the module of its last test. The oldest one runs in `make test-ci`
only; `suffices(version)` leaves the other server to `make test-long`. Without the servers' environments tests skip;
with `STENO_REQUIRE_LAB=1` they fail.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest

from stenolab.environment import EnvironmentUnavailable, ensure
from stenolab.lab import Lab
from stenolab.slurm import Cluster, lacking, running
from stenolab.steno import Steno
from stenolab.versions import NEWEST, OLDEST

SLURM = ("slurm_cluster", "slurm_unaccounted", "slurm_wrapping", "slow_endings")
SECOND_HALF = "test_g"
"""The first letter of the modules of `tests/slurm` in the second process."""
FIXTURES = {"dstack_22": NEWEST, "dstack_19": OLDEST}


@pytest.fixture(scope="session")
def dstack_22(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A genuine dstack server of the newest version Steno knows."""
    yield from _running(NEWEST, tmp_path_factory)


@pytest.fixture(scope="session")
def dstack_19(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A genuine dstack server of the oldest version Steno reads."""
    yield from _running(OLDEST, tmp_path_factory)


@pytest.fixture(scope="session", params=[pytest.param(name, id=version) for name, version in FIXTURES.items()])
def dstack(request: pytest.FixtureRequest) -> Lab:
    """Each of the genuine dstack servers."""
    lab = request.getfixturevalue(request.param)
    assert isinstance(lab, Lab)
    return lab


@pytest.fixture
def real_lab(tmp_path: Path) -> Iterator[Lab]:
    """A server of the newest version with dstack's own pauses: a cold run takes more than a minute."""
    _needs(NEWEST)
    with closing(Lab(NEWEST, tmp_path / "real", pace=1.0, patience=1.0)) as lab:
        yield lab


@pytest.fixture(scope="session")
def needs_slurm() -> None:
    """Slurm's programs, and root, who may start them."""
    _skip(lacking())


@pytest.fixture(scope="session")
def slurm_cluster(needs_slurm: None) -> Iterator[Cluster]:
    """A Slurm of four nodes and five partitions that is up, with accounting."""
    with running() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_unaccounted(needs_slurm: None) -> Iterator[Cluster]:
    """A Slurm that has no accounting: `sacct` is there and knows nothing."""
    with running(accounting=False) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def slurm_wrapping(needs_slurm: None) -> Iterator[Cluster]:
    """A Slurm without accounting, whose job ids come again after a few jobs."""
    with running(accounting=False, ids=4) as cluster:
        yield cluster


@pytest.fixture
def steno(tmp_path: Path) -> Iterator[Steno]:
    """Our command with a home and a record of its own, and no dstack project; see `at` for one with."""
    runner = Steno(folder=tmp_path)
    yield runner
    runner.close()


class StenoAt(Protocol):
    """Makes our command, set up for a project as its user would be; `environment` are further variables of its."""

    def __call__(self, lab: Lab, project: str, **environment: str) -> Steno: ...


@pytest.fixture
def steno_at(tmp_path: Path) -> Iterator[StenoAt]:
    """`steno_at(lab, project)`: our command, set up for that project as its user would be."""
    yield from _at(tmp_path)


@pytest.fixture(scope="module")
def steno_for_module(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StenoAt]:
    """`steno_at` for a fixture that many tests look at."""
    yield from _at(tmp_path_factory.mktemp("steno"))


@pytest.hookimpl(tryfirst=True)  # before `-m` selects and xdist groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what uses a server, and gives each version's tests to one process, and those of a module that use the
    browser or what the module makes once. Slurm's tests wait more than they work: three processes with clusters of
    their own.
    """
    for item in items:
        clusters = _asks_for(item, SLURM)
        if clusters:
            second = item.path.stem > SECOND_HALF and item.path.parent.name == "slurm"
            group = "slurm-slow" if clusters != {"slurm_cluster"} else "slurm-2" if second else "slurm-1"
            item.add_marker(pytest.mark.lab)
            item.add_marker(pytest.mark.xdist_group(group))
        servers = _servers_of(item)
        if servers:
            item.add_marker(pytest.mark.lab)
        if len(servers) == 1:
            item.add_marker(pytest.mark.xdist_group(f"dstack-{next(iter(servers))}"))
        elif item.get_closest_marker("xdist_group") is None and (_asks_for(item, ("browser",)) or _shares(item)):
            item.add_marker(pytest.mark.xdist_group(f"{item.path.parent.name}-{item.path.stem}"))
        enough = {version for mark in item.iter_markers("suffices") for version in mark.args}
        if servers and enough and not servers & enough:
            item.add_marker(pytest.mark.long)
        elif servers == {OLDEST}:
            item.add_marker(pytest.mark.ci)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Finds the last test of each server."""
    _last.clear()
    _last.update({version: item for item in session.items for version in _servers_of(item)})


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Every test finds its server up, whatever the one before it left."""
    for version in _servers_of(item) & _labs.keys():
        _labs[version].be_up()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Once a module is over, fixtures included: takes away its fleets, and ends a server that no test is left for."""
    yield
    _unneeded.update(version for version, last in _last.items() if last is item)
    if nextitem is not None and nextitem.path == item.path:
        return
    for version in _servers_of(item) & _labs.keys():
        _labs[version].retire_fleets()
    for version in _unneeded & _labs.keys():
        _labs.pop(version).close()


_last: dict[str, pytest.Item] = {}
_unneeded: set[str] = set()
_labs: dict[str, Lab] = {}


def _servers_of(item: pytest.Item) -> frozenset[str]:
    return frozenset(FIXTURES[name] for name in _asks_for(item, FIXTURES))


def _asks_for(item: pytest.Item, fixtures: Iterable[str]) -> set[str]:
    used = set(getattr(item, "fixturenames", ()))
    parameters = getattr(getattr(item, "callspec", None), "params", {})
    used |= {value for value in parameters.values() if isinstance(value, str)}  # a fixture may ask for one by its name
    return used & set(fixtures)


def _shares(item: pytest.Item) -> bool:
    """True if it uses what its module makes once: a service, a record."""
    made = getattr(item, "_fixtureinfo", None)
    return made is not None and any(defined[-1].scope == "module" for defined in made.name2fixturedefs.values())


def _at(folder: Path) -> Iterator[StenoAt]:
    runners: list[Steno] = []

    def at(lab: Lab, project: str, **environment: str) -> Steno:
        where = folder / f"steno-{len(runners)}"
        runner = Steno(folder=where, home=lab.home(project), **{"STENO_PROVIDER": "dstack", **environment})
        runners.append(runner)
        return runner

    yield at
    for runner in runners:
        runner.close()


def _running(version: str, folders: pytest.TempPathFactory) -> Iterator[Lab]:
    _needs(version)
    lab = _labs[version] = Lab(version, folders.mktemp(f"dstack-{version}"))
    yield lab
    if _labs.pop(version, None) is not None:
        lab.close()


def _needs(version: str) -> None:
    try:
        ensure(version)
    except EnvironmentUnavailable as error:
        _skip(f"no dstack {version} to test against ({error}); `make lab` installs it")


def _skip(message: str | None) -> None:
    if message is not None and os.environ.get("STENO_REQUIRE_LAB"):
        pytest.fail(message)
    if message is not None:
        pytest.skip(message)
