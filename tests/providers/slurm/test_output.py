"""Where the output of a job is, by what Slurm says of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.providers.slurm.output import expanded, from_accounting, from_controller
from steno.engine.providers.slurm.shell import Done

VALUES = {"j": "128", "J": "128", "A": "127", "a": "3", "u": "me", "x": "train", "N": "n1", "s": "batch"}
SHOWN = (
    "JobId=128 {array}JobName={name} UserId=me(5) JobState=RUNNING NodeList=n1 Command=(null) WorkDir=/home/me/a b "
    "{comment}StdErr=/home/me/e StdIn=/dev/null StdOut={path} Power= \n"
)
ROW = {
    "JobID": "127_3",
    "JobIDRaw": "128",
    "User": "me",
    "NodeList": "n[04-06],x1",
    "WorkDir": "/w",
    "JobName": "train",
}


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        ("job%j.out", "job128.out"),
        ("job%5j.out", "job00128.out"),
        ("%x-%A_%a.%u@%5N", "train-127_3.me@n1"),
        ("100%%-%q-%", "100%-%q-%"),
        ("\\job%j", "job%j"),
        ("", ""),
    ],
)
def test_a_pattern_expands_as_sbatch_expands_it(pattern: str, path: str) -> None:
    """The symbols of `man sbatch`; what is none stays."""
    assert expanded(pattern, VALUES) == path


@given(st.text())
def test_every_text_is_a_pattern(text: str) -> None:
    """None raises, and one without a symbol stays itself."""
    assert expanded(text, VALUES) == text or "%" in text or "\\" in text


@pytest.mark.parametrize("path", ["/home/me/slurm-128.out", "/home/me/a b.out", "/dev/null"])
@pytest.mark.parametrize("comment", ["", "Comment=x StdOut=/etc/passwd WorkDir=/ "])
@pytest.mark.parametrize("name", ["train", "StdOut=/etc/passwd"])
def test_text_of_the_user_is_no_key_of_the_controllers(path: str, comment: str, name: str) -> None:
    """A comment or a name with `StdOut=` in it."""
    answer = SHOWN.format(array="", path=path, comment=comment, name=name)
    assert from_controller(answer) == path


def test_the_controller_leaves_some_symbols_and_relative_names() -> None:
    """Symbols with a number on 22.05, all symbols on newer versions."""
    task = "ArrayJobId=127 ArrayTaskId=3 "
    assert from_controller(SHOWN.format(array=task, path="%A_%3a.%%", comment="", name="x")) == "/home/me/a b/127_003.%"
    assert from_controller("") is None
    assert from_controller("slurm_load_jobs error: Invalid job id specified") is None


@pytest.mark.parametrize(
    ("more", "places"),
    [
        ({"StdOut": "/o/%A-%a"}, ("/o/127-3", "/w/slurm-127_3.out")),
        ({"SubmitLine": "sbatch -o out/%j-%N run.sh"}, ("/w/out/128-n04", "/w/slurm-127_3.out")),
        ({"SubmitLine": "sbatch --output=/o/%x run.sh"}, ("/o/train", "/w/slurm-127_3.out")),
        ({"SubmitLine": "sbatch -a 1-9 --wrap gcc -o x"}, ("/w/slurm-127_3.out",)),
        ({"JobID": "128"}, ("/w/slurm-128.out",)),
    ],
)
def test_places_by_accounting(more: dict[str, str], places: tuple[str, ...]) -> None:
    """The file that it names first, then sbatch's default."""
    assert from_accounting({**ROW, **more}) == places


@pytest.mark.parametrize(
    ("out", "err", "unknown"),
    [
        ("", "slurm_load_jobs error: Invalid job id specified\n", True),
        ("Job 27940015_2 not found\n", "", True),  # the controller still has another task of the array
        ("Job 12+1 not found\n", "sacct: warning: slow\n", True),
        ("", "scontrol: error: Job script not found\n", False),
        ("", "slurm_load_jobs error: Unable to contact slurm controller\n", False),
    ],
)
def test_a_job_that_the_controller_has_forgotten_is_no_failure(out: str, err: str, unknown: bool) -> None:
    assert Done(words=("scontrol",), status=1, out=out, err=err).unknown_job is unknown
