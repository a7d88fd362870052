"""From what the user said to what the method is to do."""

from mu2mpi.config.experiment import Experiment
from mu2mpi.errors import InputError
from mu2mpi.federation.cohort import Cohort
from mu2mpi.federation.schedule import Task
from mu2mpi.privacy.guarantee import Budget
from mu2mpi.problem.base import Problem
from mu2mpi.problem.scaling import Scaling
from mu2mpi.registry import find


def task_of(
    experiment: Experiment,
    machines: int,
    classes: int,
    features: int,
    samples: int,
    most: int | None = None,
    square: float | None = None,
    cohort: Cohort | None = None,
) -> Task:
    """Return what the method of an experiment is to do, once a preset, if any, is filled in.

    `features` count the bias, `most` limits the samples of a machine, and `square` the squared norm of
    features without the bias, by default F - 1.
    """
    problem: Problem = find("problems", experiment.loss)
    parts = experiment.trust.parts(experiment.server_options, machines)
    if not (isinstance(parts, int) and 1 <= parts <= machines):
        raise InputError(f"server = {experiment.server} has {parts!r} parts of noise of {machines} machines")
    scaling = Scaling(experiment.normalize == "unit", experiment.norm_bound)
    longest = scaling.largest_square(features - 1 if square is None else square)
    constants = problem.constants(longest, experiment.diameter / 2, classes)
    return Task(
        problem=problem,
        server=experiment.server,
        server_options=experiment.server_options,
        parts=parts,
        machines=machines,
        samples=samples,
        most=most,
        classes=classes,
        rows=problem.rows(classes),
        features=features,
        diameter=experiment.diameter,
        scaling=scaling,
        budget=Budget(experiment.rho, experiment.target_epsilon, experiment.delta),
        mechanism=experiment.chosen_mechanism,
        square=longest,
        G=constants.G,
        L=constants.L,
        l2=experiment.l2 or 0.0,
        clip_norm=experiment.clip_norm,
        eta_scale=experiment.eta_scale,
        aggregate_noise=experiment.noise == "aggregate",
        options=experiment.options,
        cohort=cohort,
    )
