"""Every extra, installed as our own message says into a bare environment without pip, does what it is for; and nothing
under the GPL comes in without dstack.
"""

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from stenotest.http_server import Handler, LocalServer
from stenotest.mail_server import MailServer
from stenotest.packages import uv
from stenotest.postgres import lacking
from stenotest.waiting import LIMIT_S

from steno.events.installation import DISTRIBUTION, installing

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = tuple(PROJECT["optional-dependencies"])
UNDER_GPL = {"cursor"}
"""As docs/install.md says of the extra `dstack`."""
TOKEN = "t" * 32
TRIES = 5

Call = Callable[..., "subprocess.CompletedProcess[str]"]
Case = Callable[[Call, pytest.FixtureRequest], "Generator[str]"]
"""Calls the command; yields what it says, and asserts that it did what the extra is for if it is asked to go on."""


@pytest.fixture(scope="module")
def bare(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with Steno's wheel and what it requires, without pip; of extras only those of earlier tests."""
    bare = tmp_path_factory.mktemp("extras") / "bare"
    uv("venv", "--quiet", "--python", sys.executable, bare)
    uv("pip", "install", "--quiet", "--python", bare, wheel)
    return bare


@pytest.fixture
def call(bare: Path, tmp_path: Path) -> Call:
    """The environment's own `steno`, in an empty home."""
    surroundings = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}

    def run(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
        command = [bare / "bin" / "steno", *map(str, words)]
        options = {"cwd": tmp_path, "env": surroundings | variables, "stdin": subprocess.DEVNULL}
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S, **options)

    return run


def questions(call: Call, _: pytest.FixtureRequest) -> Generator[str]:
    """SQL over a record, and files of it."""
    assert call("submit", "--wait", "--", "true").returncode == 0
    done = call("sql", "select 1")
    yield done.stderr
    assert "1" in done.stdout
    done = call("export", "runs", "--format", "parquet", "-o", "out")
    assert done.returncode == 0, done.stderr


def postgres(call: Call, request: pytest.FixtureRequest) -> Generator[str]:
    """A record on PostgreSQL; where there is no server, a server that cannot be reached."""
    url = "postgresql://127.0.0.1:1/steno" if lacking() else request.getfixturevalue("postgres_url")
    done = call("submit", "--wait", "--record", url, "--", "true")
    yield done.stderr
    expected = (3, True) if lacking() else (0, False)
    assert (done.returncode, "cannot be reached" in done.stderr) == expected, done.stderr


def otlp(call: Call, _: pytest.FixtureRequest) -> Generator[str]:
    """The trace of a run arrives."""
    with collector() as (address, arrived):
        done = call("submit", "--wait", "--", "true", STENO_OTLP_ENDPOINT=address)
        yield done.stderr
        for _ in range(TRIES):  # an ending process waits for its collector for seconds; the next sends what is left
            assert done.returncode == 0, done.stderr
            if arrived:
                break
            done = call("submit", "--wait", "--", "true", STENO_OTLP_ENDPOINT=address)
        assert arrived


def notices(call: Call, request: pytest.FixtureRequest) -> Generator[str]:
    """A test notice arrives by mail."""
    with MailServer() as mail:
        settings = f'[notify.alice]\nurl = "{mail.url("alice@example.org")}"\n'
        (request.getfixturevalue("tmp_path") / "steno.toml").write_text(settings)
        done = call("notify", "test")
        yield done.stderr
        assert (done.returncode, len(mail.taken)) == (0, 1), done.stderr


@contextmanager
def collector() -> Iterator[tuple[str, list[str]]]:
    arrived: list[str] = []

    class Collector(Handler):
        def answer(self, _body: bytes) -> None:
            arrived.append(self.path)
            self.reply(200, b"")

    with closing(LocalServer(Collector)) as server:
        yield server.url, arrived


