"""The OpenAPI document: whole, true of every answer, and held against the service by schemathesis."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import pytest
from starlette.routing import Route, Router
from stenotest import steno_process
from stenotest.waiting import LIMIT_S

from steno.projections.api.service import Service
from steno.projections.app import build_app

PAGES = {"get"}
"""The methods of the dashboard's own addresses: they are pages for people, and not in the document."""


@pytest.fixture(scope="module")
def document(reader: httpx.Client) -> dict[str, Any]:
    """The document as it is served."""
    answer = reader.get("/openapi.json")
    assert answer.status_code == 200
    body: dict[str, Any] = answer.json()
    return body


def routes(app: Any) -> Iterator[Route]:
    """The routes behind everything that stands in front of them."""
    while not isinstance(app, Router):
        app = app._app
    for route in app.routes:
        assert isinstance(route, Route), route
        yield route


def test_the_document_is_openapi_3_1_without_a_loose_end(document: dict[str, Any]) -> None:
    """Every reference leads somewhere, every schema is used, every operation has a name of its own."""
    assert document["openapi"] == "3.1.0"

    def references(value: Any) -> Iterator[str]:
        match value:
            case dict():
                if isinstance(value.get("$ref"), str):
                    yield value["$ref"]
                for inner in value.values():
                    yield from references(inner)
            case list():
                for inner in value:
                    yield from references(inner)

    schemas = document["components"]["schemas"]
    assert set(references(document)) == {f"#/components/schemas/{name}" for name in schemas}
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    names = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))
    for path, methods in document["paths"].items():
        for operation in methods.values():
            assert operation["summary"], path
            assert set(operation["tags"]) <= {tag["name"] for tag in document["tags"]}, path
            wanted = {part.strip("{}") for part in path.split("/") if part.startswith("{")}
            given = {parameter["name"] for parameter in operation.get("parameters", []) if parameter["in"] == "path"}
            assert wanted == given, path


def test_every_route_is_in_the_document_and_nothing_else(document: dict[str, Any], service: Service) -> None:
    """The application answers as the document says; only the dashboard's pages are left out."""
    served_routes = {
        (route.path, method.lower())
        for route in routes(build_app(service))
        for method in route.methods or ()
        if method != "HEAD" and (route.path.startswith("/api") or route.path in document["paths"])
    }
    described = {(path, method) for path, methods in document["paths"].items() for method in methods}
    assert served_routes == described
    service.closing.close()


def test_every_route_is_on_the_page_of_the_api(document: dict[str, Any]) -> None:
    """In `docs/api.md`, whole or as `/explain` beside the path of its row; a new endpoint fails here."""
    paths: set[str] = set()
    for line in (Path(__file__).parents[2] / "docs/api.md").read_text().splitlines():
        words = re.findall(r"(?<=[`\s])/[a-z{}/._]+", line)
        paths |= {*words, *(words[0].rpartition("/")[0] + word for word in words)}
    written = {re.sub(r"\{(run|vm|token)\}", "{id}", path) for path in paths}
    assert document["paths"].keys() - written == set()


