"""Whatever JSON a server answers, a call gives its value or one of our errors: never another exception."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from stenotest.records import StandingClock

from steno.engine.providers.base import Preparation, StopTarget, Submission
from steno.engine.providers.dstack import doctor
from steno.engine.providers.dstack.client import Client, HttpAnswer
from steno.engine.providers.dstack.provider import DstackProvider
from steno.engine.providers.dstack.settings import address
from steno.events.clock import RandomIds
from steno.events.errors import StenoError

AT = "2026-01-01T00:00:00Z"
SUBMISSION = {"id": "s", "submission_num": 0, "status": "submitted", "job_provisioning_data": None}
RUN = {
    "id": "r1",
    "submitted_at": AT,
    "status": "running",
    "run_spec": {"run_name": "name", "configuration": {"type": "task"}},
    "jobs": [{"job_spec": {"replica_num": 0, "job_num": 0}, "job_submissions": [SUBMISSION]}],
}
VM = {
    "id": "v1",
    "status": "idle",
    "name": "f-0",
    "fleet_name": "f",
    "instance_num": 0,
    "price": 1.0,
    "busy_blocks": 0,
    "created": AT,
}
GPU = {"name": ["MI300X"], "vendor": "amd", "count": {"min": 1, "max": 1}}
RESOURCES = {"gpu": GPU, "memory": {"min": 8.0}, "cpu": {"count": {"min": 1}}, "disk": {"size": {"min": 100}}}
FLEET_SPEC = {
    "configuration": {
        "type": "fleet",
        "name": "f",
        "nodes": {"min": 0, "max": 2},
        "idle_duration": 300,
        "backends": ["amddevcloud"],
        "resources": RESOURCES,
        "max_price": 2.0,
    },
    "profile": {"name": "default"},
}
FLEET = {"id": "f1", "name": "f", "status": "active", "project_name": "main", "spec": FLEET_SPEC, "instances": [VM]}
OFFER = {
    "backend": "x",
    "instance": {"name": "i", "resources": {"gpus": [{"name": "MI300X", "memory_mib": 1024}], "spot": False}},
    "region": "r",
    "price": 1.99,
    "availability": "available",
}
PROJECT = "/api/project/main"
GOOD: dict[str, Any] = {
    "/api/runs/list": [RUN],
    f"{PROJECT}/runs/get": RUN,
    f"{PROJECT}/runs/apply": RUN,
    f"{PROJECT}/runs/get_plan": {"job_plans": [{"offers": [OFFER], "total_offers": 1}]},
    f"{PROJECT}/runs/stop": None,
    "/api/instances/list": [VM],
    f"{PROJECT}/fleets/list": [FLEET],
    f"{PROJECT}/fleets/apply": FLEET,
    f"{PROJECT}/fleets/delete_instances": None,
    f"{PROJECT}/logs/poll": {"logs": [{"timestamp": AT, "message": "aGVsbG8="}], "next_token": None},
    "/api/server/get_info": {"server_version": "0.22.5"},
    "/api/projects/main/get": {"project_id": "p", "backends": [{"name": "amddevcloud"}]},
    "/api/users/get_my_user": {"username": "u", "global_role": "admin"},
    "/api/events/list": [{"id": "e", "recorded_at": AT}],
    f"{PROJECT}/metrics/job/name": {"metrics": [{"name": "gpu_util_percent_gpu0", "timestamps": [AT], "values": [3]}]},
}
"""A proper answer of every endpoint we ask."""
ODD = (
    "9" * 400,
    "1e308",
    "1e400",
    "-1.5",
    "true",
    "null",
    "[]",
    "[7]",
    "{}",
    '"0001-01-01T00:00:00+23:59"',
    '"9999-12-31T23:59:59-23:59"',
    r'"\u001b]0;x\u0007\n\u0000"',
)
REFUSALS = (
    '{"detail":[{"msg":null,"loc":7}]}',
    r'{"detail":[{"msg":"a\u001b\n","loc":["body",{}]}]}',
    '{"detail":{"code":7,"msg":[]}}',
    '{"detail":[[[]]]}',
    "[]",
)
TASK = {"type": "task", "name": "name", "commands": ["x"], "image": "i"}
WANTED = Submission(run_id="0" * 36, project="main", name="name", configuration=TASK)
PLAN = Preparation(project="main", name="steno-main", configuration={"type": "fleet", "name": "steno-main"})

CALLS: dict[str, Callable[[DstackProvider], object]] = {
    "poll twice": lambda provider: [list(provider.poll(["x"], since=None)) for _ in range(2)],
    "find": lambda provider: provider.find("name", 0),
    "stop": lambda provider: provider.stop(StopTarget(provider_id="r1", name="name")),
    "stop a machine": lambda provider: provider.stop_vm("v1"),
    "logs": lambda provider: list(provider.logs("r1", "name", follow=False)),
    "plan a fleet": lambda provider: provider.plan(WANTED),
    "plan a slot": lambda provider: provider.plan(msgspec.structs.replace(WANTED, slot="steno-slot")),
    "make a fleet": lambda provider: provider.prepare(PLAN),
    "ask for offers": lambda provider: provider.offers(WANTED),
    "submit": lambda provider: provider.submit(WANTED),
    "expect the project": lambda provider: provider.expect_project(),
    "samples": lambda provider: provider.samples("r1", "name", since=0),
    "diagnose": lambda provider: doctor.Diagnosis(provider.client, TASK, 3).look(),
}


def variants(value: Any) -> Iterator[str]:
    """The JSON text of a value with each part of it in turn replaced by each odd one."""
    yield from ODD
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inner:
        for odd in variants(part):
            changed = dict(value) if isinstance(value, dict) else list(value)
            changed[key] = "the odd one"
            yield json.dumps(changed).replace('"the odd one"', odd)


@pytest.mark.parametrize("path", GOOD)
def test_no_answer_raises_anything_but_our_errors(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    """Each value of each endpoint's answer replaced by huge numbers, other types, far times and control characters."""
    proper = {where: _answer(200, json.dumps(GOOD[where])) for where in GOOD}
    answer = proper[path]
    paths: set[str] = set()

    def ask(self: Client, where: str, body: object = None, **how: object) -> HttpAnswer:
        paths.add(where)
        return answer if where == path else proper[where]

    monkeypatch.setattr(Client, "ask", ask)
    monkeypatch.setattr(Client, "get", ask)
    where = address("http://127.0.0.1:1", "a-token-that-is-long", "main")
    concerned = {}
    for name, call in CALLS.items():
        paths.clear()
        call(DstackProvider(where, clock=StandingClock(), ids=RandomIds()))
        if path in paths:
            concerned[name] = call
    assert concerned
    given = [(200, text) for text in variants(GOOD[path])]
    given += [(status, text) for status in (400, 403, 404, 422, 500) for text in REFUSALS]
    for status, text in given:
        answer = _answer(status, text)
        for name, call in concerned.items():
            provider = DstackProvider(where, clock=StandingClock(), ids=RandomIds())
            try:
                call(provider)
            except StenoError as error:
                message = str(error)
            except Exception as error:
                raise AssertionError(f"{name}: {text}") from error
            else:
                message = ""
            assert "\n" not in message, (name, text)


def _answer(status: int, text: str) -> HttpAnswer:
    return HttpAnswer(started_at=0, observed_at=10**15, status=status, body=text.encode())
