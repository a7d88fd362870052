"""SLURM commands, replaced by stand-ins with the same output."""

import pytest

from mu2mpi.cluster.slurm import (
    DEFAULT_MAX_ARRAY_TASKS,
    job_id,
    max_array_tasks,
    requeue_job,
    termination_cause,
)


def test_max_array_tasks_is_read_from_the_configuration(command):
    assert max_array_tasks() == DEFAULT_MAX_ARRAY_TASKS
    command("scontrol", "MaxArraySize            = 77\nMaxDBDMsgs = 20\n")
    assert max_array_tasks() == 77


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        ("JobId=7 Reason=TimeLimit Restarts=1 PreemptTime=None", "scheduler"),
        ("JobId=7 Reason=None Restarts=1 PreemptTime=2030-01-01T00:00:00", "scheduler"),
        ("JobId=7 Reason=None Restarts=1 PreemptTime=None", "user"),
        ("JobId=7 Reason=None Restarts=2 PreemptTime=None", "requeue"),
    ],
)
def test_termination_cause_is_read_from_the_state_of_the_job(command, monkeypatch, state, cause):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    command("scontrol", state)
    assert termination_cause() == cause
    assert [requeue_job(limit) for limit in (1, 2)] == [False, True]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, None),
        ({"JOB_ID": "8"}, "8"),
        ({"JOB_ID": "8", "ARRAY_JOB_ID": "5", "ARRAY_TASK_ID": "0"}, "5_0"),
        ({"JOB_ID": "8", "ARRAY_TASK_ID": "0"}, "8"),
        ({"ARRAY_TASK_ID": "0"}, None),
    ],
)
def test_a_task_without_its_array_is_a_job(variables, expected, monkeypatch):
    """Such as where a script sets the variable by itself, to choose a combination of a sweep."""
    for name in ("JOB_ID", "ARRAY_JOB_ID", "ARRAY_TASK_ID"):
        monkeypatch.delenv(f"SLURM_{name}", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert job_id() == expected
