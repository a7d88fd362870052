"""Commands of SLURM, with stand-ins that answer as it does."""

import pytest

from mu2mpi.cluster.slurm import MOST_TASKS, most_tasks, requeue, submit, task_states, who_ends
from mu2mpi.core.errors import InputError


def test_the_most_tasks_are_asked_of_slurm(command):
    assert most_tasks() == MOST_TASKS
    command("scontrol", "MaxArraySize            = 77\nMaxDBDMsgs = 20\n")
    assert most_tasks() == 77


@pytest.mark.parametrize(
    ("facts", "who"),
    [
        ("JobId=7 Reason=TimeLimit Restarts=1 PreemptTime=None", "the scheduler"),
        ("JobId=7 Reason=None Restarts=1 PreemptTime=2030-01-01T00:00:00", "the scheduler"),
        ("JobId=7 Reason=None Restarts=1 PreemptTime=None", "a person"),
        ("JobId=7 Reason=None Restarts=2 PreemptTime=None", "a requeue"),
    ],
)
def test_who_ends_a_job_is_read_from_its_state(command, monkeypatch, facts, who):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    command("scontrol", facts)
    assert who_ends() == who
    assert [requeue(limit) for limit in (1, 2)] == [False, True]


def test_jobs_are_submitted_and_found_in_the_queue(command):
    with pytest.raises(InputError):
        task_states()
    script = command("sbatch", "Submitted batch job 4711 on cluster a\n")
    assert (submit("#!/bin/sh\n"), script.read_text()) == ("4711", "#!/bin/sh\n")
    command("squeue", "4711 3 RUNNING\n4712 N/A PENDING\n")
    assert task_states() == {("4711", 3): "RUNNING", ("4712", 0): "PENDING"}
