"""From what the user said to what the method is to do."""

from mu2mpi.config.experiment import Experiment
from mu2mpi.federation.schedule import Task
from mu2mpi.privacy.guarantee import Budget
from mu2mpi.problem.scaling import largest_square
from mu2mpi.registry import find


def task_of(
    experiment: Experiment, machines: int, classes: int, features: int, samples: int, most: int | None = None
) -> Task:
    """Return what the method of an experiment is to do, once a preset, if any, is filled in.

    Each of the M machines has as many samples, of K classes and F features (with the bias), and can use at
    `most` so many of them if there is a limit.
    """
    problem, unit_norm = find("problems", experiment.loss), experiment.normalize == "unit"
    constants = problem.constants(largest_square(features, unit_norm), experiment.diameter / 2, classes)
    return Task(
        problem=problem,
        server=experiment.server,
        machines=machines,
        samples=samples,
        most=most,
        classes=classes,
        features=features,
        diameter=experiment.diameter,
        unit_norm=unit_norm,
        budget=Budget(experiment.rho, experiment.target_epsilon, experiment.delta),
        mechanism=experiment.chosen_mechanism,
        G=constants.G,
        L=constants.L,
        clip_norm=experiment.clip_norm,
        eta_scale=experiment.eta_scale,
        aggregate_noise=experiment.noise == "aggregate",
        options=experiment.options,
    )
