"""The job script of a job, rendered from its specification alone. Pure.

All options are `#SBATCH` lines, so that they survive a requeue. If bash sees the end, the exit status goes to
`ends/<job>`: without accounting the only evidence once the controller has forgotten the job.
"""

import posixpath
import shlex
from collections.abc import Iterator
from typing import Final

from steno.engine.providers.slurm.spec import MARK, SHORTEST_SEGMENT, JobSpec, gres
from steno.engine.providers.slurm.words import DUPLICATE

_LEAST_S: Final = 60  # least seconds of a segment before its notice, which Slurm may send a minute early
_NOTICE_S: Final = 120  # how long before its time limit a segment gets a notice
OUT_OF_TIME: Final = 124  # exit status of a program that stopped with 0 and may not resume, as of `timeout`
_PORT: Final = 29500
_JOB: Final = "${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}}"

_ENDING: Final = (
    "steno_cause= steno_begun= steno_sampler=",
    "steno_say() {",
    '    printf "%s %s %s %s\n" "$1" "$(date +%s)" "$steno_run" "$2" > "$steno_folder/ends/$steno_job.new" &&',
    '        mv "$steno_folder/ends/$steno_job.new" "$steno_folder/ends/$steno_job"',
    "}",
    "steno_end() {",
    '    status=$?; steno_say "$status" "$steno_name${steno_cause:+ $steno_cause}"',
    '    [ -z "$steno_sampler" ] || kill "$steno_sampler" 2>/dev/null',
    "    # Slurm keeps seven bits of an exit status: one of a signal must be a signal, or 139 would read 11.",
    f'    [ "$status" -le 128 ] || [ "$status" -gt 192 ] || [ "$status" -eq {128 + DUPLICATE} ] ||',
    '        { trap - EXIT TERM USR1; kill -"$((status - 128))" $$; }',
    "}",
    "trap steno_end EXIT",
    "# Slurm itself ends the job: its reason is gone with the job, and a cluster without accounting keeps it nowhere.",
    "steno_terminated() {",
    "    steno_cause=CANCELLED",
    '    [ "$(squeue -h -t all -j "$SLURM_JOB_ID" -o %r 2>/dev/null)" != TimeLimit ] || steno_cause=TIMEOUT',
    "    # Slurm tells a job once: the command, which it did not tell, would run until it is killed.",
    '    [ -n "$steno_begun" ] || exit 143',
    "}",
    "trap steno_terminated TERM",
    'steno_say - "$steno_name"',
)

_CLAIM: Final = rf"""
# A submission may arrive twice. The first of its jobs claims the run: a link is made, with its target, in one step.
steno_claim="${{SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID}}"; mkdir -p "$steno_folder/claims" 2>/dev/null
ln -sn "$steno_claim" "$steno_folder/claims/$steno_run" 2>/dev/null
steno_holder="$(readlink "$steno_folder/claims/$steno_run")"
case "$steno_holder" in
    "$steno_claim") ;;
    "") echo "steno: $steno_folder/claims cannot be written: should this job have been submitted twice, both run" >&2;;
    *) echo "steno: job $steno_holder has this run (0: it was given up): this one ends here" >&2
        steno_say {128 + DUPLICATE} "$steno_name DUPLICATE"; trap - EXIT TERM; kill -{DUPLICATE} $$;;
esac
""".strip()


def notice(spec: JobSpec) -> int:
    """Seconds before the end of a segment at which the program gets SIGUSR1; it works `_LEAST_S` before that."""
    limit = (spec.time or 0) * 60
    return max(0, min(_NOTICE_S, limit - _LEAST_S))


def variables(spec: JobSpec) -> str:
    """The file `env/<run id>` with the values of its variables."""
    return "".join(f"export {name}={shlex.quote(value)}\n" for name, value in spec.env.items())


def render(spec: JobSpec, *, name: str, run_id: str, folder: str) -> str:
    """The whole script. `folder`: Steno's folder on the cluster, absolute."""
    parts = (_head(spec, name, run_id, folder), _environment(spec, name, run_id, folder), _report(spec))
    return "\n".join((*(line for part in parts for line in part), *_packages(spec), *_body(spec), ""))


