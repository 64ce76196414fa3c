"""A provider's words end at its folder: no product code beyond it speaks of dstack or Slurm, or in their words."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("engine/providers/dstack/", "engine/providers/slurm/")
WORDS = re.compile(
    r"dstack|sbatch|squeue|sacct|scontrol|scancel|job_submissions?|job_provisioning_data|job_runtime_data|submission_num|run_spec|fleet_name"
    r"|all_jobs_done|job_failed|terminated_by_|container_exited|failed_to_start_due"
    r"|\"(?:pending|submitted|terminated|aborted|done)\""
    r"|facts\.(?:status|reason) (?:==|!=|in|not in) "
)
ALLOWED = {
    # where the two providers are put together
    "engine/providers/registry.py",
    # files of local runs that older versions wrote
    "engine/providers/local/state.py",
    # texts that users read: commands to type, examples, names of keys and settings
    "cli/catalogue.py",
    "cli/commands/daemons.py",
    "cli/commands/demo.py",
    "cli/commands/doctor.py",
    "cli/commands/notify.py",
    "cli/commands/submit.py",
    "cli/render/paint.py",
    "cli/render/runs.py",
    "cli/wiring/options.py",
    # the name of a rule of ours, and the kernel site's own words
    "projections/answers/explain.py",
    "projections/answers/kernel.py",
    # our own word for a notice that is on its way
    "projections/answers/actions.py",
    # our own word for a machine that is gone
    "engine/state/states.py",
}
"""Files that may still say so. It may only shrink."""


def test_a_providers_words_end_at_its_folder() -> None:
    """Everywhere else they are our own."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    product = [
        path
        for path in listed
        if path.startswith(("cli/", "engine/", "events/", "projections/", "migrations/"))
        and not path.startswith(FOLDERS)
        and (ROOT / path).exists()
    ]
    speaking = {path for path in product if WORDS.search((ROOT / path).read_text())}
    assert sorted(speaking - ALLOWED) == []
    assert sorted(ALLOWED & set(product) - speaking) == [], "these no longer need to be allowed"
    assert sorted(ALLOWED - set(product)) == [], "these are gone"
