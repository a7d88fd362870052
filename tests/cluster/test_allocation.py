"""The number of ranks that a job is for, by what its scheduler says."""

import pytest

from mu2mpi.cluster.allocation import hosts_of_job, ranks_of_job
from mu2mpi.errors import InputError

JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "FLUX_URI")


@pytest.fixture
def job(monkeypatch, tmp_path):
    """Set what a scheduler sets; a FILE has these lines, and + stands for a space."""
    for name in (*JOBS, "MU2MPI_RANKS", "SLURM_NTASKS", "SLURM_TASKS_PER_NODE", "PBS_NP", "NCPUS"):
        monkeypatch.delenv(name, raising=False)

    def set_all(variables: str) -> str:
        for number, word in enumerate(variables.split()):
            name, value = word.split("=")
            if name.endswith("FILE"):
                path = tmp_path / str(number)
                path.write_text(value.replace(",", "\n") + "\n")
                value = str(path)
            monkeypatch.setenv(name, value.replace("+", " "))
        return str(tmp_path / "1")

    return set_all


@pytest.mark.parametrize(
    ("variables", "ranks"),
    [
        ("", 1),
        ("MU2MPI_RANKS=3", 3),
        ("SLURM_JOB_ID=1 SLURM_NTASKS=6 SLURM_TASKS_PER_NODE=4,2", 6),
        ("SLURM_JOB_ID=1 SLURM_NTASKS=6 MU2MPI_RANKS=2", 2),
        ("SLURM_JOB_ID=1 SLURM_TASKS_PER_NODE=1", 1),
        ("SLURM_NTASKS=6", 1),
        ("PBS_JOBID=1.a PBS_NODEFILE=a,a,b,b", 4),
        ("PBS_JOBID=1.a PBS_NODEFILE=a NCPUS=1", 1),
        ("PBS_JOBID=1.a PBS_NODEFILE=a NCPUS=8 PBS_NP=8", 8),
        ("LSB_JOBID=1 LSB_DJOB_NUMPROC=5 LSB_DJOB_HOSTFILE=a,a,a,b,b", 5),
        ("FLUX_JOB_ID=f1 FLUX_JOB_SIZE=7", 7),
    ],
)
def test_the_ranks_of_a_job(job, variables, ranks):
    job(variables)
    assert ranks_of_job() == ranks


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        (
            "SLURM_JOB_ID=1 SLURM_TASKS_PER_NODE=1(x2)",
            "this SLURM job has room .* --ntasks=N, set MU2MPI_RANKS",
        ),
        ("PBS_JOBID=1.a PBS_NODEFILE=a NCPUS=8", "this PBS job has room for several ranks .* mpiprocs=N"),
        ("LSB_JOBID=1 LSB_HOSTS=b+b", "this LSF job has room for several ranks .* -n N"),
        ("FLUX_URI=local:///x", "this Flux job has room for several ranks"),
        ("MU2MPI_RANKS=0", "MU2MPI_RANKS is '0', and no number of at least 1"),
        ("SLURM_JOB_ID=1 SLURM_NTASKS=abc", "SLURM_NTASKS is 'abc', and no number of at least 1"),
    ],
)
def test_one_rank_is_not_started_by_mistake(job, variables, words):
    job(variables)
    with pytest.raises(InputError, match=words):
        ranks_of_job()


def test_the_file_of_hosts_is_of_use_only_if_they_are_several(job):
    place = job("PBS_JOBID=1.a PBS_NODEFILE=a,a,b,b")
    assert hosts_of_job(4) == (place, 2)
    assert hosts_of_job(2) == (place, 1)
    job("PBS_JOBID=1.a PBS_NODEFILE=a,a")
    assert hosts_of_job(2) == (None, 1)
