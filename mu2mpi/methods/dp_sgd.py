"""DP-SGD: each sample of all machines is in each round with the same probability."""

import math
from typing import Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.batching import Poisson, Sampling
from mu2mpi.federation.estimators import GRADIENT, ITERATE
from mu2mpi.federation.task import Task
from mu2mpi.methods.method import Method, PresetOptions, batch_field, check_batch, tail_field
from mu2mpi.methods.presets.practical import PracticalPreset
from mu2mpi.privacy.accounting.pld import MOST_ROUNDS


class DpSgdOptions(PresetOptions):
    """How many samples are expected, and what is put out."""

    batch: int | None = batch_field(
        "samples that are expected in a round of all machines [default: a hundredth of all, but at least 256]"
    )
    tail: float | None = tail_field("the last alone")


@register
class DpSgd(Method):
    """Abadi et al., "Deep learning with differential privacy", 2016."""

    name, title = "dp-sgd", "DP-SGD"
    summary = "gradients of batches that are drawn at random, with noise for the sum of all machines"
    options = DpSgdOptions
    estimator, query = GRADIENT, ITERATE
    chooses = dict.fromkeys(("clip_norm", "diameter", "rounds", "tail", "eta_scale"))
    mechanism = "poisson"
    takes_absence = True

    def check(self, asked: Any, options: Any) -> None:
        """Refuse a server with which each machine hides what it sends by itself."""
        if not asked.trust.hides_sums:
            raise ValueError(
                f"method = dp-sgd has noise for the sum over all machines, and with server = {asked.server} "
                "each needs its own; give --server trusted or aggregated"
            )

    def worst_case(self, machines: int, rounds: int, options: Any) -> tuple[int, dict[str, Any]]:
        """Return a sample each, of which a third is drawn: which others are hides one as noise does."""
        return 1, {} if options.batch else {"batch": max(1, round(machines / 3))}

    def practical(self, preset: PracticalPreset, asked: Any, facts: PublicFacts) -> dict[str, Any]:
        """Return the settings of the practical mode: noise is for the sum over all samples."""
        batch = asked.batch or usual_batch(facts.samples)
        rounds = 100, min(20_000, most_rounds(facts.samples, batch))
        return preset.descent(asked, facts, hidden=facts.samples, rounds=rounds, tail=0.5)

    def sampling(self, task: Task, rounds: int | None) -> Sampling:
        """Return 20 passes, with a hundredth of all samples in each batch."""
        everything = task.machines * task.samples
        batch = task.options.batch or usual_batch(everything)
        check_batch(batch, everything, "all machines")
        rounds = rounds or math.ceil(20 * everything / batch)
        most = most_rounds(everything, batch)
        if rounds > most and math.isfinite(task.budget.epsilon):
            raise InputError(
                f"{rounds} rounds are too many: with batch = {batch}, the privacy of dp-sgd is accounted for "
                f"in no more than {most}; give at most --rounds {most}"
            )
        return Poisson(task.samples, rounds, task.samples, probability=batch / everything)

    def completed(self, task: Task, sampling: Sampling) -> dict[str, Any]:
        """Return the expected size of batches."""
        return {"batch": task.options.batch or usual_batch(task.machines * task.samples)}


def usual_batch(samples: int) -> int:
    """Return how many of all samples are expected in a batch: beyond some hundred more are worth little."""
    return min(samples, max(256, samples // 100))


def most_rounds(samples: int, batch: int) -> int:
    """Return how many rounds with noise can be accounted for: more would take gigabytes."""
    return min(MOST_ROUNDS, 10**4 * samples // batch)
