"""Every word the two servers have for a machine means something in ours."""

import re
from pathlib import Path

import pytest

from steno.engine.providers.dstack.words import INSTANCE_REASONS, INSTANCE_STATUSES, OLD_INSTANCE_REASONS, vm_cause
from steno.engine.state.states import VmReason

LAB = Path(__file__).parents[4] / ".lab"


@pytest.mark.parametrize("word", sorted(INSTANCE_REASONS | set(OLD_INSTANCE_REASONS)))
def test_every_reason_of_the_servers_is_known(word: str) -> None:
    """In the words of 0.22.5 and in the sentences of 0.19.37."""
    assert vm_cause(word) is not VmReason.UNKNOWN_REASON


def test_reasons_mean_what_they_say() -> None:
    """Both dialects, an unknown word, and no word."""
    assert vm_cause("idle_timeout") is vm_cause("Idle timeout") is VmReason.IDLE_TIMEOUT
    assert vm_cause("terminated_by_user") is VmReason.STOPPED_BY_USER
    assert vm_cause("provisioning_timeout") is VmReason.PROVISIONING_FAILED
    assert vm_cause("Termination deadline") is VmReason.UNREACHABLE
    parse = "Error to parse profile, requirements or instance_configuration: x"
    assert vm_cause(parse) is VmReason.PROVIDER_ERROR
    assert vm_cause("cosmic_ray") is vm_cause(None) is VmReason.UNKNOWN_REASON
    assert vm_cause("interrupted") is VmReason.INTERRUPTED


def test_a_server_that_tells_no_ends_gives_no_reason_only_when_something_was_deleted() -> None:
    """0.19.37: `fleets/delete` and `fleets/delete_instances` set a status and nothing else."""
    assert vm_cause(None, gives_end=False) is VmReason.FLEET_DELETED


@pytest.mark.parametrize("version", ["0.22.5", "0.19.37"])
def test_the_words_are_those_of_the_servers_own_source(version: str) -> None:
    """Read from the installed server, where there is one."""
    files = sorted(LAB.glob(f"venv-{version}/lib/python3*/site-packages/dstack/_internal/core/models/instances.py"))
    if not files:
        pytest.skip(f"no dstack {version} here")
    source = files[0].read_text(encoding="utf-8")
    assert _members(source, "InstanceStatus") == INSTANCE_STATUSES
    if version == "0.22.5":
        assert _members(source, "InstanceTerminationReason") == INSTANCE_REASONS


def _members(source: str, name: str) -> set[str]:
    body = source.split(f"class {name}(", 1)[1].split("\nclass ", 1)[0].split("    def ", 1)[0]
    return set(re.findall(r'^    [A-Z_]+ = "([a-z_]+)"$', body, re.MULTILINE))
