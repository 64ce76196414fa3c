"""The shipped MI300X example, wherever this Steno is installed."""

from pathlib import Path

from events.errors import StenoError

_NAME = "rocm-dstack-hotaisle"


def example_file() -> Path:
    """The task file of the example: inside the installed package, or in the source tree beside it.

    Raises:
        StenoError: this installation has no examples.
    """
    package = Path(__file__).parent
    for folder in (package / "_examples", package.parent / "examples"):
        file = folder / _NAME / ".dstack.yml"
        if file.is_file():
            return file
    raise StenoError(f"this installation has no examples/{_NAME}; take it from Steno's source")


def example_task() -> dict[str, object]:
    """The example as a complete task."""
    import os

    from engine.providers.dstack.task import complete_task
    from engine.providers.dstack.task_file import read_task_file

    file = example_file()
    return complete_task(read_task_file(file), os.environ, str(file))
