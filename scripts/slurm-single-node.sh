#!/usr/bin/env bash
# A throw-away SLURM on this machine, with real daemons and one node, for trying and testing job scripts.
#
#   eval "$(scripts/slurm-single-node.sh start)"    # sets SLURM_CONF, which every SLURM command reads
#   sbatch jobs/run.sbatch
#   scripts/slurm-single-node.sh stop
#
# Needs root and Debian's packages: slurmctld slurmd slurm-client munge libpmix2. Everything else lies in
# a folder of its own, ${TMPDIR:-/tmp}/mu2mpi-slurm or the second argument.
set -euo pipefail

action=${1:-}
folder=$(realpath -m "${2:-${TMPDIR:-/tmp}/mu2mpi-slurm}")
export SLURM_CONF=$folder/slurm.conf

configuration() {
    cat <<END
ClusterName=throwaway
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
CredType=cred/munge
SlurmctldPort=16917
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/log/slurmctld.log
SlurmdLogFile=$folder/log/slurmd.log
MailProg=/bin/true
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=10
MinJobAge=3600
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
SlurmdParameters=config_overrides
NodeName=localhost NodeAddr=127.0.0.1 Port=16921 CPUs=16 RealMemory=100000 State=UNKNOWN
PartitionName=normal Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=5 PreemptMode=OFF State=UP
PartitionName=low Nodes=ALL MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE GraceTime=20 State=UP
PartitionName=lowcancel Nodes=ALL MaxTime=INFINITE PriorityTier=1 PreemptMode=CANCEL State=UP
PartitionName=high Nodes=ALL MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF State=UP
END
}

# SLURM looks for the library under its development name.
link_pmix() {
    local library
    for library in /usr/lib/*/pmix2/lib/libpmix.so.2; do
        [ -e "$library" ] && ln -sf libpmix.so.2 "${library%.2}"
    done
}

start() {
    stop
    mkdir -p "$folder"/{state,log,spool}
    : >"$folder/plugstack.conf"
    configuration >"$SLURM_CONF"
    link_pmix
    if ! munge -n >/dev/null 2>&1; then
        install -d -o munge -g munge -m 755 /run/munge
        runuser -u munge -- /usr/sbin/munged
        cp /run/munge/munged.pid "$folder/munged.pid"
    fi
    slurmctld -c
    slurmd -N localhost
    for _ in $(seq 200); do
        if [ "$(sinfo -h -p normal -t idle -o %D 2>/dev/null)" = 1 ]; then
            echo "export SLURM_CONF=$(printf %q "$SLURM_CONF")"
            return
        fi
        sleep 0.1
    done
    tail -n 20 "$folder"/log/* >&2
    echo "the node did not come up" >&2
    exit 1
}

stop() {
    [ -f "$SLURM_CONF" ] || return 0
    squeue -h -o %A 2>/dev/null | sort -u | xargs -r scancel 2>/dev/null || true
    for _ in $(seq 60); do
        [ -z "$(squeue -h 2>/dev/null)" ] && break
        sleep 0.25
    done
    local daemon
    for daemon in slurmd slurmctld munged; do
        if [ -f "$folder/$daemon.pid" ]; then
            kill "$(cat "$folder/$daemon.pid")" 2>/dev/null || true
        fi
    done
    sleep 0.5
    rm -rf "$folder"
}

case $action in
    start | stop) "$action" ;;
    *) echo "usage: scripts/slurm-single-node.sh start|stop [FOLDER]" >&2; exit 2 ;;
esac
