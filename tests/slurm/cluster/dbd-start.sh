#!/bin/bash
L=${STENO_SLURM_LAB:-${TMPDIR:-/tmp}/steno-slurm-lab}; export SLURM_CONF=$L/etc/slurm.conf
/usr/sbin/slurmdbd
for i in $(seq 1 600); do timeout 1 sacctmgr -nP list cluster >/dev/null 2>&1 && exit 0; sleep 0.1; done; echo slurmdbd not answering; exit 1
