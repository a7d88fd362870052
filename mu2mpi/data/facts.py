"""Public facts about the data."""

from typing import NamedTuple


class PublicFacts(NamedTuple):
    """What presets may know of the data: nothing that depends on a sample."""

    classes: int
    square: float  # bound on squared norms of features in [-1, 1], without the bias
    samples: int  # number of samples that all machines can use together
    # Of unequal machines: ratio of the noise of one to that of their average, and the number of equal
    # machines whose average of samples has the same variance
    shared: float | None = None
    effective: float | None = None
