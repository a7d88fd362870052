"""Programs with MPI of their own that run experiments on a part of their ranks."""

import numpy as np
import pytest
from helpers.launch import mpirun
from helpers.slow import slow

import mu2mpi
from mu2mpi.results.reader import read_result

pytestmark = pytest.mark.mpi

TASKS = """
import sys
from pathlib import Path
import mu2mpi
from mpi4py import MPI
from mpi4py.futures import MPICommExecutor, MPIPoolExecutor

folder = Path(__file__).parent

def experiment(number):
    servers = ["untrusted", "trusted"]
    return {"machines": 2 + number, "server": servers[number % 2], "rounds": 20, "seed": 1 + number}

def task(number):
    hook = sys.excepthook
    result = mu2mpi.run(experiment(number), output=folder / f"{number}.h5", comm=MPI.COMM_SELF)
    runs = mu2mpi.sweep({**experiment(number), "seed": [7, 8]}, output=folder / f"sweep-{number}",
                        progress=False, comm=MPI.COMM_SELF)
    assert sys.excepthook is hook
    return MPI.COMM_WORLD.rank, result.x.tobytes(), len(runs)

def refused(number):
    return mu2mpi.run({"machines": -number}, comm=MPI.COMM_SELF)

def submit_all(executor):
    done = list(executor.map(task, range(6)))
    assert isinstance(executor.submit(refused, 1).exception(), mu2mpi.InputError)
    assert [runs for _, _, runs in done] == [2] * 6
    for number, (_, found, _) in enumerate(done):
        assert found == mu2mpi.run(experiment(number), comm=MPI.COMM_SELF).x.tobytes()
    print("workers:", sorted({rank for rank, _, _ in done}), flush=True)
"""
POOLS = {
    "-m mpi4py.futures": "with MPIPoolExecutor() as executor:\n        submit_all(executor)",
    "": "with MPICommExecutor(MPI.COMM_WORLD, root=0) as executor:\n"
    "        if executor is not None:\n            submit_all(executor)",
}


@pytest.mark.parametrize("module", POOLS)
def test_tasks_of_mpi4py_futures_run_experiments(module, python, tmp_path):
    """A master and two workers, of which each does runs of one rank."""
    script = tmp_path / "tasks.py"
    script.write_text(f"{TASKS}\nif __name__ == '__main__':\n    {POOLS[module]}\n")
    job = mpirun(3, *module.split(), script, python=python, timeout=300)
    assert job.returncode == 0, job.stderr
    assert "workers: [1, 2]" in job.stdout
    for number in range(6):
        found = read_result(tmp_path / f"{number}.h5")
        assert found.environment["ranks"] == 1
        np.testing.assert_array_equal(found.x, mu2mpi.run(found.experiment).x)


HALVES = """
import os
import signal
import sys
from pathlib import Path
import mu2mpi
from mpi4py import MPI

world, folder = MPI.COMM_WORLD, Path(sys.argv[1])
number = world.rank % 2
half = world.Split(number)

class Stop(mu2mpi.Callback):
    def on_round(self, t):
        if t == 9 and number == 1:
            os.kill(os.getpid(), signal.SIGUSR1)

experiment = {"machines": 4 + number, "rounds": 40, "seed": 1 + number}
stopped = None
for callbacks in [Stop()], []:
    output = folder / f"{number}.h5"
    try:
        mu2mpi.run(experiment, output=output, callbacks=callbacks, overwrite=not number, comm=half)
    except mu2mpi.Interrupted as stop:
        stopped = stop.rounds_done
    assert all(world.allgather(sys.excepthook is sys.__excepthook__))
assert signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL
assert (stopped is not None) == (number == 1)
os.write(1, f"rank {world.rank} was stopped after {stopped}\\n".encode())
if number == 0:
    mu2mpi.run({"machines": -1}, comm=half)
"""


@pytest.mark.parametrize(("ranks", "is_cold"), [(4, False), *slow((2, True))])
def test_halves_of_a_program_are_stopped_and_fail_alone(ranks, is_cold, tmp_path):
    """The other half goes on, and nothing is aborted; also where both compile the same kernels at once."""
    script, variables = tmp_path / "halves.py", {}
    script.write_text(HALVES)
    if is_cold:
        variables["NUMBA_CACHE_DIR"] = str(tmp_path / "kernels")
    job = mpirun(ranks, script, tmp_path, timeout=300, **variables)
    stopped = [line for line in job.stdout.splitlines() if "was stopped after" in line]
    assert len(stopped) == ranks, job.stderr
    assert sum(line.endswith(" None") for line in stopped) == ranks // 2
    # Python's own report, not that of mu2mpi before it aborts all ranks
    assert job.stderr.count("mu2mpi.core.errors.CollectiveInputError") == ranks // 2
    assert "failed:" not in job.stderr
    for number in range(2):
        found = read_result(tmp_path / f"{number}.h5")
        assert found.environment["ranks"] == ranks // 2
        np.testing.assert_array_equal(found.x, mu2mpi.run(found.experiment).x)
