"""What a method is made of: how gradients are estimated, and where they are taken.

Two estimators and two query points make four methods: mu^2-SGD is corrected momentum at averages, STORM
the same at iterates, Anytime-SGD plain gradients at averages, and parallel SGD plain gradients at iterates.
Methods with other ways to choose samples, and so other accounts of their noise, have names of their own.
"""

import math
from dataclasses import dataclass

from mu2mpi.privacy.subsampling import SUBSAMPLED

__all__ = ["ESTIMATORS", "METHODS", "QUERIES", "Estimator", "Method", "Query", "method_of"]


@dataclass(frozen=True)
class Estimator:
    """What a machine sends in round t, which estimates k_t f'(x_t).

    Attributes
    ----------
    name : str
        What the user calls it.
    gradients : int
        How many gradients it takes of each sample.
    lasts : bool
        Whether a sample stays in what is sent from its own round on, or is in one message alone.
    """

    name: str
    gradients: int
    lasts: bool

    def weight(self, t: int) -> int:
        """Return k_t: t for q_t = alpha_t d_t, the sum of increments, and 1 for a gradient."""
        return t if self.lasts else 1

    def touched(self, rounds: int) -> int:
        """Return how many of the messages one sample can be in."""
        return rounds if self.lasts else 1


@dataclass(frozen=True)
class Query:
    """Where gradients are taken: at the iterate w_t, or at the average x_t of w_1 .. w_t.

    Attributes
    ----------
    name : str
        What the user calls it.
    averages : bool
        Whether it is the average.
    """

    name: str
    averages: bool

    def importance(self, t: int) -> int:
        """Return alpha_t, the weight of round t: t at averages, and 1 at iterates."""
        return t if self.averages else 1

    def averaging_weight(self, t: int) -> float:
        """Return the weight of w_t in the query point: alpha_t / alpha_{1:t} = 2 / (t + 1), or all of it."""
        return 2 / (t + 1) if self.averages else 1.0


ESTIMATORS = {
    e.name: e for e in (Estimator("corrected-momentum", 2, lasts=True), Estimator("gradient", 1, lasts=False))
}
QUERIES = {q.name: q for q in (Query("average", averages=True), Query("iterate", averages=False))}


@dataclass(frozen=True)
class Method:
    """An estimator at a query point.

    Attributes
    ----------
    estimator : Estimator
        What machines send.
    query : Query
        Where they take gradients.
    name : str
        What the user calls it.
    accountant : str
        How it is known what the releases reveal: ``"gaussian"`` if one sample is in some Gaussian mechanisms,
        ``"last-iterate"`` if only those who are trusted see an iterate before the last. Where samples are
        drawn at random, ``"strong-composition"`` (Lowy and Razaviyayn's theorem) or ``"pld"`` (the
        distribution of the privacy loss).
    """

    estimator: Estimator = ESTIMATORS["corrected-momentum"]
    query: Query = QUERIES["average"]
    name: str = "mu2-sgd"
    accountant: str = "gaussian"

    @property
    def is_mu2(self) -> bool:
        """Whether this is the method of the paper's Algorithms 1 and 2."""
        return self.estimator.lasts and self.query.averages

    @property
    def hides_iterates(self) -> bool:
        """Whether the noise of the steps to come protects a sample, as nobody sees the iterates between."""
        return self.accountant == "last-iterate"

    @property
    def draws(self) -> bool:
        """Whether machines draw their samples at random, so that each may be in several messages."""
        return self.accountant in SUBSAMPLED

    @property
    def takes_mean(self) -> bool:
        """Whether the output is the mean of all query points, as for parallel SGD, or the last of them."""
        last = self.hides_iterates or self.accountant == "pld"
        return not (self.estimator.lasts or self.query.averages or last)

    def touched(self, rounds: int) -> int:
        """Return how many of the messages one sample can be in."""
        return rounds if self.draws else self.estimator.touched(rounds)

    def increment_bound(self, G: float, L: float, D: float) -> float:
        """Return the norm that what one sample adds to a message never passes.

        A gradient has norm G at most, and an increment at averages S = G + 2 L D. Iterates may lie D apart
        in any round, and there the increments g + (t - 1)(g - g~) have no bound.

        References
        ----------
        Lemma 4.2.
        """
        if not self.estimator.lasts:
            return G
        return G + 2 * L * D if self.query.averages else math.inf


GRADIENT, ITERATE = ESTIMATORS["gradient"], QUERIES["iterate"]
METHODS = {
    m.name: m
    for m in (
        Method(),
        Method(GRADIENT, ITERATE, "noisy-minibatch-sgd", "strong-composition"),
        Method(GRADIENT, ITERATE, "dp-sgd", "pld"),
        Method(GRADIENT, ITERATE, "snowball-sgd", "last-iterate"),
    )
}


def method_of(name: str, estimator: str | None, query: str | None) -> Method:
    """Return a method by its name, and where that leaves the choice, by its estimator and query point."""
    if estimator is None or query is None:
        return METHODS[name]
    return Method(ESTIMATORS[estimator], QUERIES[query])
