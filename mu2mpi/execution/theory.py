"""What theory says of a run, next to what the run did: the theorem's bound and the smallest loss over K."""

import math
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.parallel import Communicator
from mu2mpi.data.source import Source
from mu2mpi.execution.evaluation import Evaluator, ExactEvaluator, affordable_passes
from mu2mpi.federation.constants import RunConstants
from mu2mpi.losses.base import Problem
from mu2mpi.losses.model.ball import Minimum, minimise_over_ball
from mu2mpi.losses.model.linear import inner, norm
from mu2mpi.losses.model.scaling import Scaling
from mu2mpi.results.schema import Theory

MOST_PARAMETERS = 2_000_000

_found: WeakKeyDictionary[Source, dict[tuple[Problem, Scaling, float, float], Minimum]] = WeakKeyDictionary()


def assess(
    constants: RunConstants,
    source: Source,
    evaluator: Evaluator | ExactEvaluator,
    x: NDArray[np.float64],
    loss: float,
    communicator: Communicator,
) -> Theory:
    """Compare a finished run, of which all ranks hold the output x and its loss, with theory.

    The smallest loss over K, with the regulariser, depends on data, scale and K alone, so it is found once
    for all runs of a sweep, in at most `affordable_passes`. A model of more than `MOST_PARAMETERS` has only
    the bound. All ranks must call this, and each gets the same.
    """
    bound = constants.loss_bound
    if constants.task.d > MOST_PARAMETERS:
        return Theory(bound, *[math.nan] * 5)
    most_passes = affordable_passes(constants, source.test_samples)
    found = _found.setdefault(source, {})
    problem = constants.task.problem, constants.task.scaling, constants.task.radius, constants.task.l2

    def penalty(x: NDArray[np.float64]) -> float:
        return constants.task.l2 * inner(x, x) / 2

    def objective(x: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        loss, gradient = evaluator.gradient(x)
        return loss + penalty(x), gradient + constants.task.l2 * x if constants.task.l2 else gradient

    # In a sweep, ranks that worked on other runs may know other minima: all go by what rank 0 knows.
    minimum: Minimum | None = communicator.share(found.get(problem))
    # An earlier search counts only if one for this run would have found the same.
    is_same = minimum is not None and (
        minimum.passes == most_passes or (minimum.gap <= evaluator.tolerance and minimum.passes < most_passes)
    )
    if minimum is None or not is_same:
        start = np.zeros((constants.task.rows, constants.task.features))
        minimum = minimise_over_ball(
            objective,
            start,
            constants.task.radius,
            constants.task.smoothness,
            most_passes,
            evaluator.tolerance,
        )
    found[problem] = minimum
    _, gradient = objective(x)
    return Theory(
        excess_loss_bound=bound,
        minimum_loss=minimum.value,
        minimum_gap=minimum.gap,
        excess_loss=loss + penalty(x) - minimum.value,
        first_slope=minimum.first_slope,
        last_slope=norm(gradient),
    )
