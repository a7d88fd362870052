"""AdaSSP: one round of noised second moments, and the model that solves for them."""

import math
from typing import Any

from mu2mpi.core.arrays import FloatArray, IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.options import MAX_REAL_OPTION
from mu2mpi.core.registry import register
from mu2mpi.federation.batching import Batching, DisjointBatches
from mu2mpi.federation.estimators import LAST_ITERATE, SECOND_MOMENTS
from mu2mpi.federation.problem import Problem
from mu2mpi.methods.method import Iterates, Method, PresetOptions
from mu2mpi.methods.presets.practical import PresetConstants, round_to_four_digits
from mu2mpi.privacy.mechanisms.mechanism import Mechanism

MAX_ROUNDS = 1 << 16  # All but the first are empty.
RELATIVE_ROUNDING_ERROR = 2.0**-25  # of eigenvalues whose squares are computed, per root of their number


@register
class AdaSsp(Method):
    """Regression from private sufficient statistics, with a regulariser that adapts to their noise.

    Wang, "Revisiting differentially private linear regression: optimal and adaptive prediction & estimation
    in unbounded domain", 2018, with one release and another regulariser (docs/background/methods.md).
    """

    name, title = "ada-ssp", "AdaSSP"
    summary = "second moments of all samples in one round, without a learning rate"
    options, estimator, query_point = PresetOptions, SECOND_MOMENTS, LAST_ITERATE
    mechanism = "second-moments"
    preset_settings = dict.fromkeys(("clip_norm", "diameter"))

    def audit_settings(self, machines: int, rounds: int, options: Any) -> tuple[int, dict[str, Any]]:
        """Return the audit's samples per machine: 2, one of which is unknown to the adversary."""
        return 2, {}

    def choose_settings(self, constants: PresetConstants) -> dict[str, Any]:
        """Return the practical preset's settings: weights of 1 for unit-scaled samples, and at least 1/2."""
        weight = 1.0 if constants.experiment.sample_scaling == "unit" else 0.5
        clip_norm = round_to_four_digits(math.sqrt(2) * weight * constants.max_squared_norm)
        return {"clip_norm": clip_norm, "diameter": constants.diameter}

    def batching(self, problem: Problem, rounds: int | None) -> Batching:
        """Return one batch of all samples, and empty ones in later rounds."""
        if not 2 <= (rounds := rounds or 2) <= MAX_ROUNDS:
            raise InputError(f"--rounds of ada-ssp must be from 2 to {MAX_ROUNDS:,}, got {rounds:,}.")
        return DisjointBatches.from_batch_ends((problem.samples,) * rounds)

    def contribution_bound(self, problem: Problem) -> float:
        """Return sqrt(2) B^2 for samples of norm B: the norms of moments and gradients are at most B^2."""
        return math.sqrt(2) * problem.max_squared_norm

    def theory_eta(self, problem: Problem, batching: Batching, mechanism: Mechanism) -> float:
        return MAX_REAL_OPTION  # The regulariser's level is set by the noise of the moments alone.

    def iterates_reveal_messages(self, options: Any) -> bool:
        return True  # An audit observes the sums that the model is computed from.

    def step(self, iterates: Iterates, t: int, message_sum: IntArray, step_factor: float) -> None:
        """Take a regularised Newton step, but after empty batches."""
        if iterates.constants.batching.batch_size(t):
            sums = iterates.constants.mechanism.grid_spacing * message_sum.astype(float)
            self.newton_step(iterates, t, sums)
        iterates.projected_step(t, message_sum[: len(iterates.w)], 0.0)

    def newton_step(self, iterates: Iterates, t: int, sums: FloatArray) -> None:
        """Move w to the regularised minimum of the loss's quadratic surrogate at x_t = w.

        `sums`, shape (F + rows, F), are second moments, the mean of t rounds, above scaled gradients.
        Symmetrised moments have noise of std tau on the diagonal and tau / sqrt(2) beside it, whose spectral
        norm is about sqrt(2 F) tau. Half of it is the regulariser's level, but at least that of steps eta g.
        """
        from mu2mpi.losses.model.linear import solve_regularised

        constants, F = iterates.constants, sums.shape[1]
        problem, mechanism = constants.problem, constants.mechanism
        samples = constants.machine_weight_sum * constants.batching.batch_size(1)
        max_square = constants.reduced_clip_norm / math.sqrt(2)
        curvature = problem.loss.curvature_at_zero(problem.classes)
        scale = math.sqrt(max_square) / problem.loss.zero_residual_bound(problem.model_rows)
        moments, l2 = (sums[:F] + sums[:F].T) / 2, samples * problem.l2 / curvature
        moments.flat[:: F + 1] += l2
        gradients = sums[F:] / (scale * curvature) + l2 * iterates.x
        noise_norm = mechanism.sigma * math.sqrt(2 * F * problem.variance_factor / t)
        rounding_error = RELATIVE_ROUNDING_ERROR * math.sqrt(F) * samples * max_square
        level = max(noise_norm / 2, samples / (constants.eta * curvature), rounding_error)
        iterates.w -= solve_regularised(moments, gradients, level)
