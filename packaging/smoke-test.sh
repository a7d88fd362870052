#!/usr/bin/env bash
# The smoke test of every package: what is installed runs on two ranks, and its result is read back.
#
#   packaging/smoke-test.sh [MPIRUN...]     MPIRUN starts two ranks [default: mpirun -n 2]
#
# It needs mu2mpi, python3 and the MPI library on PATH, no network, and half a minute to compile kernels.
set -euo pipefail

launcher=("$@")
[ ${#launcher[@]} = 0 ] && launcher=(mpirun -n 2)
# As root, and on fewer cores than ranks. MPICH ignores these.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
export OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=1

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# Kernels of an earlier installation must not help.
export NUMBA_CACHE_DIR=$folder/kernels
cd "$folder"

mu2mpi --version
"${launcher[@]}" mu2mpi run --data synthetic --server untrusted --machines 2 --rounds 20 --rho 8 --seed 1 \
    --output smoke.h5
mu2mpi show smoke.h5 >shown.txt
grep --quiet '^  machines  *2$' shown.txt
python3 - <<'END'
import h5py
import numpy

import mu2mpi

with h5py.File("smoke.h5") as file:
    ranks = int(file.attrs["ranks"])
result = mu2mpi.read_result("smoke.h5")
assert ranks == 2, f"the run had {ranks} ranks: mpirun and the MPI library do not belong together"
assert numpy.isfinite(result.x).all()
assert result.privacy.mechanism.rho == 8, result.privacy
assert result.history.test_accuracy[-1] > 0.4, "no better than guessing one of three classes"
print(f"the smoke test of mu2mpi {mu2mpi.__version__} in {mu2mpi.__file__} passed")
END
