#!/usr/bin/env bash
# Hosts h1, h2, ... on this machine, for trying and testing ranks on several hosts: namespaces with a network,
# a host name, shared memory (System V and /dev/shm) and a folder for scratch files of their own. All other
# files they share.
#
#   scripts/hosts.sh start [FOLDER] [N]    # by default ${TMPDIR:-/tmp}/mu2mpi-hosts, and 2
#   SLURM=1 scripts/hosts.sh start         # each of them a node of a SLURM, too
#   scripts/hosts.sh stop [FOLDER]
#
# One set of hosts at a time. FOLDER then has
#   on HOST COMMAND...     runs a command on a host; signals reach it
#   ssh HOST COMMAND...    does so as ssh would, from the home and without the environment, for launchers:
#                            on h1 mpirun -launcher-exec FOLDER/ssh -hosts h1,h2 -ppn 2 -n 4 ...    (MPICH)
#                            on h1 mpirun --prtemca plm_ssh_agent FOLDER/ssh -H h1:2,h2:2 -n 4 ...  (Open MPI)
#   pids HOST              prints the numbers of the processes on a host
#   lose HOST              kills them all
#   scratch/               is another folder on each host
# and with SLURM=1
#   slurm.conf             what SLURM_CONF is to name; partitions normal, low, lowcancel and high
#   slurmd HOST            makes a lost host a node again
#
# Needs root and Debian's packages iproute2 and util-linux; with SLURM=1, those of slurm-single-node.sh, too.
set -euo pipefail
# shellcheck source=scripts/slurm.sh
source "$(dirname "${BASH_SOURCE[0]}")/slurm.sh"

action=${1:-}
folder=$(realpath -m "${2:-${TMPDIR:-/tmp}/mu2mpi-hosts}")
number=${3:-2}
export SLURM_CONF=$folder/slurm.conf

readonly BRIDGE=mu2mpi NETWORK=10.78.0

# add_host NUMBER: a process that only waits keeps its namespaces, and is no process of the host to others.
add_host() {
    local name=h$1 keeper
    mkdir -p "$folder/scratch-of/$name"
    # shellcheck disable=SC2016
    setsid unshare --net --uts --ipc --mount bash -ec '
        hostname "$1"
        mount --bind "$2/hosts" /etc/hosts
        mount -t tmpfs tmpfs /dev/shm
        mount --bind "$2/scratch-of/$1" "$2/scratch"
        exec -a "$1 of $2" sleep infinity' - "$name" "$folder" </dev/null >/dev/null 2>"$folder/$name.log" &
    keeper=$!
    echo "$keeper" >"$folder/keepers/$name"
    until is_keeper "$name"; do
        sleep 0.02
        if ! kill -0 "$keeper"; then
            cat "$folder/$name.log" >&2
            return 1
        fi
    done
    ip link add "$BRIDGE$1" type veth peer name eth0 netns "$keeper"
    ip link set "$BRIDGE$1" master "$BRIDGE" up
    # shellcheck disable=SC2016
    nsenter -t "$keeper" --net bash -ec '
        ip addr add "$1/24" dev eth0
        ip link set eth0 up
        ip link set lo up' - "$NETWORK.$1"
}

# is_keeper HOST: after a crash, another program may have the number.
is_keeper() {
    grep -qz "^$1 of $folder\$" "/proc/$(cat "$folder/keepers/$1")/cmdline" 2>/dev/null
}

write_helpers() {
    local enter="here=\$PWD keeper=\$(cat '$folder/keepers/'\$1); shift
exec nsenter -t \$keeper --net --uts --ipc --mount"
    cat >"$folder/on" <<END
#!/usr/bin/env bash
$enter sh -c 'cd "\$0" && exec "\$@"' "\$here" "\$@"
END
    cat >"$folder/ssh" <<END
#!/usr/bin/env bash
while [[ \$1 == -* ]]; do shift; done
$enter env -i HOME="\$HOME" USER="\$USER" PATH=/usr/local/bin:/usr/bin:/bin sh -c 'cd && eval "\$0"' "\$*"
END
    cat >"$folder/pids" <<END
#!/usr/bin/env bash
keeper=\$(cat "$folder/keepers/\$1")
network=\$(readlink /proc/\$keeper/ns/net | tr '[]' '??')
find /proc/[0-9]*/ns/net -maxdepth 0 -lname "\$network" 2>/dev/null | cut -d / -f 3 | grep -vx "\$keeper"
END
    cat >"$folder/lose" <<END
#!/usr/bin/env bash
while pids=\$("$folder/pids" "\$1"); do
    kill -KILL \$pids 2>/dev/null
done
END
    cat >"$folder/slurmd" <<END
#!/usr/bin/env bash
SLURM_CONF="$SLURM_CONF" exec "$folder/on" "\$1" slurmd -N "\$1"
END
    chmod +x "$folder"/{on,ssh,pids,lose,slurmd}
}

start_slurm() {
    local k
    {
        slurm_settings "$folder" "$(hostname)($NETWORK.254)" 18917
        echo "SlurmdTimeout=10"
        echo "NodeName=h[1-$number] NodeAddr=$NETWORK.[1-$number] CPUs=8 RealMemory=100000 State=UNKNOWN"
    } >"$SLURM_CONF"
    start_controller "$folder"
    for k in $(seq "$number"); do "$folder/slurmd" "h$k"; done
    wait_for_nodes "$folder" "$number"
}

start() {
    stop
    if ip link show "$BRIDGE" >/dev/null 2>&1; then
        echo "there are hosts already: scripts/hosts.sh stop $(cat "/sys/class/net/$BRIDGE/ifalias")" >&2
        exit 1
    fi
    trap stop EXIT
    local k
    mkdir -p "$folder"/{keepers,scratch}
    ip link add "$BRIDGE" type bridge
    ip link set "$BRIDGE" alias "$folder" up
    ip addr add "$NETWORK.254/24" dev "$BRIDGE"
    {
        cat /etc/hosts
        echo "$NETWORK.254 $(hostname)"
        for k in $(seq "$number"); do echo "$NETWORK.$k h$k"; done
    } >"$folder/hosts"
    write_helpers
    for k in $(seq "$number"); do add_host "$k"; done
    if [ -n "${SLURM:-}" ]; then start_slurm; fi
    trap - EXIT
}

stop() {
    [ -d "$folder/keepers" ] || return 0
    local file name
    if [ -f "$SLURM_CONF" ]; then
        end_jobs
        end_daemons "$folder"
    fi
    for file in "$folder"/keepers/*; do
        name=${file##*/}
        if [ -f "$file" ] && is_keeper "$name"; then
            "$folder/lose" "$name" || true
            kill -KILL "$(cat "$file")"
        fi
        ip link del "$BRIDGE${name#h}" 2>/dev/null || true
    done
    if [ "$(cat "/sys/class/net/$BRIDGE/ifalias" 2>/dev/null)" = "$folder" ]; then ip link del "$BRIDGE"; fi
    rm -rf "$folder"
}

case $action in
    start | stop) "$action" ;;
    *) echo "usage: scripts/hosts.sh start|stop [FOLDER] [N]" >&2; exit 2 ;;
esac
