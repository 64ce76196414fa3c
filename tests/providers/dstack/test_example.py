"""The shipped example is a task dstack takes and runs, and what its documents print is what the code says."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from stenolab.lab import Lab
from stenotest.waiting import LIMIT_S

from steno.engine.providers.base import Submission
from steno.engine.providers.dstack.doctor import backend_block
from steno.engine.providers.dstack.provider import DstackProvider
from steno.engine.providers.dstack.task import complete_task, normal_task
from steno.engine.providers.dstack.uploads import check_local
from steno.engine.providers.registry import settings_table
from steno.engine.providers.task import read_task_file

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "rocm-dstack-hotaisle"
GUIDE = (ROOT / "docs" / "amd_devcloud_setup.md").read_text()


def example() -> dict[str, object]:
    file = EXAMPLE / ".dstack.yml"
    return complete_task(read_task_file(file), {}, file.name)


def test_the_example_is_valid_and_complete() -> None:
    """Image, commands and every file it takes along are there, for one MI300X at both clouds."""
    task = normal_task(example())
    check_local(task, EXAMPLE)
    assert task["image"]
    assert task["backends"] == ["amddevcloud", "hotaisle"]
    assert isinstance(task["resources"], dict)
    assert task["resources"]["gpu"]["name"] == ["MI300X"]
    assert (task["idle_duration"], task["max_duration"]) == (300, 600)


@pytest.mark.parametrize(
    ("there", "compiled_for", "exit_status", "complaint"),
    [
        ("gfx000\\ngfx90a", "gfx90a", 0, ""),
        ("gfx000\\ngfx942\\ngfx942", "gfx942", 0, ""),
        ("gfx000", None, 2, "no AMD GPU is visible"),
        ("gfx000\\ngfx1100", None, 2, "the GPU is gfx1100: this example knows gfx90a and gfx942"),
    ],
)
def test_the_example_compiles_for_the_gpu_that_is_there(
    tmp_path: Path, there: str, compiled_for: str | None, exit_status: int, complaint: str
) -> None:
    """Whatever GPU was asked for; one it does not know is a clear error. Run as dstack does, one shell for all."""
    tools = {
        "rocm_agent_enumerator": f"printf '{there}\\n'",
        "hipcc": 'echo "$@" > compiled; printf "#!/bin/sh\\n" > matmul; chmod +x matmul',
    }
    for name, script in tools.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / name).chmod(0o755)
    commands = example()["commands"]
    assert isinstance(commands, list)
    ran = subprocess.run(
        ["/bin/sh", "-c", " && ".join(commands)],
        cwd=tmp_path,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (ran.returncode, complaint in ran.stderr) == (exit_status, True), ran.stderr
    if compiled_for is not None:
        assert f"--offload-arch={compiled_for} " in (tmp_path / "compiled").read_text()


@pytest.mark.slow
def test_the_example_runs(dstack: Lab, tmp_path: Path, connect: Callable[..., DstackProvider]) -> None:
    """Its file arrives, its commands run in order; the compiler is one the lab has."""
    enumerator = tmp_path / "rocm_agent_enumerator"
    enumerator.write_text("#!/bin/sh\necho gfx942\n")
    enumerator.chmod(0o755)
    compiler = tmp_path / "hipcc"
    compiler.write_text(
        "#!/bin/sh\nset -e\n"
        "grep -q hip_runtime.h matmul.hip\n"
        "printf '#!/bin/sh\\necho right' > matmul\n"
        "chmod +x matmul\n"
    )
    compiler.chmod(0o755)
    project = dstack.project()
    provider = connect(dstack, project)
    task = {**example(), "env": {"PATH": f"{tmp_path}:/usr/bin:/bin"}}
    wanted = Submission(run_id="r", name="matmul", project=project, configuration=task, base=str(EXAMPLE))
    plan = provider.plan(wanted)
    if plan is not None:
        provider.prepare(plan)

    submitted = provider.submit(wanted)
    output = b"".join(provider.logs(submitted.provider_id, "matmul", follow=True))

    assert output == b"right\n"
    assert dstack.run(project, "matmul")["status"] == "done"


def test_the_guide_prints_the_block_of_the_doctor() -> None:
    """A reader of either sees the same."""
    assert backend_block("main") in GUIDE


@pytest.mark.parametrize("block", re.findall("```yaml\n(projects:.*?)```", GUIDE, re.DOTALL))
def test_the_servers_blocks_are_ones_dstack_reads(block: str) -> None:
    """Their fields are dstack's own, and where the key belongs there is a placeholder."""
    from dstack._internal.core.backends.models import AnyBackendFileConfigWithCreds
    from pydantic import TypeAdapter

    (project,) = yaml.safe_load(block)["projects"]

    assert project["name"] == "main"
    TypeAdapter(AnyBackendFileConfigWithCreds).validate_python(project["backends"][0])
    assert project["backends"][0]["creds"]["api_key"].startswith("<")


def test_the_guide_knows_every_variable_of_dstack() -> None:
    """A variable that is read is written down."""
    for known in settings_table().known:
        if known.name.startswith("dstack.") or known.name == "project":
            for variable in known.variables:
                assert variable in GUIDE
