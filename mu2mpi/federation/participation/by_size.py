"""Participation in proportion to the number of samples."""

from dataclasses import dataclass
from typing import Self

from mu2mpi.core.registry import register
from mu2mpi.federation.participation.base import Federation, Integers, Mask, Participation, random_words


@register
@dataclass(frozen=True, eq=False)
class BySize(Participation):
    """Every machine once per sample, evenly spread over the rounds.

    Machine i takes part in N_i rounds, its number of samples; in fewer if the largest machine has more
    samples than there are rounds, but in at least one.
    """

    name = form = "by-size"
    summary = "each machine once per sample"
    default_objective = "samples"
    needs_fresh_samples = True
    sizes: Integers
    seed: int

    @classmethod
    def build(cls, value: str, federation: Federation) -> Self:
        """Build the schedule of a federation."""
        return cls(federation.sizes, federation.seed)

    @property
    def machines(self) -> int:  # type: ignore[override]
        """Number of machines M."""
        return len(self.sizes)

    def participates(self, rounds: range, total_rounds: int) -> Mask:
        """Machines whose quota floor((t N_i + shift_i) / T) increases in round t."""
        import numpy as np

        T = total_rounds
        quotas = np.minimum(self.sizes, -(-self.sizes * T // max(T, self.max_rounds)))
        shifts = (random_words(self.seed, range(1), self.machines) % np.uint64(T)).astype(np.int64)
        t = np.arange(rounds.start - 1, rounds.stop)[:, np.newaxis]
        return np.diff((t * quotas + shifts) // T, axis=0) > 0

    @property
    def max_rounds(self) -> int:
        """Number of samples of the largest machine."""
        return int(self.sizes.max())
