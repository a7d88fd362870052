#!/usr/bin/env bash
# From nothing to a table: make .venv, install mu2mpi and an MPI library, run a small version of the
# paper's tables on handwritten digits on two ranks, and print it.
#
#   scripts/quickstart.sh             with MPICH
#   scripts/quickstart.sh openmpi     with Open MPI
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/common.sh

mpi=${1:-mpich}
folder=${folders[$mpi]:?usage: scripts/quickstart.sh [mpich|openmpi]}
make_environment "$folder" "$mpi,digits,analysis"

say "running jobs/quickstart.toml on two ranks"
"$folder/bin/mpirun" -n 2 "$folder/bin/mu2mpi" sweep jobs/quickstart.toml --output runs/quickstart

say "the table"
"$folder/bin/mu2mpi" table runs/quickstart

cat <<END

The result files are in runs/quickstart. What to run next:

  source $folder/bin/activate
  mu2mpi plot runs/quickstart -o figure.png                         # a figure of the table
  mu2mpi report runs/quickstart                                     # all of it on one page, report.html
  mu2mpi show runs/quickstart/trusted_rho-4_machines-10_seed-1.h5   # one run in words
  mu2mpi data mnist                                                 # download MNIST once
  mpirun -n 2 mu2mpi sweep jobs/tables.toml --output runs/tables    # the paper's two tables
  mu2mpi table runs/tables
END
if [ "$mpi" = openmpi ] && [ "$(id -u)" = 0 ]; then
    echo "As root, Open MPI wants: export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"
fi
