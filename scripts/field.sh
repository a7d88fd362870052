#!/usr/bin/env bash
# The tables of docs/background/benchmark.md: features of MNIST, all runs on pixels and on features, and what came out.
# What is finished is not run again. Needs mu2mpi[accounting,features], and mpirun.
#
#   scripts/field.sh FOLDER [RANKS]      two ranks by default; MU2MPI_DATA_DIR names the folder of mnist/
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

folder=${1:?usage: scripts/field.sh FOLDER [RANKS]} ranks=${2:-2}
[ -f "$folder/mnist-test.h5" ] || python scripts/features.py "$folder"

say "pixels"
mpirun -n "$ranks" mu2mpi sweep jobs/benchmark.toml --output "$folder/pixels"
say "features"
mpirun -n "$ranks" mu2mpi sweep jobs/benchmark.toml --output "$folder/features" \
    --data "$folder/mnist.h5" --test "$folder/mnist-test.h5"

for runs in pixels features; do
    mu2mpi table "$folder/$runs" --rows server,machines,method,noise_correlation --columns epsilon \
        --values test_accuracy
done
