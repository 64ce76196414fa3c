"""The files of docs/deploy agree with Steno: its commands, settings, ports and probes; and with each other."""

import configparser
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import psycopg
import pytest
import yaml
from stenotest import steno_process
from stenotest.postgres import FAST, binaries, lacking, new_server

from steno.cli.program import steno
from steno.cli.wiring.app import App
from steno.engine.providers.registry import settings_table

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "docs" / "deploy"
PORT = 8642
PROBES = {"/healthz", "/readyz"}
_VARIABLE = re.compile(r"\b(?:STENO|AMD)_[A-Z][A-Z0-9_]+\b")


def files(pattern: str) -> list[Path]:
    return sorted(DEPLOY.glob(pattern))


def compose() -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text())["services"]
    return services


def kubernetes(kind: str) -> list[dict[str, Any]]:
    return [item for item in yaml.safe_load_all((DEPLOY / "kubernetes.yml").read_text()) if item["kind"] == kind]


def container(deployment: dict[str, Any]) -> dict[str, Any]:
    (only,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(only)


def commands() -> Iterator[tuple[str, list[str]]]:
    """(file, words after `steno`) of everything that is run."""
    for path in files("*.service"):
        unit = configparser.ConfigParser(strict=False)
        unit.optionxform = str  # type: ignore[method-assign, assignment]
        unit.read(path)
        program, *words = shlex.split(unit["Service"]["ExecStart"])
        assert Path(program).name == "steno"
        yield path.name, words
    yield from (("compose.yml", service["command"]) for service in compose().values() if service["image"] == "steno")
    for deployment in kubernetes("Deployment"):
        yield "kubernetes.yml", container(deployment)["args"]
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    (command,) = (line.removeprefix("CMD ") for line in lines if line.startswith("CMD "))
    yield "Containerfile", yaml.safe_load(command)
    for path in DEPLOY.iterdir():  # what the head of a file tells a reader to type
        for typed in re.findall(r"^# .*\bsteno (token create [^#>\n]+)", path.read_text(), re.MULTILINE):
            yield path.name, shlex.split(typed)


@pytest.mark.parametrize(
    ("file", "words"), [pytest.param(*case, id=f"{case[0]}: {' '.join(case[1])}") for case in commands()]
)
def test_every_command_is_one_of_ours(file: str, words: list[str]) -> None:
    """With the options that it names."""
    command: click.Command = steno
    context = click.Context(command, obj=App())
    rest = list(words)
    while isinstance(command, click.Group):
        inner = command.get_command(context, rest.pop(0))
        assert inner is not None, (file, words)
        context = click.Context(inner, obj=App(), parent=context)
        command = inner
    _, over, _ = command.make_parser(context).parse_args(rest)
    assert over == [], (file, words)


def test_every_variable_is_a_setting() -> None:
    """A misspelt one would do nothing."""
    known = {variable for setting in settings_table().known for variable in setting.variables}
    for path in DEPLOY.iterdir():
        assert set(_VARIABLE.findall(path.read_text())) <= known, path.name


def test_ports_and_probes_are_those_of_the_service() -> None:
    """Whoever listens is asked where it listens."""
    for _, words in commands():
        if "--port" in words:
            assert words[words.index("--port") + 1] == str(PORT)
    (api,) = (pod for pod in map(container, kubernetes("Deployment")) if "ports" in pod)
    assert api["ports"] == [{"name": "http", "containerPort": PORT}]
    assert {api[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")} == PROBES
    assert f"http://127.0.0.1:{PORT}/healthz" in (DEPLOY / "Containerfile").read_text()
    assert compose()["steno"]["ports"] == [f"127.0.0.1:{PORT}:{PORT}"]
    (scrape,) = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())["scrape_configs"]
    assert scrape["static_configs"] == [{"targets": [f"steno:{PORT}"]}]


def test_what_compose_mounts_is_there_and_where_it_is_read() -> None:
    """All but the token, which the reader makes; images have a version."""
    for name, service in compose().items():
        assert service["image"] == "steno" or re.search(r":v?\d", service["image"]), name
        for volume in service.get("volumes", ()):
            source, _, inside = volume.partition(":")
            if source.startswith("."):
                assert source == "./prometheus.token" or (DEPLOY / source).resolve().is_file(), volume
                assert inside.endswith(":ro"), volume
    read = (DEPLOY / "prometheus.yml").read_text()
    for path in ("/etc/prometheus/steno.rules.yml", "/etc/prometheus/steno.token"):
        assert path in read
        assert any(f":{path}:ro" in volume for volume in compose()["prometheus"]["volumes"])


def test_compose_runs_nothing_as_a_superuser(tmp_path: Path) -> None:
    """Its script makes its roles on a real PostgreSQL, `rights` the record; Steno runs with what it has then."""
    if (lack := lacking()) is not None:
        pytest.fail(lack) if os.environ.get("STENO_REQUIRE_LAB") == "1" else pytest.skip(lack)
    database = compose()["database"]["environment"]
    users = {
        kind: re.sub(r"postgresql://(\w+)@.*", r"\1", compose()[kind]["environment"]["STENO_RECORD"])
        for kind in ("rights", "steno")
    }
    assert len({database["POSTGRES_USER"], *users.values()}) == 3
    assert "./roles.sh:/docker-entrypoint-initdb.d/roles.sh:ro" in compose()["database"]["volumes"]
    server = new_server(*FAST)
    try:
        server.start()
        programs = f"{binaries()}:{os.environ['PATH']}"
        given = {
            "POSTGRES_USER": "postgres",
            "POSTGRES_DB": "steno",
            "OWNER_PASSWORD": "o'ne",
            "SERVICE_PASSWORD": "two",
        }
        place = {"PATH": programs, "PGHOST": str(server.folder), "PGPORT": str(server.port), "HOME": str(tmp_path)}
        server.client("createdb", "steno")
        subprocess.run(["sh", DEPLOY / "roles.sh"], check=True, env=place | given, capture_output=True)

        def steno_as(user: str, *words: str) -> str:
            password = given["OWNER_PASSWORD" if user == users["rights"] else "SERVICE_PASSWORD"]
            record = {"STENO_RECORD": server.url("steno", user=user, password=password)}
            return steno_process.run(words, check=True, env=place | record, cwd=tmp_path).stdout

        steno_as(users["rights"], *compose()["rights"]["command"])
        assert steno_as(users["steno"], "token", "create", "--role", "admin", "--name", "me").startswith("steno_")
        steno_as(users["steno"], "submit", "--provider", "local", "--wait", "--", "true")
        steno_as(users["rights"], *compose()["rights"]["command"])  # at each start
        with psycopg.connect(server.url("steno")) as superuser:
            superusers = superuser.execute("SELECT rolname FROM pg_roles WHERE rolsuper").fetchall()
            assert superusers == [(database["POSTGRES_USER"],)]
            owner = superuser.execute("SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'steno'")
            assert owner.fetchone() == (users["rights"],)
    finally:
        server.remove()


def test_kubernetes_objects_fit_their_schema() -> None:
    """That of the newest Kubernetes known here; a property that it has not is an error too."""
    objects = list(yaml.safe_load_all((DEPLOY / "kubernetes.yml").read_text()))
    for item in objects:
        kubernetes_validate.validate(item, kubernetes_validate.latest_version(), strict=True)
    objects[1]["spec"]["replica"] = 2
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(objects[1], kubernetes_validate.latest_version(), strict=True)


def test_kubernetes_objects_name_each_other() -> None:
    """Selectors find their pods, pods their settings; nobody is root, and nothing but /data is written."""
    labels = []
    for deployment in kubernetes("Deployment"):
        template = deployment["spec"]["template"]
        assert deployment["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
        labels.append(template["metadata"]["labels"])
        assert template["spec"]["securityContext"]["runAsNonRoot"] is True
        pod = container(deployment)
        assert pod["securityContext"]["readOnlyRootFilesystem"] is True
        assert [mount["mountPath"] for mount in pod["volumeMounts"]] == ["/data"]
        assert {"configMapRef": {"name": "steno"}} in pod["envFrom"]
    (settings,) = kubernetes("ConfigMap")
    assert settings["metadata"]["name"] == "steno"
    (service,) = kubernetes("Service")
    (budget,) = kubernetes("PodDisruptionBudget")
    assert service["spec"]["selector"] in labels
    assert budget["spec"]["selector"]["matchLabels"] in labels


def test_the_image_is_built_from_all_that_a_wheel_needs() -> None:
    """A file that the container file does not copy would be missing without an error: hatchling takes what is there."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = re.findall(r"^COPY (?!--from)(.+) /source/\S*$", (DEPLOY / "Containerfile").read_text(), re.MULTILINE)
    needed = {
        *build["only-include"],
        *build["force-include"],
        "hatch_build.py",
        "pyproject.toml",
        "README.md",
        "LICENSE",
    }
    assert needed <= set(" ".join(copied).split())
