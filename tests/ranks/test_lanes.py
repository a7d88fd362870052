"""Which runs of a sweep are done side by side."""

import pytest
from helpers.interrupted_runs import signalled
from helpers.launch import mpirun
from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.cli import main
from mu2mpi.execution.sweep_runner import schedule_runs
from mu2mpi.results.reader import read_result
from mu2mpi.results.records import CHECKPOINT_SUFFIX, PREVIOUS_CHECKPOINT_SUFFIX

sweeps = st.lists(st.tuples(st.integers(1, 20), st.floats(0.1, 100)), max_size=30)


@given(sweeps, st.integers(1, 12))
def test_every_run_is_done_once_on_ranks_that_are_there(runs, ranks):
    machines, costs = [m for m, _ in runs], [c for _, c in runs]
    arranged = schedule_runs(machines, costs, ranks)
    assert sorted(run for wave in arranged for lane in wave.queues for run in lane) == list(range(len(runs)))
    for wave in arranged:
        assert wave.group_size * len(wave.queues) <= ranks
        assert sorted(wave.runs()) == sorted(run for lane in wave.queues for run in lane)
        assert [wave.group_of(rank) for rank in range(ranks)].count(0) == wave.group_size
        if len(wave.queues) > 1:
            assert all(machines[run] >= wave.group_size for run in wave.runs())
            # The lane that is busy longest would be free first without its last run.
            busy = [sum(costs[run] for run in lane) for lane in wave.queues]
            longest = wave.queues[busy.index(max(busy))]
            assert max(busy) - costs[longest[-1]] <= min(busy) + 1e-9
    firsts = [max(costs[run] for run in wave.runs()) for wave in arranged]
    assert firsts == sorted(firsts, reverse=True)


@pytest.mark.parametrize(
    ("machines", "costs", "ranks", "widths"),
    [
        ([100] * 8, [1.0] * 8, 4, [1] * 8),
        ([12], [1.4968125941837371], 11, [11]),
        ([100] * 5, [1.0] * 5, 4, [1, 1, 1, 1, 4]),
        ([100] * 6, [1.0] * 6, 4, [1, 1, 1, 1, 2, 2]),
        ([100, 100, 100], [9.0, 1.0, 1.0], 4, [4, 2, 2]),
        ([2, 100, 100], [9.0, 1.0, 1.0], 8, [8, 4, 4]),
        ([1, 1], [2.0, 1.0], 8, [1, 1]),
        ([100], [1.0], 8, [8]),
    ],
)
def test_how_many_ranks_a_run_gets(machines, costs, ranks, widths):
    found = {run: wave.group_size for wave in schedule_runs(machines, costs, ranks) for run in wave.runs()}
    assert [found[run] for run in range(len(machines))] == widths


CONFIG = 'machines = [2, 3, 4]\nseed = [1, 2, 3]\nserver = ["untrusted", "trusted"]\nrounds = 20\n'


@pytest.mark.mpi
@pytest.mark.slow
def test_side_by_side_or_not_the_results_are_the_same(tmp_path):
    config = tmp_path / "sweep.toml"
    config.write_text(CONFIG)
    assert main(["sweep", str(config), "--output", str(tmp_path / "serial")]) == 0
    job = mpirun(4, "-m", "mu2mpi", "sweep", config, "--output", tmp_path / "lanes")
    assert job.returncode == 0, job.stderr
    assert "[18/18]" in job.stderr
    paths = sorted((tmp_path / "serial").glob("*.h5"))
    assert len(paths) == 18
    ranks = []
    for path in paths:
        here, there = read_result(path), read_result(tmp_path / "lanes" / path.name)
        assert here.x.tobytes() == there.x.tobytes()
        ranks.append(there.environment["ranks"])
    # Sixteen runs make four for each rank; the two shortest share the ranks.
    assert sorted(ranks) == [1] * 16 + [2] * 2


SWEEP_IN_PYTHON = """
import sys
import mu2mpi
from mu2mpi.core.parallel import world

settings = {"machines": [2, 3], "rounds": 5, "seed": [1, 2, 3]}
runs = mu2mpi.sweep(settings, output=sys.argv[1 + world().rank], progress=False)
assert len(runs) == 6
"""


@pytest.mark.mpi
def test_rank_0_says_where_results_lie(tmp_path):
    job = mpirun(2, "-c", SWEEP_IN_PYTHON, tmp_path / "first", tmp_path / "second")
    assert job.returncode == 0, job.stderr
    assert len([*(tmp_path / "first").iterdir()]) == 6
    assert not (tmp_path / "second").exists()


@pytest.mark.mpi
@pytest.mark.slow
def test_a_signal_stops_all_lanes(tmp_path):
    """Each lane leaves a checkpoint, and the same command finishes all."""
    config, folder = tmp_path / "sweep.toml", tmp_path / "runs"
    config.write_text('data = "synthetic"\nsamples = 300\nmachines = [1]\nseed = [1, 2, 3, 4]\n')
    stopped = signalled(3, "SIGUSR1", "all", 50, "sweep", config, "--output", folder)
    assert stopped.returncode == 75, stopped.stderr
    left = sorted(
        path.name for path in folder.iterdir() if not path.name.endswith(PREVIOUS_CHECKPOINT_SUFFIX)
    )
    # Three lanes had begun their first runs.
    assert len(left) == 3, left
    assert all(name.endswith(CHECKPOINT_SUFFIX) for name in left)
    resumed = mpirun(2, "-m", "mu2mpi", "sweep", config, "--output", folder)
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming after round" in resumed.stderr
    assert len(list(folder.iterdir())) == 4


@pytest.mark.slow
@pytest.mark.mpi
def test_an_error_in_one_lane_is_one_of_all_once_the_others_are_through(tmp_path):
    config, folder = tmp_path / "sweep.toml", tmp_path / "runs"
    config.write_text('data = "synthetic"\nsamples = 60\nmachines = [1]\nseed = [1, 2]\n')
    script = (
        "import sys\nfrom mu2mpi.cli import main\nfrom mu2mpi.execution import job\n"
        "from mu2mpi.core.errors import InputError\nwrite = job.RunContext._write_result\n"
        "def failing(self, result, path):\n"
        "    if 'seed-2' in str(path):\n        raise InputError('bad luck')\n"
        "    write(self, result, path)\njob.RunContext._write_result = failing\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    ended = mpirun(2, "-c", script, "sweep", config, "--output", folder)
    assert ended.returncode == 2, ended.stderr
    assert ended.stderr.count("bad luck") == 1
    assert [path.name for path in folder.glob("*.h5")] == ["machines-1_seed-1.h5"]
