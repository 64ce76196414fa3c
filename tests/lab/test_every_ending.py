"""Every way a run can end on a genuine server, through our command: what dstack says of it, and what Steno concludes.

All but one are submitted with `steno submit`, go on at once, and are followed by one `steno record`.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from stenolab.lab import ENDED, Lab
from stenolab.plugin import StenoAt
from stenolab.steno import Steno
from stenolab.versions import NEWEST, OLDEST

pytestmark = [pytest.mark.slow, pytest.mark.suffices(NEWEST)]  # of the oldest: recordings and stories

FOREVER = ("echo started", "sleep 600")
AT_ONCE = 2  # submissions: each is a process that imports dstack
EIGHT = {"resources": {"gpu": "MI300X:8"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """A run, what happens to it, and how it must end.

    `verdict` is (state, reason, exit status); `words` dstack's (status, reason) of the run and (status, reason) of the
    job, by version where they differ. `act` happens once dstack says `act_at`.
    """

    name: str
    verdict: tuple[str, str, int | None]
    words: tuple[str, ...] | dict[str, tuple[str, ...]]
    commands: tuple[str, ...] = ("true",)
    fields: dict[str, Any] = field(default_factory=dict)
    conduct: dict[str, Any] = field(default_factory=dict)
    act: Callable[[Lab, str, Steno], object] | None = None
    act_at: str = "running"
    attempts: int = 1
    ours: bool = True  # else another program submits it: Steno holds back what has no offer

    def words_of(self, version: str) -> tuple[str, ...]:
        return self.words[version] if isinstance(self.words, dict) else self.words


def kill(name: str, how: str) -> Callable[[Lab, str, Steno], object]:
    return lambda lab, project, _steno: lab.cloud.kill(lab.hostname(project, name) or name, how)


def stop(name: str, *flags: str) -> Callable[[Lab, str, Steno], object]:
    """`steno stop`, by a user who asks again if it did not help.

    A busy 0.22.5 can forget a stop it answered with 200: a pipeline worker that had fetched the run before writes
    `running` over `terminating`.
    """

    def act(lab: Lab, project: str, steno: Steno) -> None:
        for _ in range(3):
            steno("stop", name, *flags)
            if lab.run(project, name)["status"] in ENDED:
                return

    return act


STOPPED = ("terminated", "stopped_by_user", "terminated", "terminated_by_user")
NO_CAPACITY = ("failed", "job_failed", "failed", "failed_to_start_due_to_no_capacity")
INTERRUPTED = ("failed", "job_failed", "failed", "interrupted_by_no_capacity")
VANISHED = {NEWEST: ("failed", "job_failed", "failed", "instance_unreachable"), OLDEST: INTERRUPTED}

ENDINGS = (
    Ending(
        name="succeeds",
        verdict=("succeeded", "exit_zero", 0),
        words=("done", "all_jobs_done", "done", "done_by_runner"),
    ),
    Ending(
        name="fails",
        commands=("echo oops", "exit 7"),
        verdict=("failed", "exit_nonzero", 7),
        words=("failed", "job_failed", "failed", "container_exited_with_error"),
    ),
    Ending(
        name="stopped-running",
        commands=FOREVER,
        act=stop("stopped-running"),
        verdict=("stopped", "stopped_by_user", None),
        words=STOPPED,
    ),
    Ending(
        name="stopped-provisioning",
        commands=FOREVER,
        fields=EIGHT,
        conduct={"boot_s": 60},
        act=stop("stopped-provisioning"),
        act_at="provisioning",
        verdict=("stopped", "stopped_by_user", None),
        words=STOPPED,
    ),
    Ending(
        name="aborted",
        commands=FOREVER,
        act=stop("aborted", "--abort"),
        verdict=("stopped", "aborted_by_user", None),
        words=("terminated", "aborted_by_user", "aborted", "aborted_by_user"),
    ),
    Ending(
        name="too-long",
        commands=FOREVER,
        fields={"max_duration": "2s"},
        verdict=("failed", "timed_out", None),
        words=("failed", "job_failed", "terminated", "max_duration_exceeded"),
    ),
    Ending(
        name="no-capacity",
        fields=EIGHT,
        conduct={"no_capacity": True},
        verdict=("failed", "no_capacity", None),
        words=NO_CAPACITY,
    ),
    Ending(
        name="no-such-gpu",
        fields={"resources": {"gpu": "H100:1"}},
        ours=False,
        verdict=("failed", "no_capacity", None),
        words=NO_CAPACITY,
    ),
    Ending(
        name="gives-up",
        fields={"retry": {"on_events": ["no-capacity"], "duration": "2s"}, **EIGHT},
        conduct={"no_capacity": True},
        verdict=("failed", "no_capacity", None),
        words=("failed", "retry_limit_exceeded", "failed", "failed_to_start_due_to_no_capacity"),
    ),
    Ending(
        name="second-time-lucky",
        commands=(
            "if [ -e $LAB_STATE/$DSTACK_RUN_NAME ]; then exit 0; fi",
            "touch $LAB_STATE/$DSTACK_RUN_NAME",
            "exit 7",
        ),
        fields={"retry": {"on_events": ["error"], "duration": "10m"}},
        verdict=("succeeded", "exit_zero", 0),
        words=("done", "all_jobs_done", "done", "done_by_runner"),
        attempts=2,
    ),
    Ending(
        name="no-image",
        conduct={"pull_error": True},
        verdict=("failed", "provider_error", None),
        words=("failed", "job_failed", "failed", "creating_container_error"),
    ),
    Ending(
        name="container-dies",
        commands=FOREVER,
        act=kill("container-dies", "runner_crash"),
        verdict=("failed", "unreachable", None),
        words=VANISHED,
    ),
    Ending(
        name="machine-vanishes",
        commands=FOREVER,
        act=kill("machine-vanishes", "gone"),
        verdict=("failed", "unreachable", None),
        words=VANISHED,
    ),
    Ending(
        name="spot-interrupted",
        commands=FOREVER,
        fields={"spot_policy": "spot"},
        act=kill("spot-interrupted", "gone"),
        verdict=("failed", "interrupted", None),
        words=INTERRUPTED,
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The object of `steno replay --json` for all of them, and the runs that did not end, with the reason."""

    history: dict[str, Any]
    troubles: dict[str, BaseException]


