"""Uniform sampling of a fixed number of machines per round."""

import re
from fractions import Fraction

from mu2mpi.core.arrays import BoolArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.federation.participation.schedule import Federation, ParticipationSchedule


@register
class UniformParticipation(ParticipationSchedule):
    """Participation of m machines per round, sampled uniformly without replacement."""

    name, option_syntax = "uniform", "uniform:m"
    summary = "m machines per round, drawn uniformly"

    def __init__(self, option_value: str, federation: Federation) -> None:
        super().__init__(option_value, federation)
        self.subset_size = int(option_value)
        if self.subset_size > self.machines:
            raise InputError(
                f"--participation uniform:m must have m at most {self.machines:,} (machines), got "
                f"{self.subset_size:,}. Use a smaller m."
            )
        self.expected_share = Fraction(self.subset_size, self.machines)

    @classmethod
    def check_option_value(cls, option_value: str) -> None:
        if not re.fullmatch(r"[1-9]\d{0,8}", option_value):
            raise ValueError("should be uniform:m with a number of machines, such as uniform:20")

    def participation_matrix(self, rounds: range, total_rounds: int) -> BoolArray:
        """Return the participation matrix, true for the m machines with the smallest random words."""
        integers = self.participation_draws(rounds)
        matrix = np.zeros(integers.shape, bool)
        smallest = np.argpartition(integers, self.subset_size - 1, axis=1)[:, : self.subset_size]
        np.put_along_axis(matrix, smallest, True, axis=1)
        return matrix
