#!/bin/bash
# down by PID files only
S=$(cd "$(dirname "$0")" && pwd)
L=${STENO_SLURM_LAB:-${TMPDIR:-/tmp}/steno-slurm-lab}; export SLURM_CONF=$L/etc/slurm.conf
scancel -u root,${LABUSER:-games} >/dev/null 2>&1; sleep 1
for n in slurmrestd slurmd-node1 slurmd-node2 slurmd-node3 slurmd-node4 slurmctld slurmdbd mariadbd munged; do [ -e $L/run/$n.pid ] && bash $S/stop.sh $n; done; exit 0
