"""The contract of `steno.testing`: held against our providers, and by an outsider against their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from steno.testing import ProviderContract

EXAMPLE = Path(__file__).parents[3] / "examples" / "provider"

pytestmark = pytest.mark.slow


class TestProvider(ProviderContract): ...


def test_a_package_of_somebody_else_certifies_its_provider(installed_example: Path, tmp_path: Path) -> None:
    """With pytest and Steno alone, in a folder of its own."""
    shutil.copy(EXAMPLE / "test_example.py", tmp_path)
    environment = os.environ | {"PYTHONPATH": str(installed_example), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "test_example.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    methods = [name for name in dir(ProviderContract) if name.startswith("test_")]
    assert done.stdout.splitlines()[-1].startswith(f"{len(methods) + 1} passed")  # one has two cases
