"""What a run claims of its privacy, with all that is needed to compute the claims again, and doing so."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mu2mpi.errors import InputError
from mu2mpi.privacy.accountant import Releases, epsilon_exact, epsilon_paper, rho_of
from mu2mpi.privacy.iteration import growing_batches, hidden_rho
from mu2mpi.privacy.sampler import EXACT, Deviation, deviation, is_negligible, with_sampler
from mu2mpi.privacy.subsampling import SUBSAMPLED, is_covered, poisson_epsilon, with_replacement_epsilon

__all__ = [
    "ADJACENCY",
    "ALL_RELEASES",
    "LARGE_EPSILON",
    "LAST_ITERATE",
    "UNIT",
    "Concern",
    "PrivacyStatement",
    "agree",
    "check_sampler",
    "concerns",
    "draws",
    "mismatches",
    "recomputed",
    "releases",
    "samples_used",
]

ADJACENCY = "replace-one"
UNIT = "one sample of one machine"
"""What is replaced."""

ALL_RELEASES, LAST_ITERATE = "all releases", "last iterate"
"""What is protected: all that the server's trust mode says, or the last iterate from who sees no other."""

LARGE_EPSILON = 10.0
"""Beyond it a guarantee says little: what is seen may be e^10 = 22,026 times as likely with one sample."""


@dataclass(frozen=True)
class PrivacyStatement:
    """The guarantee of one run, with everything that is needed to recompute it.

    Neighbouring data sets differ in one sample of one machine, which is replaced.

    Attributes
    ----------
    server : str
        ``"untrusted"``: the guarantee holds for everything that leaves a machine, {q~_{t,i}};
        ``"trusted"``: for everything that leaves the server, {x_t}. See `protects`.
    rho : float
        The releases are (a, a rho^2 / 2)-RDP for every order a > 1; infinite without noise, and NaN if this
        is not how they are accounted for.
    delta, epsilon, epsilon_exact : float
        (epsilon, delta)-DP by the paper's lemma, and the smallest epsilon that holds at this delta. Without
        a rho, both are the one that the accountant gives.
    S : float
        The bound G + 2LD on the norm of an increment.
    clip_norm : float
        The norm to which increments are clipped; the sensitivity of every sum is twice this.
    sigma : float
        Standard deviation of each coordinate of each draw of noise, for the sum over machines. Where batches
        grow, that for a batch of one sample of each machine, and as many times larger for a batch.
    rounds, machines : int
        T and M: how often something is released, and over how many machines it is summed up.
    touched : int
        How many of the releases one sample can change: all T of them if it stays in what is sent, as with
        corrected momentum, and 1 with plain gradients.
    parameters : int
        The number of coordinates d.
    resolution : float
        Spacing of the grid on which messages lie.
    noise_recomputable : bool
        Whether the noise follows from a seed that is written down, so that nothing is hidden from
        whoever knows it.
    adjacency, unit : str
        Always ``"replace-one"``, and ``"one sample of one machine"``.
    accountant : str
        ``"gaussian"`` if one sample is in some Gaussian releases, from which rho follows; ``"last-iterate"``
        if noise of later steps counts, too. Where samples are drawn at random: ``"strong-composition"``, Lowy
        and Razaviyayn's theorem, or ``"pld"``, the distribution of the privacy loss by dp-accounting.
    samples : int
        The number n of samples that each machine uses, or draws from.
    drawn : float
        How many of them it uses in the first round, or draws in any.
    noise : str
        ``"protocol"``; or ``"aggregate"`` if the noise of all machines was drawn as one: then this is the
        guarantee of the protocol that was simulated, and not of the messages that were sent.
    protects : str
        ``"all releases"``; or ``"last iterate"`` if the guarantee holds for the output alone, from whoever
        sees nothing of the rounds before: every machine sees them, and has to be trusted with them.
    growth : float
        How large batches grow so that later noise hides earlier samples (`growing_batches`); else 0.
    epsilon_sampler : float
        What of `epsilon_exact` is due to noise that is drawn, in place of exact rounded normals.
    """

    server: str
    rho: float
    delta: float
    epsilon: float
    epsilon_exact: float
    S: float
    clip_norm: float
    sigma: float
    rounds: int
    machines: int
    touched: int
    parameters: int
    resolution: float
    noise_recomputable: bool
    adjacency: str = ADJACENCY
    unit: str = UNIT
    noise: str = "protocol"
    protects: str = ALL_RELEASES
    growth: float = 0.0
    accountant: str = "gaussian"
    samples: int = 0
    drawn: float = 1.0
    epsilon_sampler: float = 0.0


