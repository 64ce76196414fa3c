"""The doctor without a server: what it says of this machine, and of what is missing."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import pytest
from stenotest.command_line import Steno, refused
from stenotest.http_server import Handler, LocalServer

pytestmark = pytest.mark.slow


def test_a_machine_without_dstack_is_well(steno: Steno) -> None:
    """Nothing is needed to run here."""
    answer = json.loads(steno("doctor", "--json").stdout)
    assert list(answer) == ["ok", "checks", "dstack", "dstack_problem", "offers", "server_configuration"]
    assert answer["ok"] is True
    assert [check["name"] for check in answer["checks"]] == ["record", "local", "machines", "cloud_key", "kernels"]
    assert answer["server_configuration"] is None


def test_it_says_whether_kernels_can_run_here(steno: Steno) -> None:
    """Without a container engine they are refused; every other run goes on."""
    refused_here = steno("doctor", DOCKER_HOST="tcp://127.0.0.1:1").stdout
    assert "! kernels" in refused_here
    assert "run in containers only. No Docker engine answers at tcp://127.0.0.1:1" in refused_here
    assert "– kernels" in steno("doctor", STENO_KERNEL_WARM="off").stdout


def test_the_idle_timeout_of_this_machine_is_told_with_its_source(steno: Steno) -> None:
    """Free machines go with their run; priced machines after the timeout, and somebody set it."""
    assert "goes with its run" in steno("doctor").stdout
    priced = steno("doctor", STENO_LOCAL_PRICE="1.99", AMD_VM_IDLE_TIMEOUT="300").stdout
    assert "$1.99/h and end after 5 m idle (AMD_VM_IDLE_TIMEOUT)" in priced


def test_settings_that_make_no_policy_are_a_failed_check(steno: Steno) -> None:
    """Exit 2, with what to set."""
    done = steno("doctor", STENO_VMS_SHARE="user")
    assert done.returncode == 2
    assert "✗ machines" in done.stdout
    assert "vms.mode" in done.stdout


def test_who_wants_dstack_is_told_what_is_missing(steno: Steno) -> None:
    """Exit 2, and the variables to set."""
    done = steno("doctor", "--provider", "dstack")
    assert done.returncode == 2
    assert "STENO_DSTACK_URL" in done.stdout


def test_a_server_that_does_not_answer_is_unreachable(steno: Steno) -> None:
    """Exit 3; what comes after is not looked at."""
    there = {"STENO_DSTACK_URL": "http://127.0.0.1:1", "STENO_DSTACK_TOKEN": "t", "STENO_PROJECT": "main"}
    done = steno("doctor", "--json", **there)
    assert done.returncode == 3
    states = {check["name"]: check["state"] for check in json.loads(done.stdout)["checks"]}
    assert states["server"] == "failed"
    assert states["offers"] == "skipped"


def test_the_cloud_key_is_said_to_be_set_and_never_shown(steno: Steno) -> None:
    """With the block of dstack's server configuration it belongs in."""
    done = steno("doctor", DSTACK_AMDDEVCLOUD_API_KEY="dop_v1_secret")
    assert "DSTACK_AMDDEVCLOUD_API_KEY is set" in done.stdout
    assert "- type: amddevcloud" in done.stdout
    assert "dop_v1_secret" not in done.stdout + done.stderr


def test_a_damaged_record_is_a_failed_check(steno: Steno, record_file: Path) -> None:
    """Exit 7, like any command that opens it."""
    record_file.write_text("no record" * 50)
    done = steno("doctor")
    assert done.returncode == 7
    assert "✗ record" in done.stdout


def test_nothing_is_rented_where_nobody_can_be_asked(steno: Steno) -> None:
    """Exit 2 without -y."""
    assert "-y" in refused(steno("doctor", "--provision", stdin=""), 2)


THERE = {"STENO_DSTACK_URL": "http://127.0.0.1:1", "STENO_DSTACK_TOKEN": "t", "STENO_PROJECT": "main"}


def told_of_task(steno: Steno, **variables: str) -> dict[str, str]:
    checks = json.loads(steno("doctor", "--json", **THERE, **variables).stdout)["checks"]
    return next(check for check in checks if check["name"] == "task")


