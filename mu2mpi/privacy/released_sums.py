"""Sensitivity and composition parameters of the sums that a federation releases."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# L2 sensitivity of a sum of terms of norm at most 1, by neighbouring relation: a sample's term is replaced by
# another, or by zero. The numbers of samples are the same in both data sets.
UNIT_SENSITIVITIES = {"replace": 2.0, "zero-out": 1.0}


@dataclass(frozen=True)
class ReleasedSums:
    """Sequence of vector sums, one per round, that a privacy mechanism is calibrated to protect."""

    rounds: int  # T, number of released sums
    machines: int  # M, machines whose messages are summed
    parameters: int  # d, coordinates of a sum
    clip_norm: float  # C, L2 clipping norm of one sample's term
    max_gradient_norm: float  # bound on the L2 norm of a gradient
    affected_sums: int  # largest number of released sums that depend on one sample
    increments_per_message: int  # largest number of clipped increments in one machine's message
    samples: int  # n, samples of each machine that may be used
    batch_size: float  # expected number of samples per machine and round (in the first round, if they vary)
    aggregated_machines: int = 1  # machines represented by one noise draw: M with simulated aggregate noise
    noise_shares: int = 1  # machines whose noise adds up to variance sigma^2 (1: each machine adds all)
    subsampling: str = ""  # amplification by "poisson" or "replacement" sampling; "" for none
    loss_bounds: Mapping[str, Any] | None = None  # of losses whose minimiser alone is released: own fields of
    # the mechanism, by name
    is_cumulative: bool = False  # sums are running sums: a sample stays in all of them from its round on
    are_second_moments: bool = False  # a sample's term is w (z z^T, r z^T): no two are opposite
    mechanism_options: Any = None  # the mechanism's options, as given by the user
    neighbours: str = "replace"  # neighbouring relation: a key of `UNIT_SENSITIVITIES`

    @property
    def sensitivity(self) -> float:
        """L2 sensitivity of one sum to one sample's term: 2 C if it is replaced, C if it is zeroed out."""
        return UNIT_SENSITIVITIES[self.neighbours] * self.clip_norm
