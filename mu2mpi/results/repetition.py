"""What a run was to do and how it did it, found again from its result alone."""

from mu2mpi.config.machines import cohort_of
from mu2mpi.config.task import task_of
from mu2mpi.federation.schedule import Schedule, Task
from mu2mpi.results.schema import Result


def task_of_result(result: Result) -> Task:
    """Return what the method was to do; InputError if there is no such task."""
    experiment, accounts = result.experiment, result.accounts
    samples, cohort = result.privacy.mechanism.samples, None
    if accounts is not None:
        samples = max(1, int(accounts.samples.min()))
        cohort = cohort_of(experiment, accounts.samples, accounts.owners, accounts)
    square = None if result.facts is None else result.facts.square
    sizes = experiment.machines or 1, result.classes, result.x.shape[1], samples
    return task_of(experiment, *sizes, square=square, cohort=cohort)


def schedule_of_result(result: Result) -> Schedule:
    """Return the constants of the run, with its noise and steps; InputError if there is no such run."""
    task, method = task_of_result(result), result.experiment.chosen_method
    return method.schedule(task, method.sizes(task, result.experiment.rounds))
