"""The constants of a run: what the paper writes as functions of T, M, d, D and rho."""

import math
from dataclasses import dataclass

from mu2mpi.errors import InputError
from mu2mpi.privacy.grid import choose_resolution, clipping_bound
from mu2mpi.privacy.noise import MAX_COORDINATES, MAX_NUMBER
from mu2mpi.problem.logistic import gradient_bound, smoothness

__all__ = ["Schedule", "averaging_weight", "make_schedule"]


def averaging_weight(t: int) -> float:
    """Return alpha_t / alpha_{1:t} = 2 / (t + 1), the weight of w_t in the average x_t (alpha_t = t)."""
    return 2 / (t + 1)


@dataclass(frozen=True)
class Schedule:
    """The constants of Algorithm 1 or 2 for one problem.

    Attributes
    ----------
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
        Bounds on gradients, on their change, and on increments: S = G + 2 L D (Lemma 4.2).
    clip_norm : float
        Norm that no increment passes, S unless the user chose less: every sum q_t has sensitivity
        2 clip_norm.
    rho : float
        The releases are (a, a rho^2 / 2)-RDP for every a > 1.
    sigma : float
        Standard deviation 2 clip_norm sqrt(T) / rho of each draw of noise for the *sum* over machines,
        with either server (Theorems 5.2 and 6.2); 0 if rho is infinite.
    eta : float
        The learning rate, that of Theorem 5.2 or 6.2 unless the user chose another.
    by_theorem : bool
        Whether increments keep norm S and eta is the theorem's, so that its bound holds.
    resolution : float
        Spacing of the grid of messages.
    bound : float
        Norm to which increments are clipped before they are rounded to the grid.
    aggregate_noise : bool
        Whether the noise of all machines is drawn as one, which simulates an untrusted server.
    """

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
        eta in units of 1/(4LT); the theorem's by default.
    aggregate_noise : bool, optional
        Whether the noise of all machines is drawn as one.

    Raises
    ------
    InputError
        If no grid of messages exists, some constant is not a finite number, or something has more
        parts than the noise can tell apart.

    References
    ----------
    Theorem 5.2 for the untrusted and Theorem 6.2 for the trusted server: sigma and eta.
    """
    squared = 1 if unit_norm else features
    G, L = gradient_bound(squared), smoothness(squared)
    S = G + 2 * L * diameter
    clip = S if clip_norm is None else min(clip_norm, S)
    d = classes * features
    sigma = 2 * clip * math.sqrt(rounds) / rho
    shared = machines if server == "trusted" else math.sqrt(machines)
    unit = 1 / (4 * L * rounds)
    theorem = min(rho * diameter * shared / (2 * clip * rounds * math.sqrt(d)), unit)
    eta = theorem if eta_scale is None else eta_scale * unit
    if d > MAX_COORDINATES or max(machines, rounds) > MAX_NUMBER:
        raise InputError(
            f"{d} coordinates, {machines} machines and {rounds} rounds are more than the noise has numbers "
            f"for: at most {MAX_COORDINATES}, {MAX_NUMBER} and {MAX_NUMBER}"
        )
    if not (math.isfinite(sigma) and eta > 0):
        raise InputError(
            f"rho = {rho:g} and diameter = {diameter:g} leave the range of floating-point numbers"
        )
    draws = machines if aggregate_noise else 1
    resolution = choose_resolution(clip, G, sigma, d, machines, rounds, draws)
    return Schedule(
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
        rho=rho,
        sigma=sigma,
        eta=eta,
        by_theorem=clip >= S and eta == theorem,
        resolution=resolution,
        bound=clipping_bound(clip, resolution, d),
        aggregate_noise=aggregate_noise,
    )
