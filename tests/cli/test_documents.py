"""Every command of the README and of each page of `docs/`, typed in its order in a clone, in a home of its own."""

import re
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from stenolab.lab import Lab
from stenolab.slurm import Cluster
from stenotest.page import Command, blocks_of, commands_of, differs, lacks
from stenotest.page_sessions import EXITS, INSTEAD, SITTINGS, Sitting
from stenotest.reader import Reader
from stenotest.webhook_server import WebhookServer

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.events.clock import SystemClock
from steno.events.store.record import Record

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
EACH_CHANGE = ("README.md", "docs/archives.md", "docs/notifications.md", "docs/rules.md")
"""Pages whose commands are typed for each change; `tests/project/test_docs.py` parses those of the others."""
Words = Mapping[str, str]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def sittings() -> Iterator[object]:
    """(the server it needs, itself, its commands) of every sitting."""
    for page in PAGES:
        commands = commands_of(page)
        rows = SITTINGS.get(name(page), (Sitting(),))
        for number, sitting in enumerate(rows):
            its = [command for command in commands if next(row for row in rows if row.of in command.text) is sitting]
            if its:
                where = pytest.mark.ci if name(page) in EACH_CHANGE else pytest.mark.long
                marks = () if name(page) in EACH_CHANGE and sitting.server == "nothing" else (where,)
                yield pytest.param(sitting.server, sitting, its, id=f"{name(page)}-{number}", marks=marks)


@pytest.fixture
def clone(home: Path, environment: dict[str, str], record_file: Path) -> Path:
    """A clone of the project that is set up as the README says, by links to the environment of this clone; it is the
    home and the current folder, and has the record. Root has to type who may use the service, as the pages say.
    """
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(home)], check=True)
    for folder in (".venv", ".tools/bin"):
        (home / folder).mkdir(parents=True)
    for link in ("bin", "lib", "pyvenv.cfg"):
        (home / ".venv" / link).symlink_to(ROOT / ".venv" / link)
    for done in (".tools/bin/uv", ".venv/.run", ".venv/.dev"):
        (home / done).touch()
    environment |= {"PATH": f"{home}/.venv/bin:{environment['PATH']}", "COLUMNS": "96", "STENO_API_LOOPBACK": ""}
    return home


@pytest.fixture
def nothing() -> Words:
    return {}


@pytest.fixture
def on_dstack(dstack_22: Lab, clone: Path) -> Words:
    """Two projects of a genuine server, in dstack's configuration."""
    project, other = dstack_22.project(), dstack_22.project()
    shutil.copytree(dstack_22.home(project, other) / ".dstack", clone / ".dstack")
    return {
        "--name main --url http://127.0.0.1:3000 --token TOKEN":
            f"--name {project} --url {dstack_22.url} --token {dstack_22.token}",
        "dstack/main": f"dstack/{project}",
        "dstack/lab": f"dstack/{other}",
    }  # fmt: skip


@pytest.fixture
def on_slurm(slurm_cluster: Cluster, environment: dict[str, str], tmp_path: Path) -> Iterator[Words]:
    """A login node of a cluster."""
    path = environment["PATH"]
    environment |= {"STENO_SLURM_FOLDER": str(slurm_cluster.folder / "jobs" / tmp_path.name)}
    environment |= slurm_cluster.environment | {"PATH": f"{path}:/usr/sbin:/sbin"}
    yield {"=me@login.cluster": "="}
    slurm_cluster.cancel_in(f"/jobs/{tmp_path.name}")


@pytest.fixture
def webhook() -> Iterator[Words]:
    with WebhookServer() as hook:
        yield {"https://hooks.example.org/services/T0/B0/key": hook.url, "https://hooks.example.org/key": hook.url}


@pytest.fixture
def databases(postgres_url: str, environment: dict[str, str]) -> Words:
    """A server for libpq's programs and for URLs."""
    where, made = urlsplit(postgres_url), f"typed_{uuid.uuid4().hex[:12]}"
    host, port = (parse_qs(where.query)[key][0] for key in ("host", "port"))
    environment |= {"PGHOST": host, "PGPORT": port, "PGUSER": where.username or ""}
    url = postgres_url.replace(where.path, f"/{made}")
    return {
        "createdb steno": f"createdb {made}",
        "postgresql://steno@db.example.org/steno?sslmode=verify-full": f"'{url}'",
        **{f" {role}": f" {role}_{made}" for role in ("grafana", "recorder", "service", "analyst")},
    }


