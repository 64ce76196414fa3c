"""Where the commands of each document are typed, and what a reader who types them has before: the context of a page,
which its text does not repeat at each command.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stenotest.kernels import BRIEF, asked

HISTORY = Path("tests/traces/dstack-0.22.5/warm_reuse.jsonl.zst")
PYTHON = "print('trained')\n"
TASK = "type: task\nimage: rocm/dev-ubuntu-24.04\ncommands: [echo trained]\nmax_duration: 10m\n"
RELU = {
    "signature": {
        "inputs": [{"name": "A", "shape": ["N"]}],
        "outputs": [{"name": "C", "shape": ["N"]}],
        "parameters": [],
        "sizes": ["N"],
    },
    "tests": [{"sizes": {"N": 64}, "seed": 1}],
    "benchmarks": [{"sizes": {"N": 64}, "warm_ups": 1, "repeats": 2}],
}
RELU_REFERENCE = "def reference(inputs, sizes, parameters):\n    return [min(max(a, 0), 6) for a in inputs['A']]\n"
_SBATCH = 'sbatch -Q -o "$STENO_SLURM_FOLDER/output/%j"'
_AWAIT = "until {} | grep -q '{}'; do sleep 0.2; done"
SBATCH = (
    f"{_SBATCH} -J sweep --wait --wrap true",
    f"{_SBATCH} -J toobig -p gpu-v100 -N 3 --wrap true",
    f"{_SBATCH} -J lowjob -p low -w node4 -n 16 --wrap 'sleep 300'",
    _AWAIT.format("steno ps", "lowjob .*running"),
    f"{_SBATCH} -J one -p gpu-a40 -n 16 --wait --wrap 'exit 4' || true",
    f"{_SBATCH} -J train --array=0-7 --wait --wrap 'test $SLURM_ARRAY_TASK_ID != 3' || true",
    _AWAIT.format("steno ps", "lowjob .*attempt 2"),
    _AWAIT.format("steno ps", "train .*1 failed · 7 succeeded"),
    _AWAIT.format("steno ps", "one .*exit 4"),
    _AWAIT.format("steno ps", "sweep .*exit 0"),
)
"""Jobs of a user who has not heard of Steno. One gives way to another, and is tried again."""
OWN_PACKAGES = {"30m train.py": "30m --no-environment train.py"}
"""A training script does not need Steno's own packages, which the clone asks for."""
RELU_HIP = """extern "C" void solution(const float* A, float* C, size_t N) {
  for (size_t i = 0; i < N; ++i) C[i] = A[i] < 0 ? 0 : A[i] > 6 ? 6 : A[i];
}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sitting:
    """A reader of a page. Of several, the first whose `of` is in a command types it."""

    of: str = ""
    server: str = "nothing"
    """`dstack_22` or `slurm_cluster`, which each test process has once."""
    needs: tuple[str, ...] = ()
    """Further contexts: fixtures, which know what a reader puts for words of the page."""
    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str | Path] = field(default_factory=dict)
    """In the reader's folder: their text, or the file of the project that they are a copy of."""
    before: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The commands typed just before the command that begins so."""
    words: Mapping[str, str] = field(default_factory=dict)
    """The reader's text in place of a word of the page. After a "/" a pattern: its last match in all output so far."""
    moments: tuple[str, ...] = ()
    """Commands that begin so show a moment that does not come again: little of it is compared."""


