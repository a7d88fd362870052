"""The constants of a run: what the paper writes as functions of T, M, d, D and rho."""

import math
from dataclasses import dataclass

from mu2mpi.errors import InputError
from mu2mpi.federation.sampling import Batches, Fresh, Poisson, Sampling, WithReplacement
from mu2mpi.methods.pieces import Method
from mu2mpi.methods.snowball import hidden_release, largest_landing
from mu2mpi.methods.steps import base_rate, hidden_rate, largest_rate
from mu2mpi.privacy.grid import choose_resolution, clipping_bound
from mu2mpi.privacy.iteration import growing_batches
from mu2mpi.privacy.noise import MAX_COORDINATES, MAX_NUMBER
from mu2mpi.privacy.sampler import RESERVE
from mu2mpi.privacy.subsampling import poisson_sigma, with_replacement_sigma
from mu2mpi.problem.logistic import gradient_constants

__all__ = ["Schedule", "make_schedule"]


MU2 = Method()
"""The method of Algorithms 1 and 2."""


@dataclass(frozen=True)
class Schedule:
    """The constants of Algorithm 1 or 2, or of a method beside them, for one problem.

    Attributes
    ----------
    method : Method
        What machines send, and where they take gradients.
    sampling : Sampling
        Which of its samples each machine uses in which round.
    server : str
        ``"untrusted"`` (Algorithm 1) or ``"trusted"`` (Algorithm 2).
    machines, rounds : int
        M and T.
    classes, features : int
        K and F (with the bias), so that d = K F.
    radius : float
        D / 2: K is the ball of this radius about 0.
    unit_norm : bool
        Whether each sample is scaled to norm 1.
    G, L, S : float
        Bounds on gradients, on their change, and on increments: S = G + 2 L D (Lemma 4.2), or what the
        method has in its place.
    clip_norm : float
        Norm that no increment passes, S unless the user chose less: every sum q_t has sensitivity
        2 clip_norm.
    touched : int
        How many of the T messages one sample can be in.
    growth : float
        How large the batches grow that hide iterates; 0 where none are hidden.
    rho : float
        The releases are (a, a rho^2 / 2)-RDP for every a > 1; NaN if this is not how they are accounted for.
    sigma : float
        Standard deviation 2 clip_norm sqrt(touched) / rho of each draw of noise for the *sum* over machines,
        with either server (Theorems 5.2 and 6.2, where touched = T), or what the method's own accountant
        asks for; 0 if rho is infinite. Where iterates are hidden, that for one sample of each machine, and
        as many times larger for a batch.
    eta : float
        The learning rate, that of Theorem 5.2 or 6.2 or of the method's own theory, unless the user chose
        another.
    by_theorem : bool
        Whether the method is the paper's, increments keep norm S and eta is the theorem's, so that its bound
        holds.
    resolution : float
        Spacing of the grid of messages.
    bound : float
        Norm to which increments are clipped before they are rounded to the grid.
    aggregate_noise : bool
        Whether the noise of all machines is drawn as one, which simulates an untrusted server.
    """

    method: Method
    sampling: Sampling
    server: str
    machines: int
    rounds: int
    classes: int
    features: int
    radius: float
    unit_norm: bool
    G: float
    L: float
    S: float
    clip_norm: float
    touched: int
    growth: float
    rho: float
    sigma: float
    eta: float
    by_theorem: bool
    resolution: float
    bound: float
    aggregate_noise: bool

    @property
    def d(self) -> int:
        """Number of coordinates of the model."""
        return self.classes * self.features

    def sigma_of(self, t: int) -> float:
        """Return the standard deviation of each draw of noise of round t."""
        return self.sigma * self.sampling.size(t) if self.method.hides_iterates else self.sigma