@pytest.fixture(scope="module")
def played(dstack: Lab, steno_for_module: StenoAt) -> Played:
    """All of them at once, until dstack has no more to say."""
    project = dstack.project()
    # Everybody goes on at once, and what has no capacity is to end, not to wait.
    steno = steno_for_module(dstack, project, STENO_MAX_VMS="off", STENO_BUDGET="off", STENO_QUEUE_PATIENCE="0")
    steno.follow()
    turn = threading.Semaphore(AT_ONCE)

    def play(ending: Ending) -> None:
        if ending.conduct:
            dstack.cloud.rule(rf"\b{ending.name}\b", **ending.conduct)
        # A fleet of its own: on a machine that goes with its run, a server may yet place another run as it goes.
        dstack.fleet(project, ending.name, idle_duration="0s", spot_policy="auto")
        with turn:
            submit = partial(steno.submit if ending.ours else partial(dstack.submit, project), ending.name)
            submit(ending.commands, fleets=[ending.name], **ending.fields)
        if ending.act is not None:
            dstack.wait_status(project, ending.name, ending.act_at)
            ending.act(dstack, project, steno)
        dstack.wait_status(project, ending.name)

    def complete() -> dict[str, Any] | None:
        history = steno("replay", steno.record, "--json").json()
        waited_for = [run for run in history["runs"] if run["name"] not in troubles]
        return history if all(run["reported"]["status"] in ENDED for run in waited_for) else None

    with ThreadPoolExecutor(len(ENDINGS)) as players:
        plays = {ending.name: players.submit(play, ending) for ending in ENDINGS}
    troubles = {name: error for name, work in plays.items() if (error := work.exception()) is not None}
    return Played(history=steno.until(complete, what="all runs to be seen at their end"), troubles=troubles)


@pytest.mark.parametrize("ending", ENDINGS, ids=lambda ending: ending.name)
def test_it_ends_as_it_must(dstack: Lab, played: Played, ending: Ending) -> None:
    """Our verdict, and beside it dstack's own words, untouched."""
    if ending.name in played.troubles:
        raise played.troubles[ending.name]
    (run,) = [run for run in played.history["runs"] if run["name"] == ending.name]
    expected = ending.verdict
    if expected[1] == "unreachable" and dstack.version == OLDEST:
        expected = ("failed", "interrupted", None)  # what 0.19.37 calls it; we repeat the provider
    assert (run["state"], run["reason"], run["exit_status"]) == expected
    (job,) = run["reported"]["jobs"]
    words = (run["reported"]["status"], run["reported"]["reason"], job["status"], job["reason"])
    assert words == ending.words_of(dstack.version)
    assert run["attempts"] >= ending.attempts
    assert run["provider_id"] is not None


def test_no_verdict_was_contradicted(played: Played) -> None:
    """The rest of the history bears out each verdict."""
    assert [anomaly for anomaly in played.history["anomalies"] if anomaly["kind"] == "contradiction"] == []
