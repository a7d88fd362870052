"""Uniform sampling of a fixed number of machines per round."""

import re
from fractions import Fraction

from mu2mpi.core.errors import InputError
from mu2mpi.core.lazy import np
from mu2mpi.core.registry import register
from mu2mpi.federation.participation.schedule import Federation, Mask, ParticipationSchedule


@register
class UniformParticipation(ParticipationSchedule):
    """A subset of m machines per round, drawn uniformly and independently of other rounds."""

    name, form = "uniform", "uniform:m"
    summary = "m machines per round, drawn uniformly"

    def __init__(self, value: str, federation: Federation) -> None:
        super().__init__(value, federation)
        self.number = int(value)
        if self.number > self.machines:
            raise InputError(
                f"--participation uniform:m must have m at most {self.machines:,} (machines), got "
                f"{self.number:,}. Use a smaller m."
            )

    @classmethod
    def check_value(cls, value: str) -> None:
        """Raise ValueError unless the value is a positive number of machines."""
        if not re.fullmatch(r"[1-9]\d{0,8}", value):
            raise ValueError("should be uniform:m with a number of machines, such as uniform:20")

    @classmethod
    def expected_share(cls, value: str, machines: int) -> Fraction:
        """Return m / M."""
        return Fraction(int(value), machines)

    def participation_matrix(self, rounds: range, total_rounds: int) -> Mask:
        """Participation matrix with the m smallest random words of each round."""
        integers = self.random_integers(rounds)
        matrix = np.zeros(integers.shape, bool)
        smallest = np.argpartition(integers, self.number - 1, axis=1)[:, : self.number]
        np.put_along_axis(matrix, smallest, True, axis=1)
        return matrix