def releases(statement: PrivacyStatement, rounds: int | None = None) -> list[Releases]:
    """Return what of the releases of a run, or of those up to some round, one sample can change.

    It is in one increment, of norm at most C, and so moves every sum in which that is by at most 2 C. Given
    the releases before it, any other is the same whatever the sample is, and tells nothing of it.
    """
    done = statement.rounds if rounds is None else rounds
    if statement.protects == LAST_ITERATE:
        return [_last_iterate(statement)] if done == statement.rounds else []
    return [Releases(2 * statement.clip_norm, statement.sigma, min(done, statement.touched))]


def _last_iterate(statement: PrivacyStatement) -> Releases:
    """Return the one release that tells as much as the last iterate does of the sample it tells most of."""
    batches = _batches(statement)
    noise, machines = statement.sigma / statement.machines, statement.machines
    rho = hidden_rho(
        batches, machines, statement.clip_norm, noise, statement.resolution, statement.parameters
    )
    return Releases(float(rho.max()), 1.0)


def _batches(statement: PrivacyStatement) -> NDArray[np.int64]:
    """Return the batches of each machine in the steps of which the last iterate alone is seen."""
    return growing_batches(max(1, statement.rounds - 1), statement.growth)


def draws(statement: PrivacyStatement) -> Deviation:
    """Return how far the noise of all releases that tell of one sample is from exact rounded normals."""
    if statement.sigma == 0:
        return EXACT
    smallest = largest = statement.sigma / statement.resolution
    messages = statement.touched
    if statement.protects == LAST_ITERATE:
        batches = _batches(statement)
        smallest, largest = smallest * int(batches.min()), largest * int(batches.max())
        messages = statement.rounds
    if statement.noise == "aggregate":
        smallest = largest = smallest * math.sqrt(statement.machines)
    return deviation(statement.parameters, messages, smallest, largest)


def recomputed(statement: PrivacyStatement) -> PrivacyStatement:
    """Return the statement with rho and all epsilons computed again from what was released.

    Raises
    ------
    InputError
        If the accountant is dp-accounting, and not installed.
    """
    rho, exact_at = _with_exact_noise(statement)
    lemma_at = exact_at if math.isnan(rho) else partial(epsilon_paper, rho)
    delta, of_all = statement.delta, draws(statement)
    epsilon, exact = with_sampler(exact_at, delta, of_all), exact_at(delta)
    return replace(
        statement,
        rho=rho,
        epsilon=with_sampler(lemma_at, delta, of_all),
        epsilon_exact=epsilon,
        epsilon_sampler=epsilon - exact if math.isfinite(exact) else 0.0,
    )


def check_sampler(statement: PrivacyStatement) -> None:
    """Raise InputError if so many draws on so fine a grid cost more of epsilon than is left to them."""
    _, exact_at = _with_exact_noise(statement)
    exact = exact_at(statement.delta)
    if not is_negligible(statement.epsilon_exact, exact, statement.delta):
        raise InputError(
            f"{statement.rounds:,} rounds of {statement.parameters:,} coordinates take more draws of noise "
            f"than are known to be as good as exact ones with rho = {statement.rho:g}; give fewer --rounds, "
            "or a larger --rho"
        )


def _with_exact_noise(statement: PrivacyStatement) -> tuple[float, Callable[[float], float]]:
    """Return rho, or NaN, and what gives the epsilon at a delta that exact noise would have."""
    if statement.accountant in SUBSAMPLED and statement.sigma > 0:
        return math.nan, partial(_subsampled_epsilon, statement)
    rho = rho_of(releases(statement))
    return rho, partial(epsilon_exact, rho)


def _subsampled_epsilon(statement: PrivacyStatement, delta: float) -> float:
    """Return the epsilon of releases about samples that are drawn at random."""
    C, sigma, rounds = statement.clip_norm, statement.sigma, statement.rounds
    if statement.accountant == "pld":
        return poisson_epsilon(C, statement.drawn / statement.samples, rounds, sigma, delta)
    drawn = round(statement.drawn)
    return with_replacement_epsilon(C, statement.samples, drawn, rounds, sigma, delta)


def agree(claimed: float, computed: float) -> bool:
    """Return whether two numbers differ by rounding errors alone."""
    both_unknown = math.isnan(claimed) and math.isnan(computed)
    return both_unknown or math.isclose(claimed, computed, rel_tol=1e-9, abs_tol=1e-12)


