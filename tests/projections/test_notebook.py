"""docs/questions.ipynb runs from its first cell to its last, and draws what it says."""

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import nbformat
import pytest

from steno.engine.wire import money
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.read_models.projector import caught_up
from steno.projections.read_models.view import View

PAGE = Path(__file__).parents[2] / "docs" / "questions.ipynb"
PICTURES = 6

_RUN = """
import sys, nbclient, nbformat
page, made = sys.argv[1:]
notebook = nbformat.read(page, as_version=4)
nbclient.NotebookClient(notebook, kernel_name="python3", timeout=300).execute()
nbformat.write(notebook, made)
"""  # a process of its own: its kernel has sockets of its own


@pytest.mark.ci
@pytest.mark.slow
def test_the_notebook_draws_every_picture(
    tmp_path: Path, recording: Callable[[str], tuple[Poll, ...]], recorded: Callable[[Path, Sequence[Poll]], Record]
) -> None:
    """Over a record of a cold and a warm start; its total is that of the machines' bills."""
    with recorded(tmp_path / "record.db", recording("dstack-0.22.5/warm_reuse")) as record, caught_up(record) as store:
        whole, _ = View(store).store.vms.spent()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STENO_", "AMD_", "DSTACK_"))}
    environment = kept | {"STENO_RECORD": str(tmp_path / "record.db"), "HOME": str(tmp_path)}
    words = [sys.executable, "-c", _RUN, PAGE, tmp_path / "made.ipynb"]
    done = subprocess.run(words, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    notebook = nbformat.read(tmp_path / "made.ipynb", as_version=4)
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == PICTURES
    printed = "".join(output.text for output in outputs if output.output_type == "stream")
    assert f"total ${money(whole)}\n" in printed


def test_it_is_kept_without_outputs() -> None:
    """Pictures of somebody's record would be kept for ever."""
    cells = nbformat.read(PAGE, as_version=4).cells
    assert not [cell for cell in cells if cell.cell_type == "code" and (cell.outputs or cell.execution_count)]