def make_schedule(
    *,
    server: str,
    machines: int,
    rounds: int,
    classes: int,
    features: int,
    diameter: float,
    rho: float,
    clip_norm: float | None = None,
    unit_norm: bool = False,
    eta_scale: float | None = None,
    aggregate_noise: bool = False,
    method: Method = MU2,
    sampling: Sampling | None = None,
    epsilon: float = math.inf,
    delta: float = 1e-5,
) -> Schedule:
    """Compute the constants of a run.

    Parameters
    ----------
    server : {"untrusted", "trusted"}
        Who adds the noise.
    machines, rounds, classes, features : int
        M, T, K and F (with the bias).
    diameter : float
        D.
    rho : float
        Privacy of all releases together; infinite for no noise.
    clip_norm : float, optional
        Norm C <= S to which increments are clipped; S by default.
    unit_norm : bool, optional
        Whether each sample is scaled to norm 1; if not, only its features lie in [-1, 1].
    eta_scale : float, optional
        eta in units of the largest that smoothness allows, such as 1/(4LT); what theory says by default.
    aggregate_noise : bool, optional
        Whether the noise of all machines is drawn as one.
    method : Method, optional
        What machines send, and where they take gradients: by default that of the paper.
    sampling : Sampling, optional
        Which of its samples each machine uses in which round: by default a fresh one in each.
    epsilon, delta : float, optional
        Privacy of all releases together, for methods that are not accounted for by rho.

    Raises
    ------
    InputError
        If no grid of messages exists, increments have no bound and no clipping norm is given, some
        constant is not a finite number, or something has more parts than the noise can tell apart.

    References
    ----------
    Theorem 5.2 for the untrusted and Theorem 6.2 for the trusted server: sigma and eta.
    """
    G, L = gradient_constants(features, unit_norm)
    S = method.increment_bound(G, L, diameter)
    clip = S if clip_norm is None else min(clip_norm, S)
    if math.isinf(clip):
        raise InputError("increments of this method have no bound, so it needs a clip_norm")
    d, touched = classes * features, method.touched(rounds)
    sampling, growth = sampling or Fresh(rounds), 0.0
    if method.hides_iterates:
        clip, growth, sigma, resolution = hidden_release(rounds, machines, d, rho, G, clip_norm)
        batches = growing_batches(rounds - 1, growth)
        # The last round takes no step, so it needs no samples.
        sampling = Batches.of([*batches, 0])
        theory = hidden_rate(steps=rounds - 1, L=L, D=diameter, C=clip, noise=sigma / machines, d=d)
    else:
        sigma = _noise(sampling, clip, rounds, touched, rho, epsilon, delta)
        theory = base_rate(
            method,
            rounds=rounds,
            L=L,
            D=diameter,
            C=clip,
            rho=rho,
            d=d,
            machines=machines,
            N=machines if server == "trusted" else math.sqrt(machines),
            sigma=sigma,
            size=sampling.drawn(rounds) / rounds,
            owned=sampling.owned if isinstance(sampling, WithReplacement) else None,
        )
    eta = theory if eta_scale is None else eta_scale * largest_rate(method, L, rounds)
    if d > MAX_COORDINATES or max(machines, rounds) > MAX_NUMBER:
        raise InputError(
            f"{d} coordinates, {machines} machines and {rounds} rounds are more than the noise has numbers "
            f"for: at most {MAX_COORDINATES}, {MAX_NUMBER} and {MAX_NUMBER}"
        )
    if not (math.isfinite(sigma) and eta > 0):
        raise InputError(
            f"rho = {rho:g} and diameter = {diameter:g} leave the range of floating-point numbers"
        )
    if method.hides_iterates:
        if sigma > 0 and diameter / 2 > largest_landing(eta, batches, machines, resolution):
            raise InputError(
                f"the last of {rounds} rounds has too little noise beside diameter = {diameter:g} for "
                "integers of 64 bits; give fewer rounds or a smaller diameter"
            )
    else:
        draws = machines if aggregate_noise else 1
        terms = sampling.most * (rounds if method.estimator.lasts else 1)
        resolution = choose_resolution(clip, G, sigma, d, machines, terms, draws)
    return Schedule(
        method=method,
        sampling=sampling,
        server=server,
        machines=machines,
        rounds=rounds,
        classes=classes,
        features=features,
        radius=diameter / 2,
        unit_norm=unit_norm,
        G=G,
        L=L,
        S=S,
        clip_norm=clip,
        touched=touched,
        growth=growth,
        rho=math.nan if method.draws and sigma > 0 else rho,
        sigma=sigma,
        eta=eta,
        by_theorem=method.is_mu2 and clip >= S and eta == theory,
        resolution=resolution,
        bound=clipping_bound(clip, resolution, d),
        aggregate_noise=aggregate_noise,
    )


def _noise(
    sampling: Sampling, C: float, rounds: int, touched: int, rho: float, epsilon: float, delta: float
) -> float:
    """Return the standard deviation of each draw of noise, where every message may be seen."""
    if math.isinf(rho):
        return 0.0
    if isinstance(sampling, WithReplacement):
        return with_replacement_sigma(C, sampling.owned, sampling.most, rounds, epsilon, delta, RESERVE)
    if isinstance(sampling, Poisson):
        return poisson_sigma(C, sampling.probability, rounds, epsilon, delta, RESERVE)
    return 2 * C * math.sqrt(touched) / rho
