"""Every rule that moves a run can be said in a sentence."""

from collections.abc import Callable

import pytest

from engine.replay.trace import replay_polls
from events.poll import Poll
from projections.reasons import sentence


@pytest.mark.parametrize(
    "name", ["retry_success", "several", "stop_running", "server_restart", "no_capacity", "failure"]
)
def test_every_rule_of_a_recording_has_its_sentence(name: str, recording: Callable[[str], tuple[Poll, ...]]) -> None:
    """A name alone explains nothing."""
    found = replay_polls(enumerate(recording(f"dstack-0.22.5/{name}"), start=1))
    rules = {step.rule for run in found.runs for step in run.transitions}
    assert rules
    for rule in rules:
        said = sentence(rule, None)
        assert said.endswith(".")
        assert rule not in said


def test_a_rule_nobody_described_is_named() -> None:
    """Better its name than nothing."""
    assert sentence("current@2/brand-new", None) == "The rule current@2/brand-new decided."
    assert "no poll" in sentence(None, None)


@pytest.mark.parametrize("rule", ["current/held", "current/no-capacity"])
def test_a_run_that_waits_with_us_is_told_so(rule: str) -> None:
    """These come from our own events, in no recording."""
    assert "Steno's queue" in sentence(rule, None)
