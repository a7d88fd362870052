"""What an audit found, next to what is claimed, and what follows."""

import math
import textwrap
from dataclasses import dataclass

from mu2mpi.algorithm.sampling import Poisson, Sampling, WithReplacement
from mu2mpi.analysis.formats import as_text
from mu2mpi.audit.evidence import Interval
from mu2mpi.methods import Method
from mu2mpi.privacy.accountant import epsilon_exact

__all__ = ["Finding"]


@dataclass(frozen=True)
class Finding:
    """Claims about a server, and what the runs of an audit say of them.

    Attributes
    ----------
    method : Method
        What was run.
    sampling : Sampling
        Which of its samples each machine used in which round.
    server : str
        ``"untrusted"`` or ``"trusted"``.
    machines, rounds : int
        M and T.
    trials : int
        Runs on each of the two data sets, of which the second half was judged.
    delta : float
        At which epsilon is stated.
    rho, epsilon : float
        The claims: the releases are rho-Gaussian-DP, and so (epsilon, delta)-DP. Or rho is NaN, and the
        second alone is claimed.
    mu : Interval
        What the adversary reached: of rho, if the statistic is normal, as it is of Gaussian releases.
    epsilon_bound : float
        What epsilon exceeds with 95% confidence, by counting alone.
    """

    method: Method
    sampling: Sampling
    server: str
    machines: int
    rounds: int
    trials: int
    delta: float
    rho: float
    epsilon: float
    mu: Interval
    epsilon_bound: float

    @property
    def objections(self) -> list[str]:
        """What the runs refute, in words; nothing where they agree with the claims."""
        found = []
        if self.mu.low > self.rho:
            found.append(f"mu is at least {self.mu.low:.4g} where rho = {self.rho:.4g} is claimed")
        if self.epsilon_bound > self.epsilon:
            found.append(
                f"epsilon is at least {self.epsilon_bound:.4g} where {self.epsilon:.4g} is claimed at "
                f"delta = {self.delta:g}"
            )
        return found

    def describe(self) -> str:
        """Say what was done, and put what was found next to what is claimed; no line break at the end."""
        heading = textwrap.fill(
            f"{self.server.capitalize()} server: {self._method()}{self.machines} machines, {self.rounds} "
            f"rounds, {self.trials:,} runs on each of two data sets that differ in one sample of one "
            "machine.",
            width=96,
        )
        by_gauss = [self._epsilon_of(mu) for mu in (self.mu.estimate, self.mu.low, self.mu.high)]
        at_delta, bound = f"epsilon at delta = {self.delta:g}", f"at least {self.epsilon_bound:.4g}"
        rows = [[f"{at_delta}, by counting", f"{self.epsilon:.4g}", "", bound]]
        if not math.isnan(self.rho):
            rows = [
                _row("mu", self.rho, self.mu.estimate, self.mu.low, self.mu.high),
                _row(f"{at_delta}, from mu", self.epsilon, *by_gauss),
                *rows,
            ]
        table = as_text(["", "claimed: at most", "reached", "95% confidence"], [rows])
        verdict = "; ".join(self.objections) or "No bound from below passes its claim"
        return f"{heading}\n\n{textwrap.indent(table, '  ')}\n\n{verdict}."

    def _method(self) -> str:
        """Return the method, unless it is the default, what of it is attacked, and how it draws samples."""
        method, sampling, words = self.method, self.sampling, []
        if method.name != Method.name:
            words.append(method.name)
        elif not method.is_mu2:
            words.append(f"{method.estimator.name} at {method.query.name}s")
        if method.hides_iterates:
            words.append("its output alone")
        if isinstance(sampling, Poisson):
            words.append(f"q = {sampling.probability:.3g}")
        if isinstance(sampling, WithReplacement):
            words.append(f"K = {sampling.most} of n = {sampling.owned} samples")
        return "".join(f"{word}, " for word in words)

    def _epsilon_of(self, mu: float) -> float:
        return epsilon_exact(max(mu, 0.0), self.delta)


def _row(name: str, claimed: float, reached: float, low: float, high: float) -> list[str]:
    return [name, f"{claimed:.4g}", f"{reached:.4g}", f"{low:.4g} to {high:.4g}"]
