"""The local files of a command (bug 3 of the seeds' table, BUG-4 of its text), and which command lines parse."""

import shlex
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.errors import TaskInvalid
from steno.engine.providers.slurm.commands import slurm
from steno.engine.providers.slurm.invocation import invocation


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with some files."""
    names = ("train.py", "my train.py", "conf.yaml", "job.sh", "pkg/run.py", "pkg/__main__.py", "it's.py")
    for name in (*names, "two\nlines.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("torchrun --nproc_per_node=4 train.py", ["train.py"]),
        ("torchrun --nproc_per_node 4 train.py --config conf.yaml", ["train.py", "conf.yaml"]),
        ("accelerate launch --config_file=conf.yaml train.py", ["conf.yaml", "train.py"]),
        ("deepspeed --num_gpus 2 train.py", ["train.py"]),
        ("python -u train.py", ["train.py"]),
        ("python3.12 -m pkg.run --lr 3", ["pkg/run.py"]),
        ("python -m pkg", ["pkg/__main__.py"]),
        ("python -m torch.distributed.run --nnodes=1 train.py", ["train.py"]),
        ("uv run --with torch train.py", ["train.py"]),
        ("uv run python train.py", ["train.py"]),
        ("env A=B CUDA_LAUNCH_BLOCKING=1 python train.py", ["train.py"]),
        ("A=conf.yaml python train.py", ["conf.yaml", "train.py"]),
        ("cd pkg && python run.py", ["pkg/run.py"]),
        ("bash -c 'python train.py'", ["train.py"]),
        ("bash job.sh > out.txt 2>&1", ["job.sh"]),
        ("python 'my train.py' < conf.yaml", ["my train.py", "conf.yaml"]),
        ("nvidia-smi -L", []),
        ("python /scratch/me/train.py", []),
        ("python -c 'print(1)'", []),
    ],
)
def test_files_are_found_among_all_arguments(folder: Path, line: str, names: list[str]) -> None:
    """Bug 3: only the first word was looked at, so `torchrun … train.py` ran in the home folder."""
    call = invocation([line], folder)
    assert [str(path.relative_to(folder)) for path in call.files if path.is_file()] == names
    assert call.project == bool(names)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["train.py"], "python3 train.py"),
        (["train.py", "--lr", "3"], "python3 train.py --lr 3"),
        (["my train.py"], "python3 'my train.py'"),
        (["it's.py"], """python3 'it'"'"'s.py'"""),
        (["two\nlines.py"], "'two\nlines.py'"),
        (["job.sh"], "bash job.sh"),
        (["python", "train.py", "a b"], "python train.py 'a b'"),
    ],
)
def test_a_script_by_its_name_gets_its_interpreter(folder: Path, words: list[str], line: str) -> None:
    """Names may have blanks, quotes and newlines."""
    assert invocation(words, folder).line.removeprefix("python3 ") == line.removeprefix("python3 ")
    assert invocation(words, folder).files == ((folder / words[0],) if words[0] != "python" else (folder / "train.py",))


@pytest.mark.parametrize(
    "line",
    [
        "nothing.py",
        "python nothing.py",
        "torchrun --nproc_per_node=4 nothing.py",
        "env A=B accelerate launch nothing.py",
        "uv run nothing.py",
        "bash -c 'python nothing.py'",
        "cd pkg && python train.py",
        "./nothing",
    ],
)
def test_a_script_that_is_not_there_is_one_clear_line(folder: Path, line: str) -> None:
    """It says which file, and where it was looked for."""
    with pytest.raises(TaskInvalid, match=r"there is no file .*(nothing|pkg/train)") as error:
        invocation([line], folder)
    assert "\n" not in str(error.value)


def test_a_quote_that_is_not_closed_is_one_clear_line(folder: Path) -> None:
    """And so is nothing at all."""
    with pytest.raises(TaskInvalid, match="a quote that is not closed"):
        invocation(["python 'train.py"], folder)
    with pytest.raises(TaskInvalid, match="empty"):
        invocation([" "], folder)


def test_data_workers_are_read_from_the_command(folder: Path) -> None:
    """To advise where they are more than the CPUs."""
    assert invocation(["python train.py --num_workers 8"], folder).workers == 8
    assert invocation(["python train.py --dataloader-num-workers=4"], folder).workers == 4
    assert invocation(["python train.py"], folder).workers is None


@given(st.lists(st.text(min_size=1), min_size=2, max_size=6))
def test_words_reach_the_program_as_they_are(words: list[str]) -> None:
    """Whatever their characters."""
    try:
        call = invocation(["echo", *words], Path("/nowhere"))
    except TaskInvalid:
        return  # among them an operator that runs a file
    assert shlex.split(call.line) == ["echo", *words]


@pytest.mark.parametrize(
    "line",
    [
        "run check.py --mig --time 10m",
        "run serve.py --type a6000 --time 30m --mem 32G",
        'up --gpu 4 --time 30m --run "torchrun --nproc_per_node=4 train.py"',
        'run "torchrun --nproc_per_node=4 --nnodes=1 train_multinode.py" --gpu 4 --time 10m',
        'up --gpu 4 --time 30m --run "torchrun --nproc_per_node=4 train_fsdp.py"',
        "up --gpu 2 --type h200 --time 30m --dry-run",
        "up --gpu 2 --time 12h --dry-run",
        "run dataload.py --mig --time 10m",
        'up --gpu 4 --type a100 --time 1h --run "python moe_test.py" --mem 128G',
        "exec df -h /scratch",
        'exec "dd if=/dev/zero of=/scratch/me/x bs=1M count=1024"',
    ],
)
def test_every_command_line_of_the_seeds_parses(line: str) -> None:
    """With `steno slurm` for `rv`."""
    name, *words = shlex.split(line)
    command = slurm.get_command(click.Context(slurm), name)
    assert command is not None
    context = command.make_context(name, words)
    assert not {"-", "--"} & {word[:2] for word in context.params.get("words", ()) if name != "exec"}
