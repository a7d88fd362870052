#!/usr/bin/env bash
# The tables of docs/background/benchmark.md: features of images, runs of every method on pixels and on features, and
# what came out, with core-hours. What is finished is not run again. Needs mu2mpi[accounting,features], and mpirun.
#
#   scripts/field.sh FOLDER [RANKS [DATA ...]]    two ranks and mnist by default; also fashion-mnist and cifar10
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

folder=${1:?usage: scripts/field.sh FOLDER [RANKS [DATA ...]]} ranks=${2:-2}
data=("${@:3}")
[ ${#data[@]} -gt 0 ] || data=(mnist)

# run NAME OPTION...: the sweep of one data set, into a folder of that name, and its tables.
run() {
    say "$1"
    mpirun -n "$ranks" mu2mpi sweep jobs/benchmark.toml --methods all --output "$folder/$1" "${@:2}"
    mu2mpi table "$folder/$1" --rows server,machines,neighbours,method --columns epsilon \
        --values test_accuracy,core_hours
}

for name in "${data[@]}"; do
    run "$name-pixels" --data "$name"
    [ -f "$folder/$name-test.h5" ] || python scripts/features.py "$folder" --data "$name"
    run "$name-features" --data "$folder/$name.h5" --test "$folder/$name-test.h5"
done
