# shellcheck shell=bash
# Sourced by the scripts that start a throw-away SLURM: what all of them configure, start and stop alike.

# slurm_settings FOLDER CONTROLLER PORT: all but the nodes; the nodes listen on PORT + 4.
slurm_settings() {
    cat <<END
ClusterName=throwaway
SlurmctldHost=$2
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
CredType=cred/munge
SlurmctldPort=$3
SlurmdPort=$(($3 + 4))
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool/%n
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd-%n.pid
SlurmctldLogFile=$1/log/slurmctld.log
SlurmdLogFile=$1/log/slurmd-%n.log
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
PartitionName=normal Nodes=ALL Default=YES MaxTime=INFINITE PriorityTier=5 PreemptMode=OFF State=UP
PartitionName=low Nodes=ALL MaxTime=INFINITE PriorityTier=1 PreemptMode=REQUEUE GraceTime=20 State=UP
PartitionName=lowcancel Nodes=ALL MaxTime=INFINITE PriorityTier=1 PreemptMode=CANCEL GraceTime=0 State=UP
PartitionName=high Nodes=ALL MaxTime=INFINITE PriorityTier=10 PreemptMode=OFF State=UP
END
}

# start_controller FOLDER: munged, if none answers, and slurmctld, with the configuration in SLURM_CONF.
start_controller() {
    local library
    # SLURM looks for the library under its development name.
    for library in /usr/lib/*/pmix2/lib/libpmix.so.2; do
        [ -e "$library" ] && ln -sf libpmix.so.2 "${library%.2}"
    done
    mkdir -p "$1"/{state,log,spool}
    : >"$1/plugstack.conf"
    if ! munge -n >/dev/null 2>&1; then
        install -d -o munge -g munge -m 755 /run/munge
        runuser -u munge -- /usr/sbin/munged
        cp /run/munge/munged.pid "$1/munged.pid"
    fi
    slurmctld -c
}

# wait_for_nodes FOLDER NUMBER: until so many are idle.
wait_for_nodes() {
    for _ in $(seq 200); do
        [ "$(sinfo -h -N -p normal -t idle -o %N 2>/dev/null | wc -l)" = "$2" ] && return
        sleep 0.1
    done
    tail -n 20 "$1"/log/* >&2
    echo "not all nodes came up: $2 were to" >&2
    return 1
}

# end_jobs: cancel all, and wait for their end.
end_jobs() {
    timeout 10 squeue -h -o %A 2>/dev/null | sort -u | timeout 10 xargs -r scancel 2>/dev/null || true
    for _ in $(seq 60); do
        [ -z "$(timeout 10 squeue -h 2>/dev/null)" ] && break
        sleep 0.25
    done
}

# end_daemons FOLDER: those that were started there.
end_daemons() {
    local file process
    for file in "$1"/slurm*.pid "$1"/munged.pid; do
        process=$(cat "$file" 2>/dev/null) || continue
        # After a crash, another program may have the number.
        case $(cat "/proc/$process/comm" 2>/dev/null) in
            slurm* | munged) kill "$process" || true ;;
        esac
    done
    sleep 0.5
}