SITTINGS: Mapping[str, tuple[Sitting, ...]] = {
    "README.md": (
        Sitting(of="--provider dstack", server="dstack_22", files={".dstack.yml": TASK}),
        Sitting(of="slurm", server="slurm_cluster", files={"train.py": PYTHON}, words=OWN_PACKAGES),
        Sitting(
            variables={"STENO_LOCAL_PRICE": "1.99"}, moments=("curl -s 'http://127.0.0.1:8642/api/runs/matmul-1?at",)
        ),
    ),
    "docs/amd_devcloud_setup.md": (Sitting(server="dstack_22"),),
    "docs/amd_gpu_support.md": (
        Sitting(of="train.dstack.yml", server="dstack_22", files={"train.dstack.yml": TASK}),
        Sitting(
            files={"train.sh": "true"},
            variables={"STENO_MAX_VMS": "2"},
            before={
                "steno explain matmul-3": (
                    "steno vms stop steno-slot-1-0",
                    "steno submit --wait --name matmul-3 -- true",
                ),
                "steno ps": tuple(f"steno submit --name burst-{n} -- sleep 1" for n in range(1, 5)),
                "steno explain steno-slot-1-0": (
                    "steno submit --wait --name matmul-4 -- true",
                    "while steno ps | grep -Eq 'queued|provisioning|running'; do sleep 0.2; done",
                ),
            },
            words={"steno-slot-1-0": r"/(steno-slot-\d-0)"},
            moments=("steno explain matmul-3", "steno ps", "steno explain steno-slot-1-0"),
        ),
    ),
    "docs/api.md": (
        Sitting(
            variables={"STENO_LOCAL_GPU": "MI300X"},
            before={
                "curl -s http://127.0.0.1:8642/api/runs/matmul-3": (
                    "steno submit --wait --name matmul-1 -- sleep 1",
                    "steno submit --wait --name matmul-3 -- true",
                    "steno submit --wait --name trainer -- python train.py || true",
                )
            },
            moments=("curl -sN", "curl -s 'http://127.0.0.1:8642/api/runs/matmul-1?at"),
            words={  # the stream has no end, and a run may be over before its machine is known to have it
                "curl -sN": """sed '/"vm":/q' <(curl -sN""",
                "after=0'": "after=0' -m 10; curl -sN 'http://127.0.0.1:8642/api/stream?after=0')",
            },
        ),
    ),
    "docs/archives.md": (Sitting(files={"incident.jsonl.zst": HISTORY}),),
    "docs/backup.md": (
        Sitting(
            before={
                "steno verify": (f"steno import {HISTORY}",),
                "steno db restore": ("steno db copy record.db backup.db",),
            },
            words={"POSITION:HASH": r"/\b(\d+:[0-9a-f]{64})", "21:c8071c49…": f"1000000:{64 * '0'}"},
        ),
    ),
    "docs/cluster.md": (
        Sitting(
            before={"steno replay": (f"steno import {HISTORY}",)},
            words={
                "dask scheduler": "dask scheduler --host 127.0.0.1 --port 0 --no-dashboard",
                "tcp://10.0.0.5:8786": r"/Scheduler at: +(tcp://127\.0\.0\.1:\d+)",
                "--nworkers -1": "--nworkers 1 --no-dashboard",
            },
        ),
    ),
    "docs/dashboard.md": (Sitting(server="dstack_22"),),
    "docs/incidents.md": (
        Sitting(
            before={"steno export matmul": (f"steno import {HISTORY}",)}, words={"NAME": "enum_str", "matmul": "warm-a"}
        ),
    ),
    "docs/install.md": (Sitting(before={"steno db status": (f"steno import {HISTORY}",)}),),
    "docs/kernels.md": (
        Sitting(
            needs=("engine_here",),
            files={
                "problem.json": json.dumps(RELU),
                "reference.py": RELU_REFERENCE,
                "relu6.hip": RELU_HIP,
                "brief.json": json.dumps(BRIEF),
                "request.json": json.dumps(asked(problem_def=BRIEF)),
            },
            before={
                "steno kernel problems relu6": ("mkdir relu6", "cp problem.json reference.py relu6"),
                "steno kernel submit relu6": ("export STENO_API_LOOPBACK=open", "steno up"),
            },
            words={
                "--gpu MI300X --wait": "--gpu MI300X --problem-def brief.json --wait",  # it is timed for less long
                "vector-add-4f0c2a91b7de": r"/(vector-add-[0-9a-f]{12})",
                "--provider dstack": "",  # in containers of this host; tests/lab/test_warm_kernels rents machines
                "--image my/rocm:6.4": "--image steno-lab/kernel:1 --port 0 --folder results",
            },
        ),
    ),
    "docs/many-recorders.md": (
        Sitting(
            server="dstack_22",
            needs=("databases",),
            before={
                "steno up": (
                    "export STENO_API_LOOPBACK=open",  # root has to choose
                    "createdb steno",
                    "export STENO_RECORD=postgresql://steno@db.example.org/steno?sslmode=verify-full",
                )
            },
            words={"--source slurm": "", "steno workers": "COLUMNS=140 steno workers"},  # one process has one server
            moments=("steno workers",),  # of a machine that shares its sources
        ),
    ),
    "docs/notifications.md": (Sitting(needs=("webhook",)),),
    "docs/operations.md": (
        Sitting(
            server="dstack_22",
            before={"steno serve": ("export STENO_API_LOOPBACK=open",)},  # root has to choose, as the page says
        ),
    ),
    "docs/postgresql.md": (
        Sitting(
            needs=("databases",),
            before={
                "steno db copy": (f"steno import --record record.db {HISTORY}",),
                "steno db grant recorder": ("createuser recorder", "createuser service", "createuser analyst"),
            },
            words={"createuser --pwprompt": "createuser"},  # it asks a terminal
        ),
    ),
    "docs/questions.md": (Sitting(before={"steno export --format parquet": (f"steno import {HISTORY}",)}),),
    "docs/slurm-tasks.md": (Sitting(server="slurm_cluster", files={"train.py": PYTHON, "task.yml": TASK}),),
    "docs/slurm.md": (
        Sitting(
            server="slurm_cluster",
            files={"train.py": PYTHON, "incident.jsonl.zst": HISTORY},
            before={"steno ps": SBATCH},
            words={**OWN_PACKAGES, "steno ps": "COLUMNS=118 steno ps"},
            # A requeued job may start at any time, and jobs are forgotten.
            moments=("steno ps", "steno show lowjob", "steno explain sweep"),
        ),
    ),
    "docs/testing.md": (Sitting(of="--provider dstack", server="dstack_22"), Sitting()),
}
"""The pages that need more than a clone and an empty home."""

INSTEAD: Mapping[str, tuple[str, str]] = {
    r"make (?=(near|check|test|test-long|bench|bench-docs|dist)\b)": (
        "make --dry-run ",
        "it is these tests, measures for an hour, or test_dist makes it",
    ),
    r"make (?=setup EXTRAS)": ("make --dry-run ", "test_extras installs each extra"),
    r"\.ci/run": ("bash -n .ci/run", "it is these tests"),
    "steno bench": ("steno bench --quick", "it measures for minutes"),
    "STENO_PICTURES=.*pytest": (r"\g<0> --collect-only -q", "it is these tests"),
    r"pip install dist/": ("", "test_dist installs it"),
    "pip install 'steno-gpu": ("", "test_extras installs each extra of a wheel"),
    r"pip install .dstack": ("", "the lab has that server"),
    "dstack server": ("", "the lab has that server"),
}
"""The text typed in place of the beginning of a command, and why; "": nothing is typed."""

EXITS: Mapping[str, int] = {
    r"steno replay .*--diff": 1,  # there are differences
    r"steno submit .*exit 137": 1,  # it failed, as it should
    "python3 benchmarks/gpu_judge": 6,  # there is no GPU
}
"""The exit codes of commands that do not exit 0, as their help says."""
