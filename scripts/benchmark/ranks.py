"""Measure runs on all ranks of mpirun, and on one rank for comparison; rank 0 prints JSON."""

import json
import sys

import workload
from mpi4py import MPI

from mu2mpi.core.parallel import MpiCommunicator

RUNS = [("untrusted", 2), ("untrusted", 10), ("untrusted", 100), ("trusted", 10), ("trusted", 100)]


def main(repeats: int) -> None:
    """Time every run on one rank and on all ranks, in turns."""
    everyone = MpiCommunicator(MPI.COMM_WORLD)
    measured: dict[str, list[float]] = {}

    def note(name: str, seconds: float) -> None:
        measured.setdefault(name, []).append(seconds)

    with everyone.split(0 if everyone.rank == 0 else None) as alone:
        for repeat in range(repeats + 1):
            for server, machines in RUNS:
                experiment = workload.experiment(server, machines)
                per_round = workload.MACHINE_ROUNDS
                if alone is not None:
                    note(f"{server} {machines} alone", workload.run(experiment, alone).total / per_round)
                everyone.barrier()
                together = workload.run(experiment, everyone)
                note(f"{server} {machines} together", together.total / per_round)
                for phase, seconds in together.phases.items():
                    note(f"{server} {machines} {phase}", seconds / sum(together.phases.values()))
                everyone.barrier()
            for server in ("untrusted", "trusted"):
                seconds = workload.baseline(server, 2, 3000 // workload.SMALLER, MPI.COMM_WORLD)
                note(f"{server} 2 numpy", seconds)
            if repeat == 0:
                measured.clear()
    if everyone.rank == 0:
        json.dump(
            {"ranks": everyone.size, "library": everyone.library_version(), "seconds": measured}, sys.stdout
        )


if __name__ == "__main__":
    main(int(sys.argv[1]))
