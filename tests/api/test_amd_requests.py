"""The requests that the kernel endpoint takes and refuses, and the pages about them; nothing runs here."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import httpx
import jsonschema
import msgspec
import pytest
from stenotest.kernels import SHIPPED, asked

from steno.engine.kernel.definition import DTYPES
from steno.engine.kernel.submission import GPUS, LONGEST_SOURCE
from steno.engine.providers.registry import READINGS
from steno.events.clock import SystemClock
from steno.events.store.record import Record

if TYPE_CHECKING:
    from conftest import Serve

MATMUL: dict[str, Any] = json.loads(msgspec.json.encode(SHIPPED["matmul"].problem_def))


@pytest.fixture(scope="module")
def client(served_on: Serve, tmp_path_factory: pytest.TempPathFactory) -> httpx.Client:
    """A client of a service of an empty record: refused requests do not change it."""
    path = tmp_path_factory.mktemp("amd") / "empty.db"
    Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()).close()
    return served_on(path, api__submit_rate="off").client


def changed(path: str, value: object) -> dict[str, Any]:
    """The definition of matmul with one part another (None: without it)."""
    definition = copy.deepcopy(MATMUL)
    place: Any = definition
    *steps, last = path.split(".")
    for step in steps:
        place = place[int(step)] if step.isdecimal() else place[step]
    if value is None:
        del place[last]
    else:
        place[int(last) if last.isdecimal() else last] = value
    return definition


def refusal(client: httpx.Client, body: bytes, **headers: str) -> tuple[int, str | None]:
    given = {"Content-Type": "application/json"} | {name.replace("_", "-"): value for name, value in headers.items()}
    answer = client.post("/api/amd/submit", content=body, headers=given)
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    problem = answer.json()
    assert problem["detail"]
    return answer.status_code, problem.get("field")


WRONG = [
    ({"solution_code": ""}, "solution_code"),
    ({"solution_code": " \n"}, "solution_code"),
    ({"solution_code": 7}, "solution_code"),
    ({"solution_code": None}, "solution_code"),
    ({"solution_code": "a\0b"}, "solution_code"),
    ({"solution_code": "é" * (LONGEST_SOURCE // 2 + 1)}, "solution_code"),
    ({"problem": "no-such-problem"}, "problem"),
    ({"problem": "../../etc/passwd"}, "problem"),
    ({"problem": ["matmul"]}, "problem"),
    ({"gpu_type": "H100"}, "gpu_type"),
    ({"gpu_type": "mi300x"}, "gpu_type"),
    ({"dtype": "float8"}, "dtype"),
    ({"language": "rust"}, "language"),
    ({"language": "cuda"}, "gpu_type"),
    ({"endpoint": "sample"}, "endpoint"),
    ({"problem_def": 7}, "problem_def"),
    ({"problem_def": []}, "problem_def"),
    ({"problem_def": "class Problem: pass"}, "problem_def"),
    ({"problem_def": changed("tests", [])}, "problem_def.tests"),
    ({"problem_def": changed("tests", None)}, "problem_def.tests"),
    ({"problem_def": changed("benchmarks", [])}, "problem_def.benchmarks"),
    ({"problem_def": changed("tests.0.sizes", {"M": 1, "N": 1})}, "problem_def.tests[0].sizes"),
    ({"problem_def": changed("tests.2.sizes", {"M": 1, "N": 1, "K": 1, "Z": 1})}, "problem_def.tests[2].sizes"),
    ({"problem_def": changed("tests.1.sizes.M", 0)}, "problem_def.tests[1].sizes[...]"),
    ({"problem_def": changed("tests.0.sizes", {"M": 2**20, "N": 2**20, "K": 1})}, "problem_def.tests[0].sizes"),
    ({"problem_def": changed("tests.0.seed", 2**70)}, "problem_def.tests[0].seed"),
    ({"problem_def": changed("tests.0.parameters", {"alpha": 1})}, "problem_def.tests[0].parameters"),
    ({"problem_def": changed("signature.inputs.0.name", "int")}, "problem_def.signature.inputs[0].name"),
    ({"problem_def": changed("signature.inputs.0.name", "B")}, "problem_def.signature.inputs[1].name"),
    ({"problem_def": changed("signature.inputs.0.name", 'A"; system("ls")')}, "problem_def.signature.inputs[0].name"),
    ({"problem_def": changed("signature.inputs.1.shape.0", "Q")}, "problem_def.signature.inputs[1].shape[0]"),
    ({"problem_def": changed("signature.inputs.0.low", 9.0)}, "problem_def.signature.inputs[0].low"),
    ({"problem_def": changed("signature.outputs", [])}, "problem_def.signature.outputs"),
    ({"problem_def": changed("reference.python", "def reference(")}, "problem_def.reference.python"),
    ({"problem_def": changed("reference", {})}, "problem_def.reference"),
    ({"problem_def": changed("reference", {"problem": "nothing"})}, "problem_def.reference.problem"),
    ({"problem_def": changed("tolerance", {"absolute": -1.0, "relative": 0.0})}, "problem_def.tolerance.absolute"),
    ({"problem_def": {**MATMUL, "tolerence": {}}}, "problem_def"),
    ({"problem_def": {**MATMUL, "terms": ["Q"]}}, "problem_def.terms[0]"),
    ({"problem_def": {**MATMUL, "dtypes": ["float64"]}}, "dtype"),
    ({"problem": "softmax", "dtype": "int32"}, "dtype"),
    ({"problem_def": changed("signature.inputs.0.dtype", "float16")}, "problem_def.signature.inputs[0].dtype"),
]


def test_what_is_wrong_is_named(client: httpx.Client) -> None:
    """422, with the part that is wrong as its sender wrote it, and nothing is asked of anybody."""
    refusals = [refusal(client, json.dumps(asked(**{"problem": "matmul", **change})).encode()) for change, _ in WRONG]
    assert refusals == [(422, field) for _, field in WRONG]
    assert client.get("/api/runs").json()["runs"] == []


def test_what_is_missing_is_named(client: httpx.Client) -> None:
    """The three that have no default."""
    for missing in ("solution_code", "problem", "gpu_type"):
        body = asked("matmul")
        del body[missing]
        assert refusal(client, json.dumps(body).encode()) == (422, missing)


NO_OBJECT = (b"", b"{", b"[]", b"7", b'"matmul"', b"null", b"\xff\xfe", b'{"solution_code": "\xff"}', b"[" * 2000)


def test_what_is_no_json_object_is_refused_as_such(client: httpx.Client) -> None:
    """400, before anything is looked at."""
    assert [refusal(client, body) for body in NO_OBJECT] == [(400, "body")] * len(NO_OBJECT)


def test_source_that_is_no_text_is_refused(client: httpx.Client) -> None:
    """Half a character escaped into JSON, and bytes that are not UTF-8."""
    assert refusal(client, json.dumps(asked("matmul", solution_code="\ud800")).encode())[0] in (400, 422)
    body = json.dumps(asked("matmul")).encode().replace(b"MI300X", b"MI300X\xe9")
    assert refusal(client, body) == (400, "body")


def test_headers_that_mean_nothing_are_refused(client: httpx.Client) -> None:
    """A body without the type of JSON, an invalid key, an unknown parameter."""
    body = json.dumps(asked("matmul")).encode()
    assert refusal(client, body, Content_Type="text/plain") == (415, "Content-Type")
    assert refusal(client, body, Idempotency_Key="a key with blanks") == (400, "Idempotency-Key")
    assert client.post("/api/amd/submit?dry=1", content=body).status_code == 400


def test_a_place_that_never_was_is_refused(client: httpx.Client) -> None:
    """A Last-Event-ID that is not an id, or of no event of this record; and an unknown run."""
    for given, status in (("seven", 400), ("-1", 400), ("1" * 40, 400), ("999999", 410), ("1-00000000", 410)):
        answer = client.get("/api/amd/runs/nobody/stream", headers={"Last-Event-ID": given})
        assert (answer.status_code, answer.json().get("field")) == (status, "Last-Event-ID"), given
    assert client.get("/api/amd/runs/nobody/stream").status_code == 404


def test_what_is_taken_is_published(client: httpx.Client) -> None:
    """Every shipped problem, as an object, as text and by name, fits the schema; so does a key of somebody else's."""
    schema = client.get("/api/amd/schema").json()
    jsonschema.Draft202012Validator.check_schema(schema)
    valid = jsonschema.Draft202012Validator(schema)
    for problem in SHIPPED.values():
        definition = json.loads(msgspec.json.encode(problem.problem_def))
        for given in (definition, json.dumps(definition), None):
            valid.validate(asked(problem.problem, problem_def=given, more="of a front end's own"))
    for change in ({"gpu_type": "B1000"}, {"endpoint": "sample"}, {"problem_def": changed("tests", [])}):
        assert not valid.is_valid(asked("matmul", **change))