def test_every_read_answers_as_the_document_says(reader: httpx.Client, document: dict[str, Any]) -> None:
    """Real answers of a real record, problems among them, are valid under the schema of their status."""
    runs = reader.get("/api/runs", params={"limit": 500}).json()["runs"]
    machines = reader.get("/api/vms").json()["vms"]
    head = int(reader.get("/api/runs").headers["steno-position"])
    words = {
        "/api/runs": [run["run_id"] for run in runs],
        "/api/vms": [vm["vm_id"] for vm in machines],
        "/api/events": list(range(1, head, head // 40)),
        "/api/polls": [row["position"] for row in reader.get("/api/polls", params={"limit": 30}).json()["polls"]],
    }
    checked = 0
    for path, methods in document["paths"].items():
        operation = methods.get("get")
        if operation is None or "application/json" not in operation["responses"].get("200", {}).get("content", {}):
            continue
        name = path.partition("/{")[0]
        for word in (*words.get(name, ()), "nobody") if "{" in path else ("",):
            target = path.replace("{id}", str(word)).replace("{position}", str(word))
            for query in ("", f"?at={head // 2}", "?at=0") if path.startswith("/api/runs") else ("",):
                answer = reader.get(target + query)
                if path in {"/api/session", "/readyz"} and answer.status_code >= 400:
                    continue
                allowed = {200, 400, 404, 409} if path.endswith("/entrance") else {200, 400, 404}
                assert answer.status_code in allowed, (target, query, answer.text)
                kind = answer.headers["content-type"].partition(";")[0]
                schema = operation["responses"][str(answer.status_code)]["content"][kind]["schema"]
                jsonschema.validate(answer.json(), {**schema, "components": document["components"]})
                checked += 1
    assert checked > 200


@pytest.fixture
def service(town: Path) -> Service:
    """A service that nothing of is started."""
    from steno.cli.wiring.app import App
    from steno.cli.wiring.http_service import assembled
    from steno.engine.providers.registry import load_settings

    app, nobody = App(), town.parent / "nobody"
    app.settings = load_settings(
        flags={"record": str(town)}, environ={}, cwd=nobody, home=nobody, config=nobody, data=nobody
    )
    return assembled(app, town)


CONFIGURATION = """
[warnings]
enabled = false

# schemas cannot say what a dstack task may be: dstack's own models judge it
[[operations]]
include-operation-id = "submitRun"
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]

# nor can they say which values of a run's environment the record does not hold: those have to be given again
[[operations]]
include-operation-id = "rerunRun"
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]

# nor which fields an action needs: `keep` a machine and how long
[[operations]]
include-operation-id = "pullLever"
checks.positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "422"]

# output is asked of the run's provider, which is not there: the record is a recording
[[operations]]
include-operation-id = "getRunLogs"
checks.not_a_server_error.expected-statuses = ["2xx", "4xx", "502", "503"]
"""
ENDLESS = "stream|/api/amd/submit"
"""Streams do not end by themselves: tests of their own hold them to what they promise."""


@pytest.mark.slow
@pytest.mark.parametrize("phases", ["examples", pytest.param("examples,coverage,fuzzing", marks=pytest.mark.long)])
def test_schemathesis_finds_nothing(served: Callable[..., Any], town: Path, tmp_path: Path, phases: str) -> None:
    """Every operation that ends, every check of schemathesis; with `long` also data that does not fit the document and
    any data, which test_fuzz sends too.
    """
    made = steno(town, "token", "create", "--role", "admin", "--json")
    service = served(town, api__submit_rate="off", api__host="0.0.0.0")  # elsewhere than on loopback: a token is due
    who = {"Authorization": f"Bearer {json.loads(made)['token']}"}
    port = httpx.URL(service.url).port
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=who, trust_env=False, timeout=LIMIT_S) as client:
        head = client.get("/api/record").json()
        known = {
            "head": head["position"],
            "first_at": head["first_at"],
            "last_at": head["last_at"],
            "runs": [run["run_id"] for run in client.get("/api/runs").json()["runs"]],
            "vms": [vm["vm_id"] for vm in client.get("/api/vms").json()["vms"]],
        }
    (tmp_path / "known.json").write_text(json.dumps(known))
    (tmp_path / "schemathesis.toml").write_text(CONFIGURATION)
    done = subprocess.run(
        [
            str(Path(sys.executable).with_name("st")),
            *("--config-file", str(tmp_path / "schemathesis.toml")),
            *("run", f"http://127.0.0.1:{port}/openapi.json"),
            *("--header", f"Authorization: {who['Authorization']}"),
            *("--exclude-path-regex", ENDLESS),
            *("--phases", phases, "--checks", "all", "--mode", "all"),
            *("--max-examples", "5", "--seed", "1", "--continue-on-failure", "--no-shrink"),
            *("--request-timeout", "120"),
        ],
        cwd=tmp_path,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(tmp_path),
            "LANG": "C.UTF-8",
            "SCHEMATHESIS_HOOKS": str(Path(__file__).with_name("schemathesis_hooks.py")),
            "STENO_KNOWN": str(tmp_path / "known.json"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-20_000:]


def steno(record: Path, *words: str) -> str:
    """The output of the genuine command about a record."""
    env = {"PATH": "/usr/bin:/bin", "HOME": str(record.parent), "LANG": "C.UTF-8"}
    return steno_process.run([*words, "--record", str(record)], cwd=record.parent, env=env, check=True).stdout