@pytest.fixture
def engine_here(engine: str, environment: dict[str, str]) -> Words:
    """A container engine with an image for kernels."""
    environment |= {"DOCKER_HOST": engine, "STENO_KERNEL_IMAGE": "steno-lab/kernel:1"}
    return {}


SERVERS = {"nothing": "nothing", "dstack_22": "on_dstack", "slurm_cluster": "on_slurm"}


@pytest.fixture(scope="module")
def record_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`record_of(trace)`: the record that a recorder would have made of what it holds; an import makes an archive."""

    @cache
    def made(trace: str) -> Path:
        path = tmp_path_factory.mktemp("record") / "record.db"
        if not trace:
            return path
        polls = [poll for _, poll in open_trace(ROOT / trace) if poll is not None]
        with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
            record.append_polls(polls)
        return path

    return made


@pytest.mark.slow
@pytest.mark.parametrize(("server", "sitting", "commands"), list(sittings()))
def test_every_command_of_a_page_works_in_its_order(
    server: str,
    sitting: Sitting,
    commands: list[Command],
    clone: Path,
    environment: dict[str, str],
    record_of: Callable[[str], Path],
    request: pytest.FixtureRequest,
) -> None:
    """Each exits 0, or as its page says, and prints what is shown below it, figures aside. A session that is marked as
    checked prints exactly that, of the record that it names.
    """
    words = sitting.words | {":8642": r"/serving http://[\d.]+(:\d+)"}  # its words have the port too
    for context in (SERVERS[server], *sitting.needs):
        words |= request.getfixturevalue(context)
    for path, text in sitting.files.items():
        (clone / path).write_bytes((ROOT / text).read_bytes() if isinstance(text, Path) else text.encode())
        (clone / path).chmod(0o755)
    apart = Reader(clone, dict(environment))
    reader = Reader(clone, environment | sitting.variables)
    try:
        for command in commands:
            for earlier in of(sitting.before, command.text) or ():
                code, printed = reader.type(filled(earlier, words, reader.printed))
                assert code == 0, (command.line, earlier, printed)
            row = next((start for start in INSTEAD if re.match(start, command.text)), None)
            if row is not None and not INSTEAD[row][0]:
                continue
            text = command.text if row is None else re.sub(row, INSTEAD[row][0], command.text)
            text = filled(text, words, reader.printed)
            if command.trace is None:
                code, printed = reader.type(text)
                moment = command.text.startswith(sitting.moments)
                assert lacks(command.output, printed, moment=moment) == [], (command.line, text, printed)
            else:
                code, printed = apart.type(text, STENO_RECORD=str(record_of(command.trace)))
                assert not differs(command.output, printed), (command.line, printed)
            expected = next((status for begin, status in EXITS.items() if re.match(begin, command.text)), 0)
            refused = any(line.startswith(("steno: ", "✗")) for line in command.output)
            assert code != 0 if refused else code == expected, (command.line, text, code, printed)
    finally:
        reader.close()
        print(reader.printed[-20_000:])


def of(rows: Mapping[str, tuple[str, ...]], text: str) -> tuple[str, ...] | None:
    """The row whose key the text begins with."""
    return next((row for start, row in rows.items() if text.startswith(start)), None)


def filled(text: str, words: Mapping[str, str], printed: str) -> str:
    """The command with a reader's own words."""
    for word, by in words.items():
        if word in text:
            text = text.replace(word, re.findall(by[1:], printed)[-1] if by.startswith("/") else by)
    return text


def test_every_fence_has_a_language() -> None:
    """In a fence without one a command could stand unseen."""
    assert [f"{name(page)}:{block.line}" for page in PAGES for block in blocks_of(page) if block.language == ""] == []


def test_every_row_of_the_tables_is_about_a_command() -> None:
    """A row for a command that is gone would hide the next command that looks like it."""
    every = [command.text for page in PAGES for command in commands_of(page)]
    assert [start for start in (*INSTEAD, *EXITS) if not any(re.match(start, text) for text in every)] == []
    for page, rows in SITTINGS.items():
        texts = [command.text for command in commands_of(ROOT / page)]
        for row in rows:
            starts = [*row.before, *row.moments]
            assert [start for start in starts if not any(text.startswith(start) for text in texts)] == [], page
            assert [word for word in row.words if not any(word in text for text in texts)] == [], page
