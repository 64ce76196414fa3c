"""The packages that `make dist` builds work away from the checkout, as pip and as uv install it."""

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import zstandard
from stenotest.command_line import VARIABLES
from stenotest.packages import ROOT, stub, uv
from stenotest.waiting import LIMIT_S, wait

from steno.cli.catalogue import HELP
from steno.events.installation import commit, version
from steno.events.store.store import REVISION

pytestmark = pytest.mark.slow

RECORD = "tests/events/records/format-1.db.zst"
PACKAGES = ("cli", "engine", "events", "projections")
INSIDE = {"migrations": "steno/events/_migrations", "examples": "steno/cli/_examples", "src/steno": "steno"} | {
    name: f"steno/{name}" for name in PACKAGES
}
"""Folders of the source tree, and where a wheel has them."""


def committed(*folders: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split("\0") if name and not (ROOT / name).is_symlink()}


def test_the_wheel_has_every_file_of_the_product_below_steno(wheel: Path) -> None:
    """Also what is not Python: dashboard, problems, migrations, headers; and nothing beside it but its metadata."""
    wanted = {name.replace(folder, inside, 1) for folder, inside in INSIDE.items() for name in committed(folder)}
    with zipfile.ZipFile(wheel) as file:
        packed = {name for name in file.namelist() if ".dist-info/" not in name}
        assert packed == wanted | {"steno/COMMIT"}
        assert file.read("steno/COMMIT").decode().strip() == commit() != ""


def test_the_sdist_has_every_committed_file(dist: Path) -> None:
    """But the links, which are lost in one: the wheel is built from it."""
    (path,) = dist.glob("*.tar.gz")
    with tarfile.open(path) as file:
        packed = {name.partition("/")[2] for name in file.getnames()}
        assert not [member.name for member in file if not member.isfile()]
    assert committed() - packed == set()
    assert "COMMIT" in packed