def _head(spec: JobSpec, name: str, run_id: str, folder: str) -> Iterator[str]:
    output = f"{folder}/output/{'%A_%a' if spec.array else '%j'}.out"
    options: list[tuple[str, object]] = [
        ("job-name", name),
        ("comment", f"{MARK}{run_id}"),
        ("output", output),
        ("open-mode", "append"),
        ("export", "NIL"),
        ("chdir", posixpath.join(folder, spec.workdir or "")),
        ("nodes", spec.nodes),
        ("time", spec.time),
        ("partition", spec.partition),
        ("account", spec.account),
        ("qos", spec.qos),
        ("array", spec.array),
        ("dependency", spec.dependency),
        ("constraint", spec.constraint),
        ("cpus-per-task", spec.cpus),
        ("mem", None if spec.memory is None else f"{spec.memory}M"),
        ("gres", gres(spec.gpu, spec.gpus) if spec.gpus else None),
        ("ntasks-per-node", 1 if spec.nodes > 1 else None),
        ("signal", f"B:USR1@{notice(spec)}" if spec.checkpoint else None),
    ]
    yield "#!/bin/bash"
    for option, value in options:
        if value is not None:
            yield f"#SBATCH --{option}={_quoted(str(value))}"
    if spec.checkpoint:
        yield "#SBATCH --requeue"


def _quoted(value: str) -> str:
    """A value of a `#SBATCH` line, quoted if it has a blank or a quote."""
    if not value or any(char in value for char in " \t\"'\\#"):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return value


def _environment(spec: JobSpec, name: str, run_id: str, folder: str) -> Iterator[str]:
    # 22.05 gives a job of `--export=NIL` the environment of a login; newer versions none, so this makes one.
    login = 'unset HOME; export HOME=~ USER="$(id -un)"; export LOGNAME="$USER"; exec bash -l "$0"'
    yield f'[ -n "$HOME" ] || {{ {login}; }}'
    # Or each `srun` drops the job's variables, as sbatch dropped those of the caller.
    yield "export SLURM_EXPORT_ENV=ALL"
    place = shlex.quote(folder)
    yield f"steno_folder={place}"
    yield f'steno_job="{_JOB}"; steno_job="${{steno_job:-$SLURM_JOB_ID}}"'
    yield f"steno_run={run_id} steno_name={shlex.quote(name)}"
    yield 'mkdir -p "$steno_folder/ends"'
    yield from _ENDING
    yield from _CLAIM.splitlines()
    yield f"export STENO_RUN_ID={run_id}"
    yield "export STENO_TOTAL_ELAPSED=0 RV_TOTAL_ELAPSED=0"
    yield 'export OMP_NUM_THREADS="${SLURM_CPUS_PER_TASK:-1}" TOKENIZERS_PARALLELISM=false'
    yield 'export PATH="$HOME/.local/bin:$PATH"'
    for variable, where in _CACHES:
        yield f'export {variable}="$steno_folder/cache/{where}"'
    for kind in ("checkpoints", "results"):
        own = shlex.quote(f"{kind}/{name}-{run_id[-12:]}")
        yield f'export STENO_{_FOLDERS[kind]}="$steno_folder"/{own}; mkdir -p "$STENO_{_FOLDERS[kind]}"'
    yield 'export RV_CHECKPOINT_DIR="$STENO_CHECKPOINT_DIR" RV_OUTPUT_DIR="$STENO_OUTPUT_DIR"'
    if spec.env:
        # Values may be secret: only their owner can read the file, and Slurm does not keep it.
        yield f'steno_values="$steno_folder/env/{run_id}"; touch -c "$steno_values"'
        yield '[ -r "$steno_values" ] || { echo "steno: the job has lost its variables: submit it again" >&2; exit 1; }'
        yield '. "$steno_values"'
    if spec.nodes > 1:
        yield 'export MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"'
        yield f'export MASTER_PORT="${{MASTER_PORT:-$(({_PORT} + SLURM_JOB_ID % 1000))}}"'


_FOLDERS: Final = {"checkpoints": "CHECKPOINT_DIR", "results": "OUTPUT_DIR"}
_CACHES: Final = (  # on scratch: a home quota is full after one model; vLLM reads VLLM_CACHE_ROOT
    ("HF_HOME", "huggingface"),
    ("UV_CACHE_DIR", "uv"),
    ("VLLM_CACHE_ROOT", "vllm"),
    ("VLLM_CACHE_DIR", "vllm"),
    ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
    ("TRITON_CACHE_DIR", "triton"),
)


def _report(spec: JobSpec) -> Iterator[str]:
    """The machine as the job sees it, and the start of each phase, in `reports/<job>`: JSON Lines, polled."""
    wanted = f"{spec.gpu or ''}:{spec.gpus}"
    yield f"steno_asked={shlex.quote(wanted)} steno_workers={spec.workers or 0}"
    yield from _NODE_REPORT.splitlines()
    yield from _SAMPLER.replace("UNSEEN", "" if spec.gpus else "-").splitlines()