def dask(call: Call, request: pytest.FixtureRequest) -> Generator[str]:
    """A cluster of that environment folds a record."""
    assert call("submit", "--wait", "--", "true").returncode == 0
    cluster = (
        "import sys; from distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    with LocalCluster(1, threads_per_worker=1, dashboard_address=None) as made:\n"
        "        print(made.scheduler_address, flush=True); sys.stdin.read()\n"
    )
    program = request.getfixturevalue("tmp_path") / "cluster.py"
    program.write_text(cluster)
    python = request.getfixturevalue("bare") / "bin" / "python"
    address = "tcp://127.0.0.1:1"
    with subprocess.Popen([python, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        address = process.stdout.readline().strip() or address  # none without the extra
        done = call("replay", "--dask", address)
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
    yield done.stderr
    assert done.returncode == 0, done.stderr


def listener(call: Call, _: pytest.FixtureRequest) -> Generator[str]:
    """It asks the container engine, which is not there."""
    nobody = {"STENO_LISTENER_TOKEN": TOKEN, "DOCKER_HOST": "unix:///nowhere/docker.sock"}
    done = call("listener", "--port", "0", "--forgotten-after", "1s", "--at-end", "true", **nobody)
    yield done.stdout + done.stderr
    assert "/nowhere/docker.sock" in done.stdout


def dstack(call: Call, _: pytest.FixtureRequest) -> Generator[str]:
    """A task is checked by dstack's own models, and then its server does not answer."""
    server = {"STENO_DSTACK_URL": "http://127.0.0.1:1", "STENO_DSTACK_TOKEN": TOKEN, "STENO_PROJECT": "main"}
    task = ("submit", "--provider", "dstack", "--image", "rocm/dev-ubuntu-24.04", "--wait", "--", "true")
    done = call(*task, **server)
    yield done.stderr
    assert done.returncode == 3, done.stderr
    done = call("doctor", **server)
    assert "dstack" in done.stdout
    assert "bug in Steno" not in done.stderr


CASES = (questions, postgres, otlp, notices, dask, listener, dstack)
LONG = dict.fromkeys({*CASES} - {otlp}, pytest.mark.long)
"""`otlp` shows the way of all; the others have more to install, and tests of their own elsewhere."""


def test_every_extra_has_its_case() -> None:
    assert {case.__name__ for case in CASES} == set(EXTRAS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=LONG.get(case, ())) for case in CASES], ids=lambda case: case.__name__
)
def test_an_extra_is_installed_as_the_message_says_and_its_command_works(
    case: Callable[[Call, pytest.FixtureRequest], Generator[str]],
    call: Call,
    bare: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Without it one line says what to type; typed as it stands, with the locked versions, that is enough."""
    with closing(case(call, request)) as first:
        printed = next(first)
    (typed,) = set(re.findall(r"`uv (pip install .*?)`", printed))
    assert typed == f"pip install --python {bare} '{DISTRIBUTION}[{case.__name__}]'"
    uv(*typed.replace("'", "").split(), "--quiet")
    (printed,) = case(call, request)
    assert "pip install" not in printed


def test_a_clone_is_told_to_use_make() -> None:
    """Its .venv has no pip; the Makefile takes one extra or several."""
    assert installing("otlp") == f"make -C {ROOT} setup EXTRAS=otlp"
    done = subprocess.run(
        ["make", "--dry-run", "setup", "EXTRAS=otlp questions"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "--constraint requirements-dev.lock --editable" in done.stdout
    words = ["make", "setup", "EXTRAS=otlp none"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, "there is no extra none" in done.stdout) == (2, True), done.stderr


def test_an_installed_wheel_is_told_to_use_its_own_pip(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", "/opt/steno")
    monkeypatch.setattr("steno.events.installation.find_spec", lambda _: object())
    assert installing("otlp") == f"{sys.executable} -m pip install 'steno-gpu[otlp]'"


def test_nothing_committed_tells_to_install_a_strangers_package() -> None:
    """`steno` on a package index is another project: each name after an `install` is ours, or a name that we lock."""
    locked = {*re.findall(r"^([\w.-]+)==", (ROOT / "requirements-dev.lock").read_text(), re.M), DISTRIBUTION, "Steno"}
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    installs = re.compile(r"""\bpip install (?:-\S+ )*['"]?([A-Za-z][\w.-]*)(?=[\['"`= ]|$)""", re.M)
    named = {
        (name, package)
        for name in files
        if Path(name).suffix in {".md", ".py", ".ipynb", ".yml", ".service", ".toml", ""}
        if not name.startswith(("tests/", "benchmarks/")) and not (ROOT / name).is_symlink()
        for package in installs.findall((ROOT / name).read_text())
    }
    assert DISTRIBUTION in {package for _, package in named}
    assert {(name, package) for name, package in named if package not in locked} == set()
    assert PROJECT["name"] == DISTRIBUTION


def needed(*extras: str) -> dict[str, metadata.Distribution]:
    """Steno with these extras and all that it requires, as installed here."""
    distributions: dict[str, metadata.Distribution] = {}
    rest = {(DISTRIBUTION, ("", *extras))}
    done = set()
    while rest:
        name, wanted = rest.pop()
        done.add((name, wanted))
        distributions[canonicalize_name(name)] = metadata.distribution(name)
        for line in metadata.requires(name) or ():
            requirement = Requirement(line)
            if requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in wanted):
                rest |= {(requirement.name, ("", *sorted(requirement.extras)))} - done
    return distributions