def test_a_task_file_without_an_image_is_found_before_it_is_submitted(steno: Steno, home: Path) -> None:
    """As `submit` would refuse it; dstack's default image supports only NVIDIA GPUs."""
    file = home / ".dstack.yml"
    file.write_text("type: task\ncommands: [rocm-smi]\nresources: {gpu: MI300X}\n")
    lines = told_of_task(steno)
    assert lines["state"] == "warning"
    assert lines["said"].startswith(".dstack.yml: `image` is missing")
    done = steno("submit", "--provider", "dstack", **THERE)
    assert (done.returncode, done.stderr) == (2, f"steno: {home}/{lines['said']}\n")
    file.write_text(file.read_text() + "image: rocm/dev-ubuntu-24.04\n")
    assert told_of_task(steno) == {"name": "task", "state": "ok", "said": ".dstack.yml is a valid task"}


def test_without_a_task_file_the_default_gpu_decides_whether_an_image_is_needed(steno: Steno) -> None:
    """The setting dstack.gpu is MI300X."""
    lines = told_of_task(steno)
    assert lines["state"] == "warning"
    assert "asks for MI300X (setting dstack.gpu) and needs --image" in lines["said"]
    assert told_of_task(steno, STENO_GPU="A100")["state"] == "ok"
    assert told_of_task(steno, STENO_GPU="off")["state"] == "ok"


def test_an_image_is_needed_for_every_gpu_of_the_fallback_list(steno: Steno) -> None:
    """A task that would start on NVIDIA and be refused for AMD an hour later is refused at once."""
    words = ("submit", "--gpu", "A100", "--fallback", "H100,MI300X", "--", "true")
    line = refused(steno(*words, "--provider", "dstack", **THERE), 2)
    assert "`image` is missing" in line


class Server(Handler):
    """A dstack server with one backend; keeps the task of each plan that it is asked for."""

    plans: ClassVar[list[dict[str, object]]] = []

    def answer(self, body: bytes) -> None:
        answer: object = {
            "/api/server/get_info": {"server_version": "0.22.5"},
            "/api/users/get_my_user": {"username": "admin", "global_role": "admin"},
            "/api/projects/main/get": {"backends": [{"name": "vastai"}, {"name": "hotaisle"}]},
        }.get(self.path, [])
        if self.path.endswith("get_plan"):
            self.plans.append(json.loads(body)["run_spec"]["configuration"])
            answer = {"job_plans": [{"offers": []}]}
        self.reply(200, json.dumps(answer).encode())


@pytest.fixture
def server() -> Iterator[dict[str, str]]:
    """The settings of a running `Server`."""
    Server.plans.clear()
    with closing(LocalServer(Server)) as http:
        yield {**THERE, "STENO_DSTACK_URL": http.url}


def test_it_judges_the_task_of_this_folder(steno: Steno, home: Path, server: dict[str, str]) -> None:
    """With dstack's default profile and the setting `dstack.backend`, as `submit` would send it."""
    (home / ".dstack.yml").write_text("type: task\ncommands: [ls]\nresources: {gpu: 'H100:8'}\n")
    (home / ".dstack").mkdir()
    (home / ".dstack" / "profiles.yml").write_text("profiles: [{name: a, default: true, max_price: 9}]\n")

    done = steno("doctor", "--json", STENO_BACKEND="vastai", **server)

    (plan,) = Server.plans
    assert (plan["commands"], plan["max_price"], plan["backends"]) == (["ls"], 9, ["vastai"])
    body = [check["said"] for check in json.loads(done.stdout)["checks"] if check["name"] == "task"]
    assert body == [".dstack.yml is a valid task", "profile a of .dstack/profiles.yml: max_price: 9"]


def test_without_a_task_it_judges_the_shipped_example_and_says_so(
    steno: Steno, home: Path, server: dict[str, str]
) -> None:
    """The same for a task file that dstack would refuse, and for --provision, which runs the example."""
    file = home / ".dstack.yml"
    for text, words in ((None, ()), ("type: task\n", ()), ("type: task\ncommands: [ls]\n", ("--provision", "-y"))):
        if text is not None:
            file.write_text(text)
        Server.plans.clear()
        done = steno("doctor", *words, **server)
        (plan,) = Server.plans
        assert plan["image"] == "rocm/dev-ubuntu-24.04:6.4-complete", plan
        assert "the checks below are for the shipped example, rocm-dstack-hotaisle" in done.stdout
