"""Uniform sampling of a fixed number of machines per round."""

import re
from dataclasses import dataclass
from typing import Self

from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import register
from mu2mpi.federation.participation.base import (
    Federation,
    Floats,
    Integers,
    Mask,
    Participation,
    random_words,
)


@register
@dataclass(frozen=True)
class Uniform(Participation):
    """A subset of m machines per round, drawn uniformly and independently of other rounds."""

    name, form = "uniform", "uniform:m"
    summary = "m machines per round, drawn uniformly"
    machines: int
    number: int
    seed: int

    @classmethod
    def check_value(cls, value: str) -> None:
        """Raise ValueError unless the value is a positive number of machines."""
        if not re.fullmatch(r"[1-9]\d{0,8}", value):
            raise ValueError("should be uniform:m with a number of machines, such as uniform:20")

    @classmethod
    def expected_share(cls, value: str, machines: int) -> float:
        """Return m / M."""
        return float(value) / machines

    @classmethod
    def build(cls, value: str, federation: Federation) -> Self:
        """Build the schedule; InputError for more machines than there are."""
        if (number := int(value)) > federation.machines:
            raise InputError(
                f"participation = uniform:{number} is more than the {federation.machines} machines; give a "
                "smaller number"
            )
        return cls(federation.machines, number, federation.seed)

    def participates(self, rounds: range, total_rounds: int) -> Mask:
        """Participation matrix with the m smallest random words of each round."""
        import numpy as np

        words = random_words(self.seed, rounds, self.machines)
        matrix = np.zeros(words.shape, bool)
        smallest = np.argpartition(words, self.number - 1, axis=1)[:, : self.number]
        np.put_along_axis(matrix, smallest, True, axis=1)
        return matrix

    def expected_counts(self, counts: Integers, rounds: int) -> Floats:
        """Return T m / M for every machine."""
        import numpy as np

        return np.full(self.machines, rounds * self.number / self.machines)
