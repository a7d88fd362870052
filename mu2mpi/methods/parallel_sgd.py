"""Noisy parallel SGD: plain gradients at the iterates, of which the mean is put out."""

import math
from typing import TYPE_CHECKING, Any

from mu2mpi.federation.estimators import GRADIENT, ITERATE
from mu2mpi.federation.servers.base import shared_by
from mu2mpi.methods.base import Method, PresetOptions
from mu2mpi.problem.practical import STEP, Choices, Facts, gathered, one_pass, rounds_of_one_pass
from mu2mpi.registry import register

if TYPE_CHECKING:
    from mu2mpi.config.experiment import Experiment


@register
class ParallelSgd(Method):
    """Dekel et al., "Optimal distributed online prediction using mini-batches", 2012."""

    name, title, summary = "parallel-sgd", "noisy parallel SGD", "gradients at iterates"
    options, presets = PresetOptions, ("preset",)
    estimator, query = GRADIENT, ITERATE
    is_switched = takes_absence = True
    takes_mean = True

    def preset(self, asked: "Experiment", options: Any, facts: Facts | None) -> dict[str, Any]:
        """Return the settings of the practical mode: beyond the theorems, from public facts alone.

        The noise of the last iterate is eta sigma sqrt(T), and that of the mean of all a third of its square.
        """

        def eta_scale(chosen: Choices, facts: Facts) -> float:
            spread = math.sqrt(rounds_of_one_pass(asked, facts) / 3)
            eta = gathered(asked, chosen, shared_by(asked)) / spread
            return chosen.L * min(eta, STEP / chosen.nearby)

        return {} if options.preset is None else one_pass(asked, facts, eta_scale)
