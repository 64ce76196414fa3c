"""Commands of `steno` in this process: quicker than a process of their own."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from steno.cli.program import steno
from steno.cli.wiring.app import App

UNSET = ("STENO_PROVIDER", "STENO_PROJECT", "DSTACK_PROJECT", "FORCE_COLOR", "AMD_GRANT_CREDITS_TOTAL")


class InProcess:
    """`here("ps", "--all")`: a command with the home folder `home` and the record in it."""

    def __init__(self, home: Path, **variables: str) -> None:
        plain = {"COLUMNS": "80", "NO_COLOR": "1", "HOME": str(home), "STENO_RECORD": str(home / "record.db")}
        self._environment = dict.fromkeys(UNSET, "") | plain | variables

    def __call__(self, *words: object, **variables: str) -> Result:
        self.app = App()
        return CliRunner(env=self._environment | variables).invoke(steno, [str(word) for word in words], obj=self.app)

    def page(self, *words: object, **variables: str) -> str:
        """The text of a command that succeeds."""
        done = self(*words, **variables)
        assert done.exit_code == 0, done.output
        return done.output

    def json(self, *words: object, **variables: str) -> Any:
        """The JSON of a command that succeeds."""
        done = self(*words, "--json", **variables)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)
