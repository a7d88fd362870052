"""Independent participation of every machine with the same probability."""

import re

from mu2mpi.core.arrays import BoolArray
from mu2mpi.core.registry import register
from mu2mpi.data.seed_stream import unit_uniforms
from mu2mpi.federation.participation.schedule import Federation, ParticipationSchedule

MIN_PARTICIPATION_PROBABILITY = 1e-4  # with less, too many rounds would have no participant


@register
class BernoulliParticipation(ParticipationSchedule):
    """Participation of each machine in each round with probability p, independently."""

    name, option_syntax = "bernoulli", "bernoulli:p"
    summary = "each machine with probability p"

    def __init__(self, option_value: str, federation: Federation) -> None:
        super().__init__(option_value, federation)
        self.probability = self.expected_share = float(option_value)

    @classmethod
    def check_option_value(cls, option_value: str) -> None:
        p_min, pattern = MIN_PARTICIPATION_PROBABILITY, r"\d*\.?\d+(?:e-?\d)?"
        if not (re.fullmatch(pattern, option_value) and p_min <= float(option_value) <= 1):
            raise ValueError(
                f"should be bernoulli:p with a probability of {p_min:g} to 1, such as bernoulli:0.2"
            )

    def participation_matrix(self, rounds: range, total_rounds: int) -> BoolArray:
        matrix: BoolArray = unit_uniforms(self.participation_draws(rounds)) < self.probability
        return matrix
