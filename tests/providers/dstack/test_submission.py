"""Submitting, finding, stopping and reading output, on the genuine servers."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from stenolab.lab import Lab
from stenolab.versions import NEWEST, OLDEST
from stenotest.dstack_history import read_run

from steno.engine.errors import NotConfigured, ProjectNotFound, ProviderRefused, TaskInvalid
from steno.engine.providers.base import StopTarget, Submission
from steno.engine.providers.dstack.provider import DstackProvider
from steno.engine.providers.dstack.task import complete_task
from steno.events.clock import SECOND

pytestmark = pytest.mark.slow

RETRY = {"on_events": ["no-capacity"], "duration": "1h"}
Connect = Callable[..., DstackProvider]


def task(*commands: str, **more: object) -> dict[str, object]:
    """A valid task for the lab's cloud."""
    configuration = {
        "type": "task",
        "commands": list(commands),
        "image": "rocm/dev-ubuntu-24.04",
        "resources": {"gpu": "MI300X:1"},
        "idle_duration": "20s",
        **more,
    }
    return complete_task(configuration, os.environ, "the test's task")


def submission(project: str, name: str, configuration: dict[str, object], base: Path | None = None) -> Submission:
    return Submission(
        run_id="r", name=name, project=project, configuration=configuration, base=str(base) if base else None
    )


def start(provider: DstackProvider, wanted: Submission) -> str:
    """As the engine does it: a fleet where one is needed, then the task; gives the provider's id."""
    plan = provider.plan(wanted)
    if plan is not None:
        provider.prepare(plan)
    return provider.submit(wanted).provider_id


def now() -> int:
    return time.time_ns() // 1000


def test_a_task_with_files_runs_and_gives_its_output(dstack: Lab, connect: Connect, tmp_path: Path) -> None:
    """`files:` arrive where `dstack apply` would put them: in the working directory, folders whole, renamed."""
    (tmp_path / "one.txt").write_text("one\n")
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "deep" / "two.txt").write_text("two\n")
    (tmp_path / "folder" / ".gitignore").write_text("ignored.txt\n")
    (tmp_path / "folder" / "ignored.txt").write_text("no\n")
    provider = connect(dstack, dstack.project())
    before = now()
    configuration = task(
        "cat one.txt renamed/deep/two.txt; ls renamed; echo to-stderr >&2; echo $WORD",
        files=["one.txt", "folder:renamed"],
        env={"WORD": "spoken"},
    )

    provider_id = start(provider, submission(provider.client.address.project, "with-files", configuration, tmp_path))
    output = b"".join(provider.logs(provider_id, "with-files", follow=True)).decode()

    assert output.split() == ["one", "two", "deep", "to-stderr", "spoken"]
    assert b"".join(provider.logs(provider_id, "with-files", follow=False)).decode() == output
    (run,) = provider.find("with-files", before)
    assert (run.provider_id, run.mark, run.ended) == (provider_id, "r", True)
    assert provider.find("with-files", now() + 60 * SECOND) == ()
    assert provider.find("another", 0) == ()


@pytest.mark.ci
@pytest.mark.suffices(NEWEST)
def test_long_output_is_whole_and_in_order(dstack: Lab, connect: Connect) -> None:
    """More pieces than a page holds, many with one time, read while they come and once more after the end."""
    project = dstack.project()
    provider = connect(dstack, project)
    command = "for i in $(seq 1 3); do seq 1 900; sleep 1; done; echo end >&2"
    provider_id = start(provider, submission(project, "talkative", task(command)))
    expected = [str(number) for _ in range(3) for number in range(1, 901)] + ["end"]

    followed = b"".join(provider.logs(provider_id, "talkative", follow=True)).decode()
    afterwards = b"".join(provider.logs(provider_id, "talkative", follow=False)).decode()

    assert afterwards.split() == expected
    assert followed.split() == expected


@pytest.mark.ci
def test_output_is_followed_over_a_restart_of_the_server(dstack_22: Lab, connect: Connect) -> None:
    """A follower does not begin again and sees what the server kept (which may keep a line twice over a restart)."""
    project = dstack_22.project()
    provider = connect(dstack_22, project)
    command = "for i in $(seq 1 8); do echo $i; sleep 1; done"
    provider_id = start(provider, submission(project, "counting", task(command)))
    output = provider.logs(provider_id, "counting", follow=True)

    first = next(output)
    dstack_22.restart()
    followed = (first + b"".join(output)).decode().split()

    assert followed == b"".join(provider.logs(provider_id, "counting", follow=False)).decode().split()
    assert list(dict.fromkeys(followed)) == [str(number) for number in range(1, 9)]


