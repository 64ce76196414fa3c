"""The effective idle timeout as the doctor tells it: whose it is, and which fleets get in the way."""

import pytest

from steno.engine.providers.dstack.fleet import IdleSetting, idling
from steno.events.clock import SECOND

SET = IdleSetting(limit=600 * SECOND, origin="AMD_VM_IDLE_TIMEOUT in .env")
NEVER = IdleSetting(limit=None, origin="steno.toml")
OWN = f"the task's own idle_duration; 10 m for others: {SET.origin}"
UNLIMITED = "the task's own idle_duration; no limit for others: steno.toml"


def fleet(idle: object, name: str = "team", **more: object) -> dict[str, object]:
    configuration = {"nodes": {"min": 0, "max": 2}, "idle_duration": idle, **more}
    return {"name": name, "spec": {"configuration": configuration}}


ALONE = (
    "without a recorder dstack does: after 10 m 30 s where the recorder ended, after 10 m where only `steno submit` ran"
)
ALIKE = "dstack has the same limit"


@pytest.mark.parametrize(
    ("task", "timeout", "ends", "whose", "behind"),
    [
        ({}, SET, "after 10 m", SET.origin, ALONE),
        ({"idle_duration": 90}, SET, "after 1 m 30 s", OWN, "dstack does after the task's own 1 m 30 s"),
        ({"idle_duration": 0}, SET, "after 0 s", OWN, ALIKE),
        ({"idle_duration": "off"}, SET, None, "the task's own idle_duration: off", ALIKE),
        ({}, NEVER, None, "steno.toml", ALIKE),
        ({"idle_duration": 60}, NEVER, "after 1 m", UNLIMITED, "dstack does after the task's own 1 m"),
        (
            {"creation_policy": "create", "idle_duration": 60},
            SET,
            "after 0 s",
            "the task's creation_policy: create",
            ALIKE,
        ),
    ],
)
def test_the_shorter_word_counts_and_is_named(
    task: dict[str, object], timeout: IdleSetting, ends: str | None, whose: str, behind: str
) -> None:
    """Policy, task, `off` and `create`: one sentence with the time and where it comes from."""
    verb = "never ends an idle machine" if ends is None else f"ends an idle machine {ends}"
    assert idling(task, [], timeout).message == f"Steno {verb} ({whose}); {behind}"


@pytest.mark.parametrize(
    ("odd_fleet", "timeout", "words"),
    [
        (fleet(60), SET, "fleet team: dstack ends its machines after 1 m (its idle_duration), before Steno does"),
        (fleet(60), NEVER, "before Steno does"),
        (fleet(60, "steno-old"), SET, "fleet steno-old: dstack ends its machines after 1 m"),
        (fleet(None), SET, "keeps its machine 3 d (dstack's default for fleets)"),
        (fleet(-1), SET, "keeps its machine for ever (its idle_duration)"),
        (fleet(600), SET, None),
        (fleet(-1), NEVER, None),
        (fleet(72 * 3600, "steno-slot-1"), SET, None),
        (fleet(60, ssh_config={"hosts": ["h"]}), SET, None),
        ({"name": "odd"}, SET, None),
        ({"name": "odd", "spec": {"configuration": []}}, SET, None),
    ],
)
def test_a_fleet_that_gets_in_the_way_is_told(
    odd_fleet: dict[str, object], timeout: IdleSetting, words: str | None
) -> None:
    """Ends earlier than the policy, or keeps others' machines longer; our own fleets are long on purpose."""
    lines = idling({}, [odd_fleet], timeout).fleets
    assert len(lines) == (words is not None)
    assert words is None or words in lines[0]