def mismatches(statement: PrivacyStatement) -> list[str]:
    """Say what a statement claims that does not follow from its own numbers; empty if all does."""
    found = [
        f"{name} is {value!r}, and there is only {' and '.join(map(repr, known))}"
        for name, value, known in (
            ("server", statement.server, ("untrusted", "trusted")),
            ("noise", statement.noise, ("protocol", "aggregate")),
            ("adjacency", statement.adjacency, (ADJACENCY,)),
            ("unit", statement.unit, (UNIT,)),
            ("touched", statement.touched, (1, statement.rounds)),
            ("protects", statement.protects, (ALL_RELEASES, LAST_ITERATE)),
            ("accountant", statement.accountant, ("gaussian", "last-iterate", *SUBSAMPLED)),
        )
        if value not in known
    ]
    if not (0 < statement.delta < 1 and statement.clip_norm > 0 and statement.sigma >= 0):
        return [*found, "delta, clip_norm or sigma is out of range, so nothing can be computed"]
    if statement.accountant in SUBSAMPLED and not (statement.samples > 0 and statement.drawn > 0):
        return [*found, "samples or drawn is out of range, so nothing can be computed"]
    truth = recomputed(statement)
    found += [
        f"{name} = {getattr(statement, name):.10g} is claimed, but {statement.touched:,} releases with "
        f"sigma = {statement.sigma:.10g} and clip_norm = {statement.clip_norm:.10g} give "
        f"{getattr(truth, name):.10g}"
        for name in ("rho", "epsilon", "epsilon_exact", "epsilon_sampler")
        if not agree(getattr(statement, name), getattr(truth, name))
    ]
    if statement.accountant == "strong-composition" and statement.sigma > 0:
        sizes = statement.samples, round(statement.drawn), statement.rounds
        if not is_covered(*sizes, _subsampled_epsilon(statement, statement.delta), statement.delta):
            found.append(
                f"epsilon = {truth.epsilon:.10g} does not follow: its theorem speaks of larger batches than "
                f"drawn = {statement.drawn:g} of {statement.samples:,} samples, or of a smaller epsilon"
            )
    if math.frexp(statement.resolution)[0] != 0.5:
        found.append(f"resolution = {statement.resolution!r} is no power of two, so rounding is not exact")
    # As in `mu2mpi.privacy.grid.clipping_bound`: rounding may take half of the norm at most.
    if statement.resolution * math.sqrt(statement.parameters) > statement.clip_norm:
        found.append(f"clip_norm cannot hold on so coarse a grid as resolution = {statement.resolution!r}")
    return found


class Concern(NamedTuple):
    """Why something is less private than it looks: in a few words, and in a sentence."""

    brief: str
    full: str


def concerns(statement: PrivacyStatement, samples: int | None = None) -> list[Concern]:
    """Say what is not private about a run, or would not be.

    Parameters
    ----------
    statement : PrivacyStatement
        What is claimed.
    samples : int, optional
        Number of samples n of all machines; by default as many as the run used.
    """
    if math.isinf(statement.rho):
        return [Concern("no noise", "No noise was added: there is no privacy guarantee at all.")]
    found = []
    if statement.noise_recomputable:
        found.append(
            Concern(
                "its seed is written down",
                "The noise follows from the seed, which is written down: against anyone who knows it there "
                "is no guarantee. Leave the seed out for data that are private.",
            )
        )
    if statement.protects == LAST_ITERATE:
        found.append(
            Concern(
                "of the last iterate alone",
                "Only the last iterate is protected, which is the output. Every machine sees the iterates "
                "before it and has to be trusted with them; whoever else sees one of them, a message or a "
                "checkpoint may learn more.",
            )
        )
    if statement.noise == "aggregate":
        found.append(
            Concern(
                "noise = aggregate",
                "The noise of all machines is drawn as one (noise = aggregate): this is the guarantee of the "
                "protocol that is simulated, and not of the messages that are sent.",
            )
        )
    return found + size_concerns(statement.epsilon_exact, statement.delta, samples or _held(statement))


def size_concerns(epsilon: float, delta: float, samples: int | None) -> list[Concern]:
    """Say whether epsilon or delta is so large that it protects little; `samples` is n, if it is known."""
    found = []
    if samples is not None and delta * samples >= 1:
        found.append(
            Concern(
                f"delta is not below 1/n = {1 / samples:.2g}",
                f"delta = {delta:g} is not below 1/n for n = {samples:,} samples: to publish one of them, "
                "chosen at random, has no larger a delta.",
            )
        )
    if epsilon > LARGE_EPSILON:
        brief = f"epsilon is beyond {LARGE_EPSILON:g}"
        found.append(
            Concern(
                brief,
                f"{brief}, which protects little: what is seen may be more than e^{LARGE_EPSILON:g} = "
                f"{math.exp(LARGE_EPSILON):,.0f} times as likely with one sample as with another.",
            )
        )
    return found


def samples_used(statement: PrivacyStatement) -> int:
    """Return how many samples of all machines a run used, each counted once, or may have used."""
    if statement.accountant == "strong-composition":
        return statement.machines * min(statement.samples, round(statement.drawn) * statement.rounds)
    return _held(statement)


def _held(statement: PrivacyStatement) -> int:
    """Return from how many samples a run took its own: one a machine and round, batches, or all there are."""
    if statement.protects == LAST_ITERATE:
        return statement.machines * int(_batches(statement).sum())
    return statement.machines * (statement.samples or statement.rounds)
