#!/usr/bin/env bash
# The tests: every module, and real ranks (1, 2 and 3), in six minutes on two cores.
#
#   scripts/test.sh                        what a change needs, with MPICH
#   scripts/test.sh openmpi                the same with Open MPI
#   scripts/test.sh --all                  all there are, with both MPI libraries; a quarter of an hour
#   scripts/test.sh --all mpich            all, with one MPI library only
#   MU2MPI_DATA_DIR=FOLDER scripts/test.sh with the tests on real MNIST (FOLDER/mnist/)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

all=false libraries=()
for argument; do
    case $argument in
        --all) all=true ;;
        mpich | openmpi) libraries+=("$argument") ;;
        -h | --help) usage; exit ;;
        *) usage >&2; exit 2 ;;
    esac
done
if [ ${#libraries[@]} = 0 ]; then
    libraries=(mpich)
    $all && libraries+=(openmpi)
fi
[ -n "${MU2MPI_DATA_DIR:-}" ] && MU2MPI_DATA_DIR=$(realpath "$MU2MPI_DATA_DIR") && export MU2MPI_DATA_DIR

# Thousands of processes start: each would compile the package's modules again.
unset PYTHONDONTWRITEBYTECODE
make_environments "${libraries[@]}"
if [ ${#libraries[@]} = 2 ]; then
    export MU2MPI_OTHER_PYTHON=$PWD/${folders[${libraries[1]}]}/bin/python
fi

chosen='not slow'
$all && chosen=''

say "tests of one process, and tests that start ranks themselves (${libraries[0]})"
# One process more than cores: tests that submit jobs wait most of the time.
"${folders[${libraries[0]}]}/bin/python" -m pytest -m "$chosen" --numprocesses=$(($(env -u OMP_NUM_THREADS nproc) + 1)) --maxprocesses=4

# run_on RANKS LIBRARY MARKS: ranks that wait for each other for ever are a failure, too.
run_on() { timeout 600 "${folders[$2]}/bin/mpirun" -n "$1" "${folders[$2]}/bin/python" tests/helpers/run_mpi_tests.py -m "$3"; }

say "tests on one rank (${libraries[*]}, side by side)"
logs=$(mktemp -d)
clean_up() { rm -rf "$logs"; }
on_one_rank() {
    local failed=0
    run_on 1 "$1" "${chosen:+$chosen and }not several_ranks" >"$logs/$1" 2>&1 || failed=1
    cat "$logs/$1"
    return $failed
}
side_by_side on_one_rank "${libraries[@]}"
for mpi in "${libraries[@]}"; do
    for ranks in 2 3; do
        say "tests on $ranks ranks ($mpi)"
        run_on "$ranks" "$mpi" "$chosen"
    done
done
say "all of these tests passed"
$all || echo "Left out: tests marked slow, and the other MPI library. scripts/test.sh --all runs them."
[ -n "${MU2MPI_DATA_DIR:-}" ] ||
    echo "Left out: tests on real MNIST. MU2MPI_DATA_DIR=FOLDER scripts/test.sh runs them, with FOLDER/mnist/."