def under_gpl(*extras: str) -> set[str]:
    """The packages under the GPL itself: linking to what is under the LGPL asks nothing of us."""
    licence = re.compile(r"(?<!L)GPL|GNU (?:Affero )?General Public")
    fields = ("License", "License-Expression", "Classifier")
    licences = {
        name: " ".join(str(text)[:200] for field in fields for text in distribution.metadata.get_all(field) or ())
        for name, distribution in needed(*extras).items()
    }
    return {name for name, text in licences.items() if licence.search(text)}


def test_only_dstack_brings_something_under_the_gpl() -> None:
    """docs/install.md names it."""
    assert under_gpl(*EXTRAS) == UNDER_GPL
    assert under_gpl(*(extra for extra in EXTRAS if extra != "dstack")) == set()
    (row,) = re.findall(r"^\| `dstack` .*", (ROOT / "docs" / "install.md").read_text(), re.M)
    assert all(f"`{name}`" in row for name in UNDER_GPL)


@pytest.mark.slow
def test_the_image_without_dstack_has_nothing_under_the_gpl(tmp_path: Path) -> None:
    """The script of the container file, with another EXTRAS and the uv of this machine."""
    file = (ROOT / "docs" / "deploy" / "Containerfile").read_text()
    assert "ARG EXTRAS=dstack,postgres\n" in file
    assert set(re.findall(r"EXTRAS=([a-z,]+)", file)) == {"dstack,postgres", "postgres"}
    (install,) = re.findall(r"^ && /tools/bin/uv (pip install .*)$", file, re.M)
    assert '"/source[${EXTRAS}]"' in install
    uv("venv", "--quiet", "--python", sys.executable, tmp_path / "steno")
    for inside, here in (("/steno ", f"{tmp_path}/steno "), ("/source", str(ROOT)), ("${EXTRAS}", "postgres")):
        install = install.replace(inside, here)
    uv(*(word.strip('"') for word in install.split() if word not in ("--no-cache", "--compile-bytecode")))
    (packages,) = tmp_path.glob("steno/lib/python*/site-packages")
    there = {canonicalize_name(str(distribution.name)) for distribution in metadata.distributions(path=[str(packages)])}
    assert {"steno-gpu", "psycopg", "uvicorn"} <= there
    assert there & {"dstack", *UNDER_GPL} == set()
