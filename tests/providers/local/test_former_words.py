"""Older versions answered in dstack's words: their records and traces read as they always did."""

from pathlib import Path

import msgspec
import pytest
import zstandard
from stenotest.records import temporary_record

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace, replay_record, replay_trace
from steno.projections.answers.evidence import quote

FORMER = Path(__file__).parent / "former"
ANSWERS = FORMER / "answers.jsonl.zst"
"""Every end that a run and a machine could have, answered by the version before."""
REPLAYS = msgspec.json.decode(zstandard.decompress((FORMER / "replays.json.zst").read_bytes()))
"""Rule set → what that version replayed of it."""


@pytest.mark.parametrize("rules", sorted(REPLAYS))
def test_former_answers_replay_as_they_did(rules: str) -> None:
    """Key by key, under every rule set."""
    assert replay_trace(ANSWERS, rules=rules).to_json() == REPLAYS[rules]


def test_a_record_of_former_answers_replays_as_they_did(tmp_path: Path) -> None:
    """Stored and folded, costs included."""
    with temporary_record(tmp_path, shapes=READINGS.shape) as record:
        for _, poll in open_trace(ANSWERS):
            assert poll is not None
            record.append_polls([poll])
        replayed = replay_record(record).to_json()
    assert replayed["vms"] == REPLAYS["current"]["vms"]
    costs = [run["provider_cost_usd"] for run in REPLAYS["current"]["runs"]]
    assert [run["provider_cost_usd"] for run in replayed["runs"]] == costs
    assert any(float(cost) for cost in costs)


def test_a_former_answer_is_quoted_in_its_own_words() -> None:
    *_, poll = (poll for _, poll in open_trace(ANSWERS) if poll is not None and poll.path.endswith("runs/list"))
    run = msgspec.json.decode(poll.body or b"")[0]
    fields = {field.path: field.value for field in quote(poll, 1, run["id"]).fields}
    assert fields[".[0].status"] == run["status"]
    assert fields[".[0].jobs[0].job_submissions[0].exit_status"] == 0
