"""The program that measures beside a task: a bash script that any provider can start. Standard library only.

It appends to a file what the GPU vendor's tool prints in its own loop, and lines `TIME,processes,CPU,MEMORY` of the
task (seconds since the epoch, CPU milliseconds so far, KiB resident); `sample_text` reads them. A tool that fills the
file begins a new one, and the former stays as `FILE.old`. The loop uses builtins only: processes would cost more.
"""

from typing import Final

MOST_BYTES: Final = 4 << 20  # of each of the two files
EVERY: Final = 10  # seconds between two samples of a GPU

SCRIPT: Final = r"""
# $1: the process whose children count, and whose end ends this, $2: the file, $3: seconds between two looks at them,
# $4: seconds between two of the GPUs, $5: the numbers of the GPUs; empty: all; -: there are none, $6: the name of a
# control group above this process, which has all processes of the task; empty: there is none
export LC_ALL=C; umask 077
root=$1 file=$2 every=$3 pause=$4 gpus=$5 name=$6 most=MOST_BYTES begun=0
ticks=$(getconf CLK_TCK) page=$(getconf PAGESIZE)
tool() {
    local lines= query more
    export TZ=UTC0 PYTHONUNBUFFERED=1
    ulimit -f $((most / 1024))
    ! command -v stdbuf || lines='stdbuf -oL'
    if command -v nvidia-smi && nvidia-smi -L; then  # not where it is installed without a GPU
        query=--query-gpu=timestamp,index,utilization.gpu,memory.used,memory.total,power.draw,temperature.gpu
        more=,clocks_throttle_reasons.active,ecc.errors.uncorrected.volatile.total
        # A field that this version does not know fails the whole query.
        nvidia-smi ${gpus:+-i "$gpus"} "$query$more" --format=csv,nounits || more=
        exec $lines nvidia-smi ${gpus:+-i "$gpus"} "$query$more" --format=csv,nounits -l "$pause" >> "$file"
    elif command -v amd-smi; then
        exec amd-smi monitor ${gpus:+-g ${gpus//,/ }} -p -t -u -e -v --csv -w "$pause" >> "$file"
    elif command -v rocm-smi; then  # it has no loop and gives no time
        while date +%s; do
            rocm-smi ${gpus:+-d ${gpus//,/ }} --showuse --showmeminfo vram --showpower --showtemp --csv
            sleep $((pause * 3))
        done >> "$file"
    fi
}
# The files of the group, of version 2 or 1.
while IFS=: read -r _ names path; do
    case $path in *"/$name/"*) path=${path%%"/$name/"*}/$name;; *) continue;; esac
    case ,$names, in
        ,,) used=/sys/fs/cgroup$path/cpu.stat; kept=/sys/fs/cgroup$path/memory.stat;;
        *,cpuacct,*) used=/sys/fs/cgroup/cpuacct$path/cpuacct.usage;;
        *,memory,*) kept=/sys/fs/cgroup/memory$path/memory.stat;;
    esac
done < /proc/self/cgroup
group() {
    local key value
    while read -r key value; do
        case $key in usage_usec) cpu=$((value / 1000));; [0-9]*) cpu=$((key / 1000000));; esac
    done < "$used"
    while read -r key value; do
        case $key in anon | shmem | total_rss | total_shmem) memory=$((memory + value / 1024));; esac
    done < "${kept:-/dev/null}"
    [ "$memory" != 0 ] || memory=
}
# Else the descendants of the root; the time of those that ended is counted by their parents.
tree() {
    local at pid line children waiting=("$root")
    cpu=0
    for ((at = 0; at < ${#waiting[@]}; at++)); do
        pid=${waiting[at]}
        [ "$pid" != $$ ] && read -r line < "/proc/$pid/stat" || continue
        set -- ${line##*) }
        [ "$pid" != "$root" ] || set -- "${@:1:11}" 0 0 "${@:14:8}" 0
        cpu=$((cpu + (${12} + ${13} + ${14} + ${15}) * 1000 / ticks)) memory=$((memory + ${22} * page / 1024))
        for line in "/proc/$pid/task"/*/children; do
            children=; read -r children < "$line"; waiting+=($children)
        done
    done
}
end() { kill %%; exit 0; }
trap end TERM
exec 9<> <(:) || exit 0  # a pipe that nobody writes to: reading it waits without a process
while kill -0 "$root"; do
    printf -v now '%(%s)T' -1
    if [ "$gpus" != - ] && ! kill -0 %%; then  # not begun, or ended: it begins again if it filled the file, not at once
        [ "$begun" = 0 ] || { [ $((now - begun)) -gt 600 ] && [ "$(stat -c %s "$file")" -ge "$most" ] &&
            mv "$file" "$file.old"; } || gpus=-
        begun=$now
        if [ "$gpus" != - ]; then tool & fi
    fi
    cpu= memory=0
    if [ -n "$used" ]; then group; elif [ -r "/proc/$$/task/$$/children" ]; then tree; fi
    [ -z "$cpu" ] || echo "${EPOCHREALTIME:-$now},processes,$cpu,$memory" >> "$file"
    read -r -t "$every" -u 9 || [ $? -gt 128 ] || sleep "$every"
done
end
""".replace("MOST_BYTES", str(MOST_BYTES))
