"""Puts the commit into sdist and wheel, for `steno --version`; a wheel from an sdist has the commit of the sdist."""

import subprocess
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

DESCRIBE = ("git", "--no-optional-locks", "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+")


class CommitFile(BuildHookInterface):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return  # it asks git
        inside = "COMMIT" if self.target_name == "sdist" else "steno/COMMIT"
        file = Path(self.root) / "COMMIT"
        if not file.exists():
            done = subprocess.run(DESCRIBE, cwd=self.root, capture_output=True, text=True, check=False)
            self.made = NamedTemporaryFile("w")  # noqa: SIM115 - it is deleted with the hook, after the build
            self.made.write(done.stdout)
            self.made.flush()
            file = Path(self.made.name)
        build_data["force_include"][str(file)] = inside
