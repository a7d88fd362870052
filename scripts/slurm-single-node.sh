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
# shellcheck source=scripts/slurm.sh
source "$(dirname "${BASH_SOURCE[0]}")/slurm.sh"

action=${1:-}
folder=$(realpath -m "${2:-${TMPDIR:-/tmp}/mu2mpi-slurm}")
export SLURM_CONF=$folder/slurm.conf

start() {
    stop
    mkdir -p "$folder"
    {
        slurm_settings "$folder" 'localhost(127.0.0.1)' 16917
        echo "NodeName=localhost NodeAddr=127.0.0.1 CPUs=16 RealMemory=100000 State=UNKNOWN"
    } >"$SLURM_CONF"
    start_controller "$folder"
    slurmd -N localhost
    wait_for_nodes "$folder" 1
    echo "export SLURM_CONF=$(printf %q "$SLURM_CONF")"
}

stop() {
    [ -f "$SLURM_CONF" ] || return 0
    end_jobs
    end_daemons "$folder"
    rm -rf "$folder"
}

case $action in
    start | stop) "$action" ;;
    *) echo "usage: scripts/slurm-single-node.sh start|stop [FOLDER]" >&2; exit 2 ;;
esac
