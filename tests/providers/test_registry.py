"""Providers by name: built in without a search, others by their entry points."""

import subprocess
import sys
from importlib.metadata import EntryPoint, entry_points

import pytest

from steno.engine.errors import NotConfigured
from steno.engine.providers import registry
from steno.engine.providers.kind import KernelRights, ProviderKind

PROBE = """
import importlib.metadata as metadata
def searched(**_): raise SystemExit("searched the installed packages")
metadata.entry_points = searched
from steno.engine.providers import registry
print(*(found.name for found in registry.built_in()))
"""


def test_built_in_providers_are_found_without_a_search() -> None:
    """A search through all installed packages would be the longest part of the start."""
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=False)

    assert (done.stdout, done.stderr) == ("local dstack slurm kernels\n", "")


def test_built_in_providers_are_declared_as_entry_points_too() -> None:
    """So that a tool that lists the group sees all of them."""
    declared = {point.name: point.load() for point in entry_points(group=registry.GROUP)}

    built_in = {provider.name: provider for provider in registry.built_in()}
    assert {name: declared[name] for name in built_in} == built_in


def test_a_wrong_name_lists_the_providers_there_are() -> None:
    with pytest.raises(NotConfigured, match=r"there is no provider 'slurn'; use one of: local, dstack"):
        registry.kind("slurn")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no_such_package:KIND", "cannot be loaded: ModuleNotFoundError"),
        ("steno.engine.errors:KIND", "cannot be loaded: AttributeError"),
        ("steno.engine.errors:NotConfigured", "its entry point is not a ProviderKind"),
    ],
)
def test_a_broken_package_is_one_line(monkeypatch: pytest.MonkeyPatch, value: str, reason: str) -> None:
    monkeypatch.setattr(registry, "_installed", lambda: {"broken": EntryPoint("broken", value, registry.GROUP)})

    with pytest.raises(NotConfigured, match=reason):
        registry.kind("broken")


def test_only_a_kind_that_says_so_runs_kernels() -> None:
    """A package that says nothing is refused, as is the provider whose tasks have no containers."""
    rights = {provider.name: provider.kernels for provider in registry.built_in()}
    assert rights == {
        "local": KernelRights.AS_USER,
        "dstack": KernelRights.ISOLATED,
        "slurm": KernelRights.NONE,
        "kernels": KernelRights.ISOLATED,
    }
    assert ProviderKind.kernels is KernelRights.NONE
    assert [provider.name for provider in registry.built_in() if provider.no_kernels()] == ["slurm"]


def test_every_built_in_provider_is_a_kind() -> None:
    assert all(isinstance(provider, ProviderKind) and provider.summary for provider in registry.built_in())
