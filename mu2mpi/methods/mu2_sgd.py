"""The paper's mu^2-SGD: corrected momentum at weighted averages of the iterates (Algorithms 1 and 2).

`algorithm_1` and `algorithm_2` are the paper's boxes on NumPy arrays; tests hold the package to them.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import Field

from mu2mpi.core.registry import find, register
from mu2mpi.data.source import PublicFacts
from mu2mpi.federation.batching import Sampling
from mu2mpi.federation.estimators import AVERAGE, CORRECTED_MOMENTUM
from mu2mpi.federation.task import Task
from mu2mpi.federation.trust_mode import shared_by
from mu2mpi.methods.method import Method, PresetOptions
from mu2mpi.methods.presets.practical import Choices, longest_at_averages
from mu2mpi.privacy.mechanisms.mechanism import Mechanism


def algorithm_1(
    samples: Sequence[Sequence[Any]], gradient: Callable[..., Any], noise: Callable[[int, int], Any],
    project: Callable[..., Any], eta: float, x_1: Any,
) -> Any:  # fmt: skip
    """Return x_T of Algorithm 1 (untrusted server): every machine adds noise before it sends.

    ``samples[t - 1][i]`` is z_{t,i}, ``noise(t, i)`` is Y_{t,i}, and ``project`` projects on K.
    """
    T, M = len(samples), len(samples[0])
    w, x, x_previous, d = x_1, x_1, x_1, [0.0] * M
    for t in range(1, T + 1):
        alpha, beta, q = t, 1 / t, 0.0
        for i in range(M):
            z = samples[t - 1][i]
            g, g_previous = gradient(x, z), gradient(x_previous, z)
            d[i] = g + (1 - beta) * (d[i] - g_previous)
            q += (alpha * d[i] + noise(t, i)) / M
        w = project(w - eta * q)
        weight = 2 / (t + 2)  # alpha_{t+1} / alpha_{1:t+1}
        x_previous, x = x, (1 - weight) * x + weight * w
    return x_previous


def algorithm_2(
    samples: Sequence[Sequence[Any]], gradient: Callable[..., Any], noise: Callable[[int], Any],
    project: Callable[..., Any], eta: float, x_1: Any,
) -> Any:  # fmt: skip
    """Return x_T of Algorithm 2 (trusted server): the server adds noise Y_t to the average."""
    T, M = len(samples), len(samples[0])
    w, x, x_previous, d = x_1, x_1, x_1, [0.0] * M
    for t in range(1, T + 1):
        alpha, beta, q = t, 1 / t, 0.0
        for i in range(M):
            z = samples[t - 1][i]
            g, g_previous = gradient(x, z), gradient(x_previous, z)
            d[i] = g + (1 - beta) * (d[i] - g_previous)
            q += alpha * d[i] / M
        w = project(w - eta * (q + noise(t)))
        weight = 2 / (t + 2)  # alpha_{t+1} / alpha_{1:t+1}
        x_previous, x = x, (1 - weight) * x + weight * w
    return x_previous


# What the package does instead, in the same order, and why it is the same:
# - A machine's q_{t,i} = alpha_t d_{t,i} is the sum of its increments s_{tau,i} = g + (tau - 1) (g - g~) for
#   tau <= t (Lemma 4.1). Both gradients are residuals times one sample, so an increment is c z^T: no gradient
#   is formed, and ||s|| = ||c|| ||z|| is clipped to S = G + 2 L D (Lemma 4.2) at no cost: `increments`.
# - Increments and noise are rounded to a public grid and added up as integers. Sums of integers are exact in
#   any order, so a rank keeps one sum for all of its machines: `machine`.
# - The step, the projection and the average are `Method.step`, on `iterates`.
# - Who adds noise, and which collective carries what, is one `round` of each trust mode: `servers`.


# Methods with another estimator or query point
SWITCHED = {
    ("corrected-momentum", "iterate"): "storm",
    ("gradient", "average"): "anytime-sgd",
    ("gradient", "iterate"): "parallel-sgd",
}


class Mu2Options(PresetOptions):
    """Switches that take the method apart, and settings that learn more than those of the theorems."""

    estimator: Literal["corrected-momentum", "gradient"] = Field(
        "corrected-momentum",
        description="what machines send: corrected momentum, or the gradient of a fresh sample alone",
    )
    query: Literal["average", "iterate"] = Field(
        "average",
        description="where gradients are taken: at the weighted average of the iterates, or at the last one",
    )


@register
class Mu2Sgd(Method):
    """Algorithm 1 (untrusted server) and Algorithm 2 (trusted server)."""

    name, title = "mu2-sgd", "μ²-SGD"
    summary = "the paper's mu^2-SGD, of which --estimator and --query switch a part off each"
    options = Mu2Options
    is_default = takes_absence = preset_knows_absence = True
    estimator, query = CORRECTED_MOMENTUM, AVERAGE

    def chosen(self, options: Any) -> Method:
        """Return the method that consists of the estimator and the query point that were asked for."""
        if (name := SWITCHED.get((options.estimator, options.query))) is None:
            return self
        method: Method = find("methods", name)
        return method

    def practical_scale(self, asked: Any, facts: PublicFacts, chosen: Choices) -> float:
        """Return it by noise: that of w_T, eta sigma sqrt(T), is the same in all runs with a loss.

        It is the theorem's min(rho D N / (2 C T sqrt(d)), 1/(4LT)) with that noise for D / sqrt(d).
        """
        shared = facts.shared or shared_by(asked)
        by_noise = 2 * chosen.L * chosen.noise * asked.rho * shared / chosen.clip
        return float(min(by_noise, longest_at_averages(asked, facts) * chosen.L / chosen.nearby))

    def base_rate(self, task: Task, sampling: Sampling, mechanism: Mechanism) -> float:
        """Return eta = min(rho D N / (2 C T sqrt(d)), 1 / (4 L T)): Theorems 5.2 and 6.2.

        Where some are away, the second term is in proportion to the share of machines that is there.
        """
        return min(
            self.noise_rate(task, sampling, mechanism), task.mean_share * self.largest_rate(task, sampling)
        )

    def loss_bound(self, task: Task, sampling: Sampling, mechanism: Mechanism, is_own_rate: bool) -> float:
        """Return 4D ((G* + 2LD) / T + 2 S sqrt(d) / (rho T N) + s / sqrt(T M)): Theorems 5.2 and 6.2.

        G* and s are not known, and replaced by their bounds G and S = G + 2LD. It does not apply where
        increments are clipped to less than S, or eta or the mechanism is another. With a regulariser G* and L
        are those of the sum, and the noise is that of the loss alone.
        """
        D, M, T, S = task.diameter, task.machines, sampling.rounds, self.increment_bound(task)
        is_plain = task.unequal is None and isinstance(mechanism, find("mechanisms", self.mechanism))
        if mechanism.clip_norm < S or not (is_plain and is_own_rate):
            return math.nan
        noise = 2 * S * math.sqrt(task.d) / (task.budget.rho * T * task.shared)
        known = S + task.l2 * (D / 2 + 2 * D)
        return 4 * D * (known / T + noise + S / math.sqrt(T * M))