@pytest.mark.ci
@pytest.mark.suffices(OLDEST)
def test_a_local_repository_arrives_with_its_uncommitted_change(
    dstack: Lab, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`repos:` of a folder: the commit its branch follows is cloned, what differs is uploaded."""
    url = f"https://git.invalid/team/{tmp_path.name}.git"
    origin, work = tmp_path / "origin.git", tmp_path / "work"
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", f"url.file://{origin}.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", url)
    for words in (
        ["init", "-q", "--bare", "-b", "main", str(origin)],
        ["init", "-q", "-b", "main", str(work)],
        ["-C", str(work), "remote", "add", "origin", url],
    ):
        subprocess.run(["git", *words], check=True)
    (work / "kept.txt").write_text("committed\n")
    author = ["-c", "user.name=T", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", "-C", str(work), "add", "."], check=True)
    subprocess.run(["git", "-C", str(work), *author, "commit", "-q", "-m", "first"], check=True)
    subprocess.run(["git", "-C", str(work), "push", "-q", "-u", "origin", "main"], check=True)
    (work / "kept.txt").write_text("changed\n")
    (work / "new.txt").write_text("untracked\n")
    dstack.cloud.play_repository(url, origin)
    provider = connect(dstack, dstack.project())
    configuration = task("cat code/kept.txt code/new.txt", repos=["work:code"])

    provider_id = start(provider, submission(provider.client.address.project, "with-repo", configuration, tmp_path))
    output = b"".join(provider.logs(provider_id, "with-repo", follow=True)).decode()

    assert output.split() == ["changed", "untracked"]


def test_every_answer_names_the_run_it_is_of_and_who_holds_the_name(dstack: Lab, connect: Connect) -> None:
    """The mark comes back from `runs/list` and `runs/get`, and a lost call's run is told from one only named alike."""
    project = dstack.project()
    provider = connect(dstack, project)
    sent = submission(project, "marked", task("sleep 600", env={"A": "1"}, retry=RETRY, max_duration="2h"))
    assert provider.holder("marked") is None
    ours = start(provider, sent)

    listed = [read_run(msgspec.json.encode(row)) for row in dstack.runs(project)]
    assert [(facts.provider_id, facts.mark, facts.drift) for facts in listed] == [(ours, "r", ())]
    assert read_run(msgspec.json.encode(dstack.run(project, "marked"))).mark == "r"
    there = provider.holder("marked")
    assert there is not None
    assert (there.provider_id, there.mark, there.ended) == (ours, "r", False)

    assert provider.is_same(sent, ours)
    for other in (task("sleep 601", env={"A": "1"}), task("sleep 600", env={"A": "2"}, retry=RETRY, max_duration="2h")):
        assert not provider.is_same(submission(project, "marked", other), ours)
    assert not provider.is_same(sent, "00000000-0000-4000-8000-000000000000")

    dstack.stopped(project, "marked", lambda: provider.stop(StopTarget(provider_id=ours, name="marked", abort=True)))
    there = provider.holder("marked")
    assert there is not None
    assert there.ended
    theirs = dstack.submit(project, "marked", ["true"])["id"]
    there = provider.holder("marked")
    assert there is not None
    assert (there.provider_id, there.mark) == (theirs, None)
    assert [(run.provider_id, run.mark) for run in provider.find("marked", 0)] == [(theirs, None), (ours, "r")]
    provider.stop(StopTarget(provider_id=theirs, name="marked", abort=True))


@pytest.mark.suffices(NEWEST)
def test_stopping_touches_our_run_only(dstack: Lab, connect: Connect) -> None:
    """dstack stops by name: a later run that took the name of ours is left alone, and an ended run is not an error."""
    project = dstack.project()
    provider = connect(dstack, project)
    first = start(provider, submission(project, "reused", task("true")))
    dstack.wait_status(project, "reused")
    second = start(provider, submission(project, "reused", task("sleep 600")))

    provider.stop(StopTarget(provider_id=first, name="reused"))
    assert dstack.run(project, "reused")["status"] not in ("terminating", "terminated")

    run = dstack.stopped(project, "reused", lambda: provider.stop(StopTarget(provider_id=second, name="reused")))
    assert (run["id"], run["status"], run["termination_reason"]) == (second, "terminated", "stopped_by_user")
    provider.stop(StopTarget(provider_id=second, name="reused", abort=True))
    assert [run.provider_id for run in provider.find("reused", 0)] == [second, first]


def test_wrong_tokens_and_projects_are_told_apart(dstack: Lab, connect: Connect) -> None:
    """401/403 is the token, 404 is the project; each is one line."""
    project = dstack.project()
    refused, nowhere = connect(dstack, project, token="wrong"), connect(dstack, "nowhere")

    for call in (
        lambda: refused.submit(submission(project, "x1", task("true"))),
        lambda: refused.find("x1", 0),
        lambda: refused.stop(StopTarget(provider_id="00000000-0000-4000-8000-000000000000", name="x1")),
    ):
        with pytest.raises(ProviderRefused, match="token"):
            call()
    with pytest.raises(ProjectNotFound, match="nowhere"):
        nowhere.submit(submission("nowhere", "x1", task("true")))
    with pytest.raises(NotConfigured, match="project"):
        nowhere.submit(submission(project, "x1", task("true")))


def test_what_the_server_refuses_is_the_tasks_fault(dstack: Lab, connect: Connect) -> None:
    """A configuration only the server can judge comes back as one line with its words."""
    project = dstack.project()
    provider = connect(dstack, project)
    unknown = {**task("true"), "termination_policy": "dont-destroy", "bogus": 1}

    with pytest.raises(TaskInvalid, match=r"bogus|termination_policy") as refusal:
        provider.submit(submission(project, "x1", unknown))

    assert "\n" not in str(refusal.value)
    assert dstack.runs(project) == []
