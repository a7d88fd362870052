"""Full participation."""

from dataclasses import dataclass
from typing import Self

from mu2mpi.core.registry import register
from mu2mpi.federation.participation.base import Federation, Mask, Participation


@register
@dataclass(frozen=True)
class All(Participation):
    """Every machine in every round."""

    name = form = "all"
    summary = "every machine in every round"
    is_default = True
    machines: int

    @classmethod
    def expected_share(cls, value: str, machines: int) -> float:
        """All of them."""
        return 1.0

    @classmethod
    def build(cls, value: str, federation: Federation) -> Self:
        """Build the schedule of a federation."""
        return cls(federation.machines)

    def participates(self, rounds: range, total_rounds: int) -> Mask:
        """Participation matrix of ones."""
        import numpy as np

        return np.ones((len(rounds), self.machines), bool)
