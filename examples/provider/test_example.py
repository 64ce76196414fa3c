"""The contract of providers, for the example: `pytest test_example.py` where both packages are installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar

import pytest

from steno.engine.errors import ProviderUnreachable
from steno.engine.providers.base import Provider
from steno.events.clock import SystemClock
from steno.testing import ProviderContract, ProviderSite
from steno_example import ExampleProvider


def over(folder: Path) -> Provider:
    """The provider whose jobs are in this folder, at 3.60 dollars an hour."""
    return ExampleProvider(folder, 3_600_000, SystemClock())


class ExampleSite(ProviderSite):
    troubles: ClassVar = {"unreachable": lambda _, folder: (over(folder / ("long" * 100)), ProviderUnreachable)}

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, over(folder / "jobs"))

    def count(self) -> int:
        return len(list((self.folder / "jobs").glob("*/started")))


class TestExample(ProviderContract):
    @pytest.fixture
    def site(self, tmp_path: Path) -> Iterator[ProviderSite]:
        site = ExampleSite(tmp_path)
        yield site
        site.close()
