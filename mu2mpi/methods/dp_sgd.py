"""DP-SGD: Poisson-subsampled batches over all machines."""

import math
from typing import Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import lookup, register
from mu2mpi.federation.batching import Batching, PoissonBatches
from mu2mpi.federation.estimators import GRADIENT_ESTIMATOR, LAST_ITERATE
from mu2mpi.federation.problem import Problem
from mu2mpi.methods.method import Method, PresetOptions, batch_field, check_batch, tail_field
from mu2mpi.methods.presets.practical import PresetConstants
from mu2mpi.privacy.accounting.pld import MAX_PLD_ROUNDS


class DpSgdOptions(PresetOptions):
    """Options of DP-SGD: expected batch size, and averaging of the iterates."""

    batch: int | None = batch_field(
        "expected batch size over all machines [default: a hundredth of all samples, at least 256]"
    )
    tail: float | None = tail_field("the last round alone")


@register
class DpSgd(Method):
    """DP-SGD: Abadi et al., "Deep learning with differential privacy", 2016."""

    name, title = "dp-sgd", "DP-SGD"
    summary = "gradients of random batches, with noise for the sum over all machines"
    options, estimator, query_point = DpSgdOptions, GRADIENT_ESTIMATOR, LAST_ITERATE
    preset_settings = dict.fromkeys(("clip_norm", "diameter", "rounds", "tail", "eta_scale"))
    mechanism = "poisson"
    supports_partial_participation = suits_large_noise = True

    def check_experiment(self, experiment: Any, options: Any) -> None:
        """Raise ValueError if messages need noise each, or a preset has no privacy amplification."""
        if not experiment.trust_mode.protects_sum_only:
            raise ValueError(
                "--method dp-sgd adds noise to the sum over all machines, but --server "
                f"{experiment.server} needs noise in each message. Use --server trusted or aggregated."
            )
        if experiment.preset is not None and experiment.chosen_mechanism != self.mechanism:
            alternative = lookup("presets", experiment.preset).default_method
            raise ValueError(
                f"--preset {experiment.preset} of --method dp-sgd needs privacy amplification by sampling, "
                f"and --mechanism {experiment.chosen_mechanism} (--server {experiment.server}) gives none. "
                f"Use --method {alternative}, or --server trusted or aggregated."
            )

    def audit_settings(self, machines: int, rounds: int, options: Any) -> tuple[int, dict[str, Any]]:
        """Return the audit's samples per machine (one) and a batch size of sampling probability 1/3."""
        return 1, {} if options.batch else {"batch": max(1, round(machines / 3))}

    def choose_settings(self, constants: PresetConstants) -> dict[str, Any]:
        """Return the practical preset's settings, with 100 to 20,000 rounds of Poisson batches."""
        samples = constants.public_facts.samples
        batch = constants.experiment.batch or default_batch_size(samples)
        check_batch(batch, samples, "all machines")
        rounds_range = 100, min(20_000, max_accounted_rounds(samples, batch))
        return constants.multi_pass_settings(samples, rounds_range, tail=0.5)

    def batching(self, problem: Problem, rounds: int | None) -> Batching:
        """Return Poisson-subsampled batches, by default 20 passes in batches of `default_batch_size`."""
        total_samples = problem.machines * problem.samples
        batch = problem.method_options.batch or default_batch_size(total_samples)
        check_batch(batch, total_samples, "all machines")
        rounds = rounds or math.ceil(20 * total_samples / batch)
        check_accounted_rounds(problem, rounds, total_samples, batch, f"--method dp-sgd with --batch {batch}")
        return PoissonBatches(problem.samples, rounds, problem.samples, probability=batch / total_samples)

    def resolve_options(self, problem: Problem, batching: Batching) -> dict[str, Any]:
        total_samples = problem.machines * problem.samples
        return {"batch": problem.method_options.batch or default_batch_size(total_samples)}


def default_batch_size(samples: int) -> int:
    """Return the default expected batch size: 1 % of all samples, at least 256."""
    return min(samples, max(256, samples // 100))


def max_accounted_rounds(units: int, batch: int) -> int:
    """Return the largest number of rounds that the accountant composes in bounded memory."""
    return min(MAX_PLD_ROUNDS, 10**4 * units // batch)


def check_accounted_rounds(problem: Problem, rounds: int, units: int, batch: int, setup: str) -> None:
    """Raise InputError for more rounds than can be accounted for, with `batch` of so many units in each."""
    max_rounds = max_accounted_rounds(units, batch)
    if rounds > max_rounds and math.isfinite(problem.budget.epsilon):
        raise InputError(
            f"--rounds must be at most {max_rounds} for the accountant of {setup}, got {rounds}."
        )
