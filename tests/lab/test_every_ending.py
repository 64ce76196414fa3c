"""Every way a run can end on a genuine server, through our command: what dstack says of it, and what Steno concludes.

All but one are submitted with `steno submit`, go on at once, and are followed by one `steno record`.
"""

import threading
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stenolab.lab import ENDED, Lab
from stenolab.plugin import StenoAt
from stenolab.steno import Steno
from stenolab.versions import NEWEST, OLDEST

pytestmark = [pytest.mark.slow, pytest.mark.suffices(NEWEST)]  # of the oldest: recordings and stories

AT_ONCE = 2  # submissions: each is a process that imports dstack


class Ending(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A row of `endings.toml`."""

    name: str
    verdict: tuple[str | int, ...]
    words: tuple[str, ...]
    words_of_the_oldest: tuple[str, ...] = ()
    commands: tuple[str, ...] = ("true",)
    fields: dict[str, Any] = {}
    conduct: dict[str, Any] = {}
    act: tuple[str, ...] = ()
    act_at: str = "running"
    attempts: int = 1
    ours: bool = True

    def happen(self, lab: Lab, project: str, steno: Steno) -> None:
        """Its machine dies, or a user stops it, and asks again if that did not help.

        A busy 0.22.5 can forget a stop it answered with 200: a pipeline worker that had fetched the run before writes
        `running` over `terminating`.
        """
        what, *more = self.act
        if what == "kill":
            lab.cloud.kill(lab.hostname(project, self.name) or self.name, *more)
            return
        for _ in range(3):
            steno("stop", self.name, *more)
            if lab.run(project, self.name)["status"] in ENDED:
                return


ROWS = tomllib.loads(Path(__file__).with_name("endings.toml").read_text(encoding="utf-8"))
ENDINGS = [msgspec.convert({"name": name, **row}, Ending) for name, row in ROWS.items()]


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
        if ending.act:
            dstack.wait_status(project, ending.name, ending.act_at)
            ending.happen(dstack, project, steno)
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
    oldest, expected = dstack.version == OLDEST, ending.verdict
    if expected[1] == "unreachable" and oldest:
        expected = ("failed", "interrupted")  # what 0.19.37 calls it; we repeat the provider
    exit_status = () if run["exit_status"] is None else (run["exit_status"],)
    assert (run["state"], run["reason"], *exit_status) == expected
    (job,) = run["reported"]["jobs"]
    words = (run["reported"]["status"], run["reported"]["reason"], job["status"], job["reason"])
    assert words == ((oldest and ending.words_of_the_oldest) or ending.words)
    assert run["attempts"] >= ending.attempts
    assert run["provider_id"] is not None


def test_no_verdict_was_contradicted(played: Played) -> None:
    """The rest of the history bears out each verdict."""
    assert [anomaly for anomaly in played.history["anomalies"] if anomaly["kind"] == "contradiction"] == []
