#!/usr/bin/env bash
# The whole test suite: serial, and under mpirun on 1, 2 and 3 ranks, with MPICH and with Open MPI.
#
#   scripts/test.sh                        all of it
#   scripts/test.sh mpich                  with one MPI library only (or: openmpi)
#   MU2MPI_DATA_DIR=FOLDER scripts/test.sh with the tests on real MNIST (FOLDER/mnist/)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

case ${1:-all} in
    all) libraries=(mpich openmpi) ;;
    mpich | openmpi) libraries=("$1") ;;
    *) echo "usage: scripts/test.sh [mpich|openmpi]" >&2; exit 2 ;;
esac
[ -n "${MU2MPI_DATA_DIR:-}" ] && MU2MPI_DATA_DIR=$(realpath "$MU2MPI_DATA_DIR") && export MU2MPI_DATA_DIR

declare -A folders=([mpich]=.venv [openmpi]=.venv-openmpi)
for mpi in "${libraries[@]}"; do
    make_environment "${folders[$mpi]}" "$mpi,digits,test"
done
if [ ${#libraries[@]} = 2 ]; then
    export MU2MPI_OTHER_PYTHON=$PWD/${folders[openmpi]}/bin/python
fi

say "serial tests, and tests that start ranks themselves (${libraries[0]})"
"${folders[${libraries[0]}]}/bin/python" -m pytest

for mpi in "${libraries[@]}"; do
    for ranks in 1 2 3; do
        say "tests on $ranks ranks ($mpi)"
        chosen=()
        [ "$ranks" = 1 ] && chosen=(-m "not several_ranks")
        # Ranks that wait for each other for ever are a failure, too.
        timeout 600 "${folders[$mpi]}/bin/mpirun" -n "$ranks" "${folders[$mpi]}/bin/python" \
            tests/mpi/run.py "${chosen[@]}"
    done
done
say "all tests passed"
