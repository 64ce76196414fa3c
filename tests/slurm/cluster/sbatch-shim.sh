#!/bin/bash
# Stands before sbatch on PATH. The file $SHIM/NAME says what happens, once, to the submission of that name: `before` or
# `after` kill whoever called around it; `late:N` kills them and submits N seconds later; `hang:N` answers N seconds late;
# `lost` submits, and the answer is a timeout. Each submission adds its job id to $SHIM/jobs.
script=$(mktemp); cat > "$script"
name=$(sed -n 's/^#SBATCH --job-name=//p' "$script")
mode=$(cat "$SHIM/$name" 2>/dev/null); rm -f "$SHIM/$name"
submit() { job=$("$SBATCH" "$@" < "$script"); code=$?; [ -z "$job" ] || echo "$job" >> "$SHIM/jobs"; }
case "$mode" in
    before) kill -9 $PPID; exit 1;;
    after) submit "$@"; kill -9 $PPID;;
    late:*) kill -9 $PPID; sleep "${mode#late:}"; submit "$@";;
    hang:*) submit "$@"; sleep "${mode#hang:}";;
    lost) submit "$@"; job= code=1
        echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2;;
    *) submit "$@";;
esac
rm -f "$script"; echo "$job"; exit "$code"