def test_the_bill_of_materials_has_every_pin_and_who_requires_it(dist: Path) -> None:
    """As CycloneDX asks: every reference is that of a component; all of them are reached from Steno."""
    bill = json.loads((dist / "steno-gpu.cdx.json").read_text())
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    pins = re.findall(r"^([\w.-]+)==([^\s;\\]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    assert [(component["name"], component["version"]) for component in bill["components"]] == pins
    root = bill["metadata"]["component"]["bom-ref"]
    depends = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    assert depends.keys() == {root, *(component["purl"] for component in bill["components"])}
    reached: set[str] = set()
    rest = {root}
    while rest:
        reached |= rest
        rest = {needed for reference in rest for needed in depends[reference]} - reached
    assert reached == depends.keys()
    assert {reference.split("/")[1].split("@")[0] for reference in depends[root]} >= {"alembic", "sqlalchemy", "dstack"}


@pytest.fixture(params=["pip", "uv tool"])
def installed(request: pytest.FixtureRequest, wheel: Path, tmp_path: Path) -> Path:
    """`steno` as that tool installs the wheel, with the locked versions of what it requires."""
    if request.param == "uv tool":
        places = {"UV_TOOL_DIR": str(tmp_path / "tools"), "UV_TOOL_BIN_DIR": str(tmp_path / "bin")}
        uv("tool", "install", "--quiet", "--python", sys.executable, wheel, **places)
        return tmp_path / "bin" / "steno"
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    uv("pip", "install", "--quiet", "--python", tmp_path / "venv", "-r", "pyproject.toml")
    pip = [tmp_path / "venv" / "bin" / "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", wheel]
    subprocess.run(pip, check=True, env=os.environ | {"PIP_CONSTRAINT": ""})
    return tmp_path / "venv" / "bin" / "steno"


@pytest.mark.long
def test_an_installed_steno_needs_no_checkout(installed: Path, tmp_path: Path) -> None:
    """Version, a run, an old record brought to the newest schema, problems, man pages, dashboard."""
    home = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"} | VARIABLES

    def steno(*words: object) -> str:
        command = [installed, *map(str, words)]
        done = subprocess.run(command, cwd=tmp_path, env=home, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert steno("--version") == f"steno {version()} (commit {commit()}, schema {REVISION})\n"
    assert json.loads(steno("submit", "--wait", "--json", "--", "true"))["state"] == "succeeded"

    old = tmp_path / "old.db"
    old.write_bytes(zstandard.decompress((ROOT / RECORD).read_bytes()))
    steno("db", "upgrade", "--record", old)
    assert json.loads(steno("db", "status", "--record", old, "--json"))["schema"] == REVISION
    steno("verify", "--record", old)

    problems = {path.parent.name for path in (ROOT / "engine/kernel/problems").glob("*/problem.json")}
    assert {problem["problem"] for problem in json.loads(steno("kernel", "problems", "--json"))["problems"]} == problems
    assert set(json.loads(steno("man", "--install", "--json"))["pages"]) >= {f"steno-{name}" for name in HELP}

    command = [installed, "serve", "--port", "0"]
    service = subprocess.Popen(command, cwd=tmp_path, env=home, stdout=subprocess.PIPE, text=True)
    with service, ExitStack() as ended:
        ended.callback(service.terminate)
        assert service.stdout is not None
        address = next(match[0] for line in service.stdout if (match := re.search(r"http://[\d.:]+", line)))
        wait(lambda: httpx.get(f"{address}/readyz", timeout=LIMIT_S).is_success, what="the first fold")
        page = httpx.get(address, timeout=LIMIT_S)
        assert (page.status_code, "<title>" in page.text) == (200, True)
        for asset in re.findall(r'(?:src|href)="(/assets/[^"]+)"', page.text):
            assert httpx.get(f"{address}{asset}", timeout=LIMIT_S).status_code == 200, asset
        assert httpx.get(f"{address}/api/runs", timeout=LIMIT_S).json()["runs"][0]["state"] == "succeeded"


@pytest.mark.ci
def test_it_stands_beside_a_package_events_and_another_dstack(wheel: Path, tmp_path: Path) -> None:
    """Both keep their modules and Steno its own; the other dstack, which Steno never imports then, is named. Away from
    the checkout, migrations and problems are those of the wheel.
    """
    others = [stub(tmp_path, "Events", "0.5", "events"), stub(tmp_path, "dstack", "0.19.37", "dstack")]
    uv("venv", "--quiet", "--python", sys.executable, tmp_path / "venv")
    uv("pip", "install", "--quiet", "--python", tmp_path / "venv", wheel)
    uv("pip", "install", "--quiet", "--no-deps", "--python", tmp_path / "venv", *others, UV_CONSTRAINT="")
    (tmp_path / "engine.py").write_text("ORIGIN = 'a script of the user'\n")
    home = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}

    def run(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
        command = [tmp_path / "venv" / "bin" / words[0], *words[1:]]
        return subprocess.run(command, cwd=tmp_path, env=home | more, capture_output=True, text=True, check=False)

    assert run("steno", "submit", "--wait", "--", "true").returncode == 0
    (tmp_path / "old.db").write_bytes(zstandard.decompress((ROOT / RECORD).read_bytes()))
    assert run("steno", "db", "upgrade", "--record", "old.db").returncode == 0
    assert "vector-add" in run("steno", "kernel", "problems").stdout
    code = "import dstack, events, engine, steno.events.clock, steno; steno.Client; print(events.ORIGIN, engine.ORIGIN)"
    assert run("python", "-c", code).stdout == "Events a script of the user\n"
    server = {"STENO_DSTACK_URL": "http://127.0.0.1:1", "STENO_DSTACK_TOKEN": "t" * 32, "STENO_PROJECT": "main"}
    done = run("steno", "submit", "--provider", "dstack", "--image", "alpine", "--", "true", **server)
    line = f"a task for dstack needs the package dstack 0.22, not 0.19.37: `uv pip install --python {tmp_path}/venv"
    assert (done.returncode, line in done.stderr) == (2, True), done.stderr
