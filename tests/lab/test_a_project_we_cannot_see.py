"""A project that is not there, or not ours: dstack answers its lists with `200 []`, and nobody would notice."""

import pytest
from stenolab.lab import Lab
from stenolab.plugin import StenoAt

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("words", [["record"], ["submit", "--image", "any", "--", "true"], ["doctor"]])
def test_a_project_we_cannot_see_is_not_found(words: list[str], dstack: Lab, steno_at: StenoAt) -> None:
    """Exit 4, and one line with its name."""
    done = steno_at(dstack, "not-a-project")(*words, code=4)
    assert "shows us no project not-a-project; check its name and your membership" in done.out + done.err
