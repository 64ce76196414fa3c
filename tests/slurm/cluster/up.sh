#!/bin/bash
# up.sh FOLDER PORT yes|no: Slurm 22.05 on one host: munged, mariadbd, slurmdbd, slurmctld, four slurmd; all it has is in
# FOLDER. Of seven ports the first is PORT: controller, slurmdbd, MariaDB, four nodes. `no`: without accounting.
# STENO_SLURM_JOB_IDS=N: a job id comes again after N others. It goes down as stenolab/slurm.py says.
set -u; L=$1; P=$2; A=$3; cd "$L" || exit 1; export SLURM_CONF=$L/etc/slurm.conf
T0=$EPOCHREALTIME; t(){ awk -v a="$T0" -v b="$EPOCHREALTIME" -v w="$*" 'BEGIN { printf "%6.2fs  %s\n", b - a, w }'; }
U=${LABUSER:-games}
mkdir -p etc run run/state log spool dev jobs; chmod 755 . etc run log dev; chmod 1777 jobs; chown $U jobs
# --- fake GPU device files (character devices, so gres.conf accepts them and sets CUDA_VISIBLE_DEVICES)
for i in 0 1 2 3; do [ -c dev/fakegpu$i ] || { rm -f dev/fakegpu$i; mknod -m 666 dev/fakegpu$i c 1 3; }; done   # clones of /dev/null
[ -s etc/munge.key ] || { dd if=/dev/urandom of=etc/munge.key bs=128 count=1 status=none; chmod 400 etc/munge.key; }
# Memory is held by a cgroup where this machine lets us make one, and looked at every second where it does not.
C=/sys/fs/cgroup/memory/steno-$$; MEMORY='TaskPlugin=task/none
JobAcctGatherFrequency=task=1
JobAcctGatherParams=OverMemoryKill'
mkdir $C 2>/dev/null && echo 64M 2>/dev/null >$C/memory.limit_in_bytes && [ -z "${STENO_SLURM_NO_CGROUP:-}" ] && MEMORY='TaskPlugin=task/cgroup
JobAcctGatherFrequency=task=2'
rmdir $C 2>/dev/null
# cred_expire is also how long a job that was requeued waits: two minutes by default. Job ids are of this cluster alone,
# for a machine has one tree of cgroups. Without accounting a job is known for MinJobAge alone: a poll has to come within
# it.
cat > etc/slurm.conf <<C
ClusterName=lab
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$P
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$L/run/munge.sock,cred_expire=15
CredType=cred/munge
FirstJobId=$((1 + P * 1000))
MaxJobId=$((${STENO_SLURM_JOB_IDS:-9000} + P * 1000))
StateSaveLocation=$L/run/state
SlurmdSpoolDir=$L/spool/%n
SlurmctldPidFile=$L/run/slurmctld.pid
SlurmdPidFile=$L/run/slurmd-%n.pid
SlurmctldLogFile=$L/log/slurmctld.log
SlurmdLogFile=$L/log/slurmd-%n.log
SlurmctldDebug=verbose
SlurmdDebug=verbose
ProctrackType=proctrack/linuxproc
JobAcctGatherType=jobacct_gather/linux
$MEMORY
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
SlurmdParameters=config_overrides
GresTypes=gpu
ReturnToService=1
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=2,bf_window=2880,bf_resolution=60,sched_interval=2,batch_sched_delay=1,default_queue_depth=200,partition_job_depth=0
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
JobRequeue=1
MinJobAge=$([ $A = yes ] && echo 2 || echo 8)
KillWait=3
CompleteWait=0
SlurmctldTimeout=10
SlurmdTimeout=12
InactiveLimit=0
MpiDefault=none
PriorityType=priority/multifactor
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=$((P+1))
AccountingStoragePass=$L/run/munge.sock
AccountingStorageEnforce=associations,limits,qos
AccountingStorageTRES=gres/gpu,gres/gpu:a6000,gres/gpu:v100,gres/gpu:a40
JobCompType=jobcomp/filetxt
JobCompLoc=$L/log/jobcomp.txt
NodeName=node1 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$((P+3)) CPUs=16 RealMemory=64000 Gres=gpu:a6000:4 State=UNKNOWN
NodeName=node2 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$((P+4)) CPUs=16 RealMemory=64000 Gres=gpu:a6000:4 State=UNKNOWN
NodeName=node3 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$((P+5)) CPUs=16 RealMemory=64000 Gres=gpu:v100:4 State=UNKNOWN
NodeName=node4 NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=$((P+6)) CPUs=16 RealMemory=64000 Gres=gpu:a40:4 State=UNKNOWN
PartitionName=gpu-a6000 Nodes=node[1-2] Default=YES MaxTime=1-00:00:00 DefaultTime=10 DefMemPerCPU=1000 PriorityTier=10 PreemptMode=OFF State=UP TRESBillingWeights="CPU=1.0,Mem=0.25G,GRES/gpu:a6000=100"
PartitionName=gpu-v100 Nodes=node3 MaxTime=1-00:00:00 DefaultTime=10 DefMemPerCPU=1000 PriorityTier=10 PreemptMode=OFF State=UP TRESBillingWeights="CPU=1.0,GRES/gpu:v100=60"
PartitionName=gpu-a40 Nodes=node4 MaxTime=1-00:00:00 DefaultTime=10 DefMemPerCPU=1000 PriorityTier=10 PreemptMode=OFF State=UP TRESBillingWeights="CPU=1.0,GRES/gpu:a40=80"
PartitionName=low Nodes=node[1-4] MaxTime=1-00:00:00 DefaultTime=10 DefMemPerCPU=1000 PriorityTier=1 PreemptMode=REQUEUE GraceTime=0 State=UP
PartitionName=capped Nodes=node[1-2] QOS=capped MaxTime=1:00:00 DefaultTime=10 DefMemPerCPU=1000 PriorityTier=10 PreemptMode=OFF State=UP
C
cat > etc/gres.conf <<C
NodeName=node[1-2] Name=gpu Type=a6000 File=$L/dev/fakegpu[0-3]
NodeName=node3 Name=gpu Type=v100 File=$L/dev/fakegpu[0-3]
NodeName=node4 Name=gpu Type=a40 File=$L/dev/fakegpu[0-3]
C
cat > etc/cgroup.conf <<C
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
CgroupPlugin=cgroup/v1
ConstrainCores=no
ConstrainDevices=no
ConstrainRAMSpace=yes
ConstrainSwapSpace=no
C
cat > etc/slurmdbd.conf <<C
DbdHost=$(hostname -s)
DbdAddr=127.0.0.1
DbdPort=$((P+1))
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$L/run/munge.sock
DebugLevel=verbose
LogFile=$L/log/slurmdbd.log
PidFile=$L/run/slurmdbd.pid
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=$((P+2))
StorageUser=slurm
StoragePass=lab
StorageLoc=slurm_acct_db
CommitDelay=1
C
chmod 600 etc/slurmdbd.conf
wait_for(){ for i in $(seq 1 600); do eval "$1" >/dev/null 2>&1 && return 0; sleep 0.1; done; echo "TIMEOUT waiting: $1"; return 1; }
# --- munge
/usr/sbin/munged --force --key-file=$L/etc/munge.key --socket=$L/run/munge.sock --pid-file=$L/run/munged.pid --log-file=$L/log/munged.log --seed-file=$L/run/munge.seed
wait_for "munge -n -S $L/run/munge.sock" && t munged up
if [ $A = yes ]; then
# --- mariadb
# Each with a tmpdir of its own: at its start mariadbd deletes the temporary tables that it finds there.
mkdir -p mysql run/my; chown mysql mysql run/my; mariadb-install-db --no-defaults --user=mysql --datadir=$L/mysql --tmpdir=$L/run/my --auth-root-authentication-method=normal --skip-test-db >log/mysql-install.log 2>&1 || { cat log/mysql-install.log; exit 1; }; t mariadb datadir installed
touch log/mariadb.log; chown mysql log/mariadb.log
setsid /usr/sbin/mariadbd --no-defaults --user=mysql --datadir=$L/mysql --tmpdir=$L/run/my --socket=$L/run/my/my.sock --pid-file=$L/run/my/mariadbd.pid --port=$((P+2)) --bind-address=127.0.0.1 --innodb-buffer-pool-size=128M --innodb-lock-wait-timeout=900 --innodb-log-file-size=32M --skip-log-bin >>log/mariadb.log 2>&1 &
wait_for "mariadb --no-defaults -uroot -S $L/run/my/my.sock -e 'select 1'" && t mariadbd up
mariadb --no-defaults -uroot -S $L/run/my/my.sock -e "create database slurm_acct_db; create user 'slurm'@'127.0.0.1' identified by 'lab'; create user 'slurm'@'localhost' identified by 'lab'; grant all on slurm_acct_db.* to 'slurm'@'127.0.0.1'; grant all on slurm_acct_db.* to 'slurm'@'localhost';"
# --- slurmdbd
/usr/sbin/slurmdbd
wait_for 'sacctmgr -nP list cluster' && t slurmdbd up
# --- slurmctld
sacctmgr -i add cluster lab >/dev/null 2>&1
sacctmgr -i add account lab Description=lab Organization=lab >/dev/null
sacctmgr -i add qos capped set MaxTRESPerJob=cpu=2 >/dev/null
sacctmgr -i add qos cappeddeny set MaxTRESPerJob=cpu=2 Flags=DenyOnLimit >/dev/null
sacctmgr -i add user root Account=lab >/dev/null; sacctmgr -i modify user root set qos+=capped,cappeddeny >/dev/null
sacctmgr -i add user $U Account=lab >/dev/null; sacctmgr -i modify user $U set qos+=capped,cappeddeny >/dev/null
t accounting set up
else sed -i '/^Accounting/d; s/ QOS=capped//; s/ TRESBillingWeights=.*//' etc/slurm.conf; fi
/usr/sbin/slurmctld -f $SLURM_CONF
wait_for "scontrol ping | grep -q UP" || { tail -5 log/slurmctld.log; exit 1; }; t slurmctld up
# --- nodes
for n in 1 2 3 4; do mkdir -p spool/node$n; /usr/sbin/slurmd -N node$n -f $SLURM_CONF || echo slurmd node$n failed; done
wait_for '[ "$(sinfo -h -N -p low -t idle -o %N | sort -u | wc -l)" = 4 ]' && t 4 nodes idle
sinfo
