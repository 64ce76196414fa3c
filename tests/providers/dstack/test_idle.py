"""The effective idle timeout as the doctor tells it: whose it is, and which fleets get in the way."""

from __future__ import annotations

import pytest

from engine.providers.dstack.idle import IdleSetting, idling
from events.clock import SECOND

SET = IdleSetting(limit=600 * SECOND, origin="AMD_VM_IDLE_TIMEOUT in .env")
NEVER = IdleSetting(limit=None, origin="steno.toml")


def fleet(idle: object, name: str = "team", **more: object) -> dict[str, object]:
    configuration = {"nodes": {"min": 0, "max": 2}, "idle_duration": idle, **more}
    return {"name": name, "spec": {"configuration": configuration}}


@pytest.mark.parametrize(
    ("task", "timeout", "said"),
    [
        (
            {},
            SET,
            (
                "Steno ends an idle machine after 10m (AMD_VM_IDLE_TIMEOUT in .env); "
                "without a recorder dstack does: after 10m30s where the recorder ended, after 10m where only `steno "
                "submit` ran"
            ),
        ),
        (
            {"idle_duration": 90},
            SET,
            (
                "Steno ends an idle machine after 1m30s (the task's own idle_duration; 10m for others: "
                "AMD_VM_IDLE_TIMEOUT in .env); dstack does after the task's own 1m30s"
            ),
        ),
        (
            {"idle_duration": 3600},
            SET,
            (
                "Steno ends an idle machine after 10m (AMD_VM_IDLE_TIMEOUT in .env); "
                "without a recorder dstack does: after 10m30s where the recorder ended, after 10m where only `steno "
                "submit` ran"
            ),
        ),
        (
            {"idle_duration": 0},
            SET,
            (
                "Steno ends an idle machine after 0s (the task's own idle_duration; 10m for others: "
                "AMD_VM_IDLE_TIMEOUT in .env); dstack has the same limit"
            ),
        ),
        (
            {"idle_duration": "off"},
            SET,
            "Steno never ends an idle machine (the task's own idle_duration: off); dstack has the same limit",
        ),
        (
            {},
            NEVER,
            "Steno never ends an idle machine (steno.toml); dstack has the same limit",
        ),
        (
            {"idle_duration": 60},
            NEVER,
            (
                "Steno ends an idle machine after 1m (the task's own idle_duration; no limit for others: steno.toml); "
                "dstack does after the task's own 1m"
            ),
        ),
        (
            {"creation_policy": "create", "idle_duration": 60},
            SET,
            "Steno ends an idle machine after 0s (the task's creation_policy: create); dstack has the same limit",
        ),
    ],
)
def test_the_shorter_word_counts_and_is_named(task: dict[str, object], timeout: IdleSetting, said: str) -> None:
    """Policy, task, `off` and `create`: one sentence with the time and where it comes from."""
    assert idling(task, [], timeout).message == said


@pytest.mark.parametrize(
    ("found", "timeout", "words"),
    [
        (fleet(60), SET, "fleet team: dstack ends its machines after 1m (its idle_duration), before Steno does"),
        (fleet(60), NEVER, "before Steno does"),
        (fleet(60, "steno-old"), SET, "fleet steno-old: dstack ends its machines after 1m"),
        (fleet(None), SET, "keeps its machine 72h (dstack's default for fleets)"),
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
    found: dict[str, object], timeout: IdleSetting, words: str | None
) -> None:
    """Ends earlier than the policy, or keeps others' machines longer; our own fleets are long on purpose."""
    lines = idling({}, [found], timeout).fleets
    assert len(lines) == (words is not None)
    assert words is None or words in lines[0]