_NODE_REPORT: Final = r"""
steno_report="$steno_folder/reports/$steno_job"; mkdir -p "$steno_folder/reports"
steno_phase() { printf '{"phase":"%s","at":%s}\n' "$1" "$(date +%s)" >> "$steno_report"; }
steno_node() {
    local names slices seen=${CUDA_VISIBLE_DEVICES:-} cpus memory
    cpus="$(env -u OMP_NUM_THREADS nproc)"
    slices="$(nvidia-smi -L 2>/dev/null | sed -n 's/^ *\(MIG [^ ]*\) .*/\1/p')"
    names="$(nvidia-smi --query-gpu=name,memory.total --format=csv,noheader,nounits 2>/dev/null)"
    # Where devices are not constrained nvidia-smi lists all: those of the job are numbered here.
    case "$seen" in ''|*[!0-9,]*) ;; *)
        names="$(printf '%s\n' "$names" | awk -v seen=",$seen," 'index(seen, "," NR - 1 ",")')";;
    esac
    memory="$(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)"
    printf '{"node":"%s","asked":"%s","slices":"%s","gpus":"%s","cpus_seen":%s,"cpus_cgroup":%s,"cpus_per_task":%s,' \
        "$(hostname -s)" "$steno_asked" "$(echo $slices)" "$(printf '%s' "$names" | tr '\n"\\' '; ')" \
        "$(getconf _NPROCESSORS_ONLN)" "$cpus" "${SLURM_CPUS_PER_TASK:-null}"
    printf '"memory_mib":%s,"job_memory_mib":%s,"scratch_free_mib":%s,"at":%s}\n' "$((${memory:-0} / 1024))" \
        "${SLURM_MEM_PER_NODE:-null}" "$(df -Pm "$steno_folder" | awk 'NR == 2 { print $4 }')" "$(date +%s)"
    cpus="${SLURM_CPUS_PER_TASK:-$cpus}"
    [ "$steno_workers" -le "$cpus" ] || echo "steno: $steno_workers data workers share $cpus CPUs; use $cpus" >&2
}
[ -n "$steno_holder" ] || steno_phase unclaimed
steno_found="$(steno_node)"; printf '%s\n' "$steno_found" >> "$steno_report"
""".strip()
"""GPUs by model, memory and slice; CPUs that can be seen, of the cgroup, and after Slurm's own adjustment; memory."""

_SAMPLER: Final = r"""
# Samples of the job's GPUs and processes on this node, in samples/JOB; it ends with the job.
steno_seen="${CUDA_VISIBLE_DEVICES:-${ROCR_VISIBLE_DEVICES:-}}"
case "$steno_seen" in ''|NoDevFiles) steno_seen=UNSEEN;; *[!0-9,]*) steno_seen=;; esac
{ mkdir -p "$steno_folder/samples"
    exec bash "$steno_folder/sampler" "$$" "$steno_folder/samples/$steno_job" 30 10 "$steno_seen" "job_$SLURM_JOB_ID"
} </dev/null >/dev/null 2>&1 &
steno_sampler=$!; disown
""".strip()
"""`sampler` is written at each submission. Disowned: bash reports the end of another child in the job's output."""


def _packages(spec: JobSpec) -> Iterator[str]:
    """The environment of the lock file: built by the first job that needs it, as a phase of its own."""
    if spec.environment is None:
        yield "steno_phase command"
        return
    lock, _, digest = spec.environment.rpartition("@")
    folder, _, name = lock.rpartition("/")
    where = '"$steno_folder"/' + shlex.quote(f"projects/{spec.snapshot}/{folder}" if spec.snapshot else folder)
    listed = name
    yield f'steno_env="$steno_folder/envs/{digest}"; mkdir -p "$steno_folder/envs"'
    yield "steno_build() {"
    yield f'    cd {where} || return; rm -rf "$steno_env"'
    yield "    if command -v uv >/dev/null; then"
    if name == "uv.lock":
        listed = '"$steno_env.txt"'
        yield f"        uv export -q --frozen --no-emit-project --no-hashes -o {listed} >/dev/null || return"
    yield f'        uv venv -q "$steno_env" && uv pip install -q --python "$steno_env" --only-binary :all: -r {listed}'
    yield "    else"
    yield '        echo "steno: there is no uv on $(hostname -s), so pip builds the environment: slower" >&2'
    if name == "requirements.txt":
        yield '        python3 -m venv "$steno_env" && "$steno_env/bin/pip" install -q --only-binary :all: -r ' + listed
    else:
        yield f'        echo "steno: {name} needs uv; put it into ~/.local/bin on the cluster" >&2; return 1'
    yield "    fi"
    yield "}"
    yield "steno_phase environment"
    # Jobs that start together build it once.
    yield '( exec 8> "$steno_env.lock"; flock 8; [ -e "$steno_env/.ready" ] ||'
    yield '    { steno_build && touch "$steno_env/.ready"; } )'
    yield f'[ $? -eq 0 ] || {{ echo "steno: the environment of {name} cannot be built" >&2; exit 1; }}'
    yield 'export VIRTUAL_ENV="$steno_env" PATH="$steno_env/bin:$PATH" UV_PROJECT_ENVIRONMENT="$steno_env" UV_NO_SYNC=1'
    yield "steno_phase command"


