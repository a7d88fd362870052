"""DP-SGD: each sample of all machines is in each round with the same probability."""

import math
from typing import TYPE_CHECKING, Any

from mu2mpi.errors import InputError
from mu2mpi.federation.estimators import GRADIENT, ITERATE
from mu2mpi.federation.schedule import Sizes, Task
from mu2mpi.methods.base import Method, Options, batch_field, check_batch
from mu2mpi.registry import register

if TYPE_CHECKING:
    from mu2mpi.config.experiment import Experiment

PASSES = 20
"""How often each sample is used, on average."""

SHARE, FEWEST = 100, 256
"""A batch is expected to have a hundredth of all samples, but at least so many: noise is shared by a batch,
and beyond some hundred samples larger batches are worth little more than they cost."""

MOST_ROUNDS, MOST_PASSES = 10**6, 10**4
"""With noise: to account for more would take gigabytes."""


class DpSgdOptions(Options):
    """How many samples are expected."""

    batch: int | None = batch_field(
        "samples that are expected in a round of all machines [default: a hundredth of all, but at least 256]"
    )


@register
class DpSgd(Method):
    """Abadi et al., "Deep learning with differential privacy", 2016."""

    name, title = "dp-sgd", "DP-SGD"
    summary = "gradients of batches that are drawn at random, with a trusted server"
    options = DpSgdOptions
    estimator, query = GRADIENT, ITERATE
    mechanism = "poisson"

    def check(self, asked: "Experiment", options: Any) -> None:
        """Refuse an untrusted server."""
        if asked.server != "trusted":
            raise ValueError(
                "method = dp-sgd needs server = trusted: its noise is drawn once for the sum over "
                "all machines; give --server trusted"
            )

    def worst_case(self, machines: int, rounds: int, options: Any) -> tuple[int, dict[str, Any]]:
        """Return a sample each, of which a third is drawn: which others are hides one as noise does."""
        return 1, {} if options.batch else {"batch": max(1, round(machines / 3))}

    def sizes(self, task: Task, rounds: int | None) -> Sizes:
        """Return 20 passes, with a hundredth of all samples in each batch."""
        from mu2mpi.federation.sampling import Poisson

        everything = task.machines * task.samples
        batch = task.options.batch or min(everything, max(FEWEST, everything // SHARE))
        check_batch(batch, everything, "all machines")
        rounds = rounds or math.ceil(PASSES * everything / batch)
        most = min(MOST_ROUNDS, MOST_PASSES * everything // batch)
        if rounds > most and math.isfinite(task.budget.epsilon):
            raise InputError(
                f"{rounds} rounds are too many: with batch = {batch}, the privacy of dp-sgd is accounted for "
                f"in no more than {most}; give at most --rounds {most}"
            )
        return Sizes(rounds, Poisson(task.samples, batch / everything), {"batch": batch})