def test_what_can_be_asked_for_is_listed(client: httpx.Client) -> None:
    """For a page that submits: problems with a working example, types, endpoints, GPUs."""
    offered = client.get("/api/amd/problems").json()
    assert [problem["problem"] for problem in offered["problems"]] == list(SHIPPED)
    assert all(
        problem["title"] and problem["problem_def"] and "solution" in problem["example"]
        for problem in offered["problems"]
    )
    works = {problem["problem"]: problem["work"] for problem in offered["problems"]}
    assert all(case["bytes"] > 0 and case["floor_ms"]["MI300X"] > 0 for work in works.values() for case in work)
    assert works["matmul"][0]["operations"] == 2 * 320**3
    assert offered["dtypes"] == list(DTYPES)
    assert (offered["endpoints"], offered["gpus"]) == (["benchmark", "checker"], list(GPUS))
    tag = client.get("/api/amd/problems").headers["etag"]
    assert client.get("/api/amd/problems", headers={"If-None-Match": tag}).status_code == 304


def test_an_empty_record_has_figures(client: httpx.Client) -> None:
    """All seven, in their order."""
    metrics = client.get("/api/amd/metrics").json()
    assert metrics == {
        "total_cost_usd": 0.0,
        "remaining_credits_usd": None,  # no budget is set
        "credits_used_pct": None,
        "tasks_completed": 0,
        "cold_starts": 0,
        "warm_reuses": 0,
        "active_vms": 0,
    }