def _body(spec: JobSpec) -> Iterator[str]:
    # A shell dies of the signal, and its program with it, unwarned: this one leaves the signal to its program.
    heed = ("trap : USR1",) if spec.checkpoint else ()
    program = "\n".join((*heed, "set -e", *spec.commands))
    if spec.nodes > 1:
        # Set in the batch script the rank would be 0 on every node: each task sets its own.
        ranks = 'export NODE_RANK="$SLURM_PROCID" RANK="$SLURM_PROCID" WORLD_SIZE="$SLURM_NTASKS"'
        run = f'srun --ntasks="$SLURM_NNODES" --ntasks-per-node=1 bash -c {shlex.quote(f"{ranks}{chr(10)}{program}")}'
    else:
        run = f"bash -c {shlex.quote(program)}"
    if not spec.checkpoint:
        yield "steno_begun=yes"
        yield run
        return
    yield from _checkpointed(spec, run)


def _checkpointed(spec: JobSpec, run: str) -> Iterator[str]:
    """Tells the program to write its checkpoint, and requeues the job, while time and segments are left."""
    yield 'steno_state="$STENO_CHECKPOINT_DIR/.steno-elapsed"'
    yield 'steno_before="$(cat "$steno_state" 2>/dev/null || echo 0)"; steno_start="$(date +%s)"'
    yield 'export STENO_TOTAL_ELAPSED="$steno_before" RV_TOTAL_ELAPSED="$steno_before"'
    left = "true"
    if spec.total:
        # The last segment gets the rest, but enough to begin before its notice.
        yield f"steno_left=$(( ({spec.total * 60} - steno_before + 59) / 60 ))"
        yield f'[ "$steno_left" -ge {SHORTEST_SEGMENT} ] || steno_left={SHORTEST_SEGMENT}'
        yield f'[ "$steno_left" -ge {spec.time} ] || scontrol update JobId="$SLURM_JOB_ID" TimeLimit="$steno_left"'
        left = f'[ "$steno_elapsed" -lt {spec.total * 60} ]'
    # A process group of its own (srun tells all its tasks): the signal reaches the program, not only a shell.
    yield "steno_begun=yes"
    yield f"{run} &" if spec.nodes > 1 else f"setsid {run} &"
    yield "steno_program=$!"
    yield "steno_again=no"
    whom = '"$steno_program"' if spec.nodes > 1 else '-- "-$steno_program"'
    yield f"steno_told() {{ steno_again=yes; kill -USR1 {whom} 2>/dev/null; }}"
    yield "trap steno_told USR1"
    # A signal ends a `wait` too, with its own number.
    yield 'while kill -0 "$steno_program" 2>/dev/null; do wait "$steno_program"; done'
    yield 'wait "$steno_program"; steno_status=$?'
    yield 'steno_elapsed=$((steno_before + $(date +%s) - steno_start)); echo "$steno_elapsed" > "$steno_state"'
    yield f'if [ "$steno_again" = yes ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {spec.resubmissions} ] && {left}; then'
    yield '    scontrol requeue "$SLURM_JOB_ID" && sleep 60'
    yield 'elif [ "$steno_again" = yes ]; then'
    yield '    echo "steno: out of time after $steno_elapsed s and ${SLURM_RESTART_COUNT:-0} resubmissions" >&2'
    yield f'    [ "$steno_status" -ne 0 ] || steno_status={OUT_OF_TIME}'
    yield "fi"
    yield 'exit "$steno_status"'
