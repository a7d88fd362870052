"""The paper's two algorithms and their constants in plain float64 numpy: the truth for other tests.

Written from the paper alone, and on purpose without what makes the package fast: dense gradients
instead of rank-one increments, one estimate per machine instead of their sum, floating-point
messages instead of integers on a grid. Nothing here imports the package.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
NoiseOfMachine = Callable[[int, int], Array]
NoiseOfSum = Callable[[int], Array]

DIGITS = 60


# ---------------------------------------------------------------- multinomial logistic regression


def add_bias(features: NDArray) -> Array:
    """Return the features in float64 with the constant feature 1 as the last entry."""
    features = np.asarray(features, dtype=np.float64)
    return np.concatenate([features, np.ones((*features.shape[:-1], 1))], axis=-1)


def unit_samples(features: NDArray) -> Array:
    """Return samples of norm 1: features scaled to norm sqrt(1 - 0.1^2), then the constant feature 0.1."""
    features = np.asarray(features, dtype=np.float64)
    norms = np.sqrt((features**2).sum(axis=-1, keepdims=True))
    z = add_bias(features / np.where(norms > 0, norms, 1.0) * math.sqrt(0.99))
    z[..., -1] = 0.1
    return z


def samples(features: NDArray, unit: bool) -> Array:
    """Return samples with their bias feature, of norm 1 if `unit`."""
    return unit_samples(features) if unit else add_bias(features)


def softmax(x: Array, z: Array) -> Array:
    """Return the probabilities of the K classes for one sample z (F,) under the model x (K, F)."""
    scores = x @ z
    powers = np.exp(scores - scores.max())
    return powers / powers.sum()


def softmax_loss(x: Array, z: Array, label: int) -> float:
    """Return f(x; z) = -log softmax(x z)[label], natural logarithm."""
    scores = x @ z
    top = scores.max()
    return float(top + np.log(np.exp(scores - top).sum()) - scores[label])


def gradient(x: Array, z: Array, label: int) -> Array:
    """Return the gradient of f(.; z) at x, dense, shape (K, F)."""
    residual = softmax(x, z)
    residual[label] -= 1.0
    return np.outer(residual, z)


def mean_loss(x: Array, features: NDArray, labels: NDArray, unit: bool = False) -> float:
    """Return the mean loss over a test set with features (N, F-1) and labels (N,)."""
    z = samples(features, unit)
    return float(np.mean([softmax_loss(x, z[n], int(labels[n])) for n in range(len(z))]))


def accuracy(x: Array, features: NDArray, labels: NDArray, unit: bool = False) -> float:
    """Return the share of samples whose highest score, the lowest class among equals, is the label's."""
    z = samples(features, unit)
    return float(np.mean([int(np.argmax(x @ z[n])) == int(labels[n]) for n in range(len(z))]))


# ---------------------------------------------------------------------------------- the constants


def lipschitz(F: int) -> float:
    """Return G = sqrt(2F), for features within [-1, 1], the bias counted in F."""
    return math.sqrt(2 * F)


def smoothness(F: int) -> float:
    """Return L = F/2, for features within [-1, 1], the bias counted in F."""
    return F / 2


def increment_bound(F: int, D: float) -> float:
    """Return S = G + 2LD (Lemma 4.2), D the diameter of K."""
    return lipschitz(F) + 2 * smoothness(F) * D


def noise_scale(S: float, T: int, rho: float) -> float:
    """Return sigma = 2 S sqrt(T) / rho: the noise on the sum over machines, for both servers."""
    return 0.0 if math.isinf(rho) else 2 * S * math.sqrt(T) / rho


def eta_untrusted(rho: float, D: float, S: float, L: float, M: int, T: int, d: int) -> float:
    """Return the learning rate of Theorem 4.4, min(rho D sqrt(M) / (2 S T sqrt(d)), 1/(4LT))."""
    return min(rho * D * math.sqrt(M) / (2 * S * T * math.sqrt(d)), 1 / (4 * L * T))


def eta_trusted(rho: float, D: float, S: float, L: float, M: int, T: int, d: int) -> float:
    """Return the learning rate of Theorem 5.2, min(rho D M / (2 S T sqrt(d)), 1/(4LT))."""
    return min(rho * D * M / (2 * S * T * math.sqrt(d)), 1 / (4 * L * T))


# ------------------------------------------------------------------------------ the two algorithms


@dataclass(frozen=True)
class Round:
    """What one round t computed: x_t, w_t, and of every machine s_{t,i} and q_{t,i}, (M, K, F)."""

    t: int
    x: Array
    w: Array
    s: Array
    q: Array
    q_noisy_average: Array


def project(w: Array, centre: Array, radius: float) -> Array:
    """Return the point nearest to w in the ball of this centre and radius."""
    distance = float(np.linalg.norm(w - centre))
    return w if distance <= radius else centre + (w - centre) * (radius / distance)


def clip(s: Array, norm: float) -> Array:
    """Return s, scaled down to this norm if it is longer."""
    length = float(np.linalg.norm(s))
    return s if length <= norm else s * (norm / length)


def kept(s: Array, norm: float, grid_spacing: float) -> Array:
    """Return s, clipped to what keeps to this norm once it is rounded to a grid; no grid if that is 0."""
    if grid_spacing == 0:
        return clip(s, norm)
    return np.rint(clip(s, norm - grid_spacing * math.sqrt(s.size) / 2) / grid_spacing) * grid_spacing


class Machine:
    """The state d_{t,i}, q_{t,i} of one machine and the lines of the boxes that update it."""

    def __init__(
        self, shape: tuple[int, ...], clip_norm: float | None = None, grid_spacing: float = 0.0
    ) -> None:
        self.grid_spacing = grid_spacing
        self.d = np.zeros(shape)
        self.q = np.zeros(shape)
        self.s = np.zeros(shape)
        self.clip_norm = clip_norm

    def estimate(self, t: int, x: Array, x_previous: Array, z: Array, label: int) -> Array:
        """Return q_{t,i} after one fresh sample."""
        alpha, beta = t, 1 / t
        g = gradient(x, z, label)
        g_previous = gradient(x_previous, z, label)
        self.s = g + (t - 1) * (g - g_previous)
        if self.clip_norm is None and self.grid_spacing == 0:
            self.d = g + (1 - beta) * (self.d - g_previous)
            self.q = alpha * self.d
        else:
            # The recursion for d hides the increment; clipping and rounding need it in the open.
            self.s = kept(self.s, self.clip_norm or math.inf, self.grid_spacing)
            self.q = self.q + self.s
        return self.q


def next_query(t: int, x: Array, w_next: Array) -> Array:
    """Return x_{t+1}, with alpha_{t+1} = t+1 and alpha_{1:t+1} = (t+1)(t+2)/2."""
    share = (t + 1) / ((t + 1) * (t + 2) / 2)
    return (1 - share) * x + share * w_next


def untrusted_server(
    features: NDArray, labels: NDArray, x1: Array, D: float, rho: float, noise: NoiseOfMachine,
    *own: Any, **others: Any,
) -> tuple[Array, Array]:  # fmt: skip
    """Run Algorithm 1: every machine adds its own noise, ``noise(machine, t)``, before anything leaves it."""

    def of_sum(t: int) -> Array:
        return sum(noise(i, t) for i in range(labels.shape[1]))

    return _algorithm(eta_untrusted, features, labels, x1, D, rho, of_sum, *own, **others)


def trusted_server(*arguments: Any, **others: Any) -> tuple[Array, Array]:
    """Run Algorithm 2: the server adds one draw of noise, ``noise(t)``, to the sum of all machines."""
    return _algorithm(eta_trusted, *arguments, **others)


def _algorithm(
    eta_of: Callable[..., float],
    features: NDArray,
    labels: NDArray,
    x1: Array,
    D: float,
    rho: float,
    noise: NoiseOfSum,
    clip_norm: float | None = None,
    record: list[Round] | None = None,
    unit: bool = False,
    eta_scale: float | None = None,
    grid_spacing: float = 0.0,
) -> tuple[Array, Array]:
    """Return x_T and w_T, of shape (K, F), of either algorithm.

    Features, of shape (T, M, F - 1), are scaled to [-1, 1], or samples to norm 1 if `unit`; K has the
    diameter D about x1; with an infinite rho, `noise` is never called. Increments are clipped to C, which
    takes the place of S in sigma and eta, and rounded to a grid; eta_scale is in units of 1/(4LT). A `Round`
    per round is added to the record.
    """
    T, M = labels.shape
    F = 1 if unit else x1.shape[1]
    S = increment_bound(F, D) if clip_norm is None else clip_norm
    sigma = noise_scale(S, T, rho)
    eta = eta_of(rho, D, S, smoothness(F), M, T, x1.size)
    if eta_scale is not None:
        eta = eta_scale / (4 * smoothness(F) * T)
    z = samples(features, unit)
    machines = [Machine(x1.shape, clip_norm, grid_spacing) for _ in range(M)]
    w, x, x_previous = x1, x1, x1
    for t in range(1, T + 1):
        x_T, w_T = x, w
        q = [
            machine.estimate(t, x, x_previous, z[t - 1, i], int(labels[t - 1, i]))
            for i, machine in enumerate(machines)
        ]
        average = np.mean(q, axis=0)
        if sigma > 0:
            average = average + sigma / M * noise(t)
        if record is not None:
            record.append(Round(t, x, w, np.stack([machine.s for machine in machines]), np.stack(q), average))
        w = project(w - eta * average, x1, D / 2)
        x, x_previous = next_query(t, x, w), x
    return x_T, w_T


# ------------------------------------------------------------------ the methods beside mu^2-SGD


@dataclass
class Setting:
    """What the methods have in common: samples in their order, K, privacy, and the noise of a round.

    `noise(t)` returns the standard normals that the *sum* over machines receives in round t: those of all
    machines together (untrusted server), or one draw (trusted server).
    """

    features: NDArray
    labels: NDArray
    x1: Array
    D: float
    rho: float
    trusted: bool
    noise: NoiseOfSum
    clip_norm: float | None = None
    unit: bool = False
    grid_spacing: float = 0.0

    def __post_init__(self) -> None:
        self.T, self.M = self.labels.shape
        self.F = 1 if self.unit else self.x1.shape[1]
        self.L = smoothness(self.F)
        # By what the average has less noise than one draw.
        self.N = self.M if self.trusted else math.sqrt(self.M)

    def clipping(self, bound: float) -> float:
        return bound if self.clip_norm is None else min(bound, self.clip_norm)

    def gradients(self, t: int, x: Array) -> list[Array]:
        """Return the gradient of each machine's sample of round t at x."""
        z = samples(self.features[t - 1], self.unit)
        return [gradient(x, z[i], int(self.labels[t - 1, i])) for i in range(self.M)]

    def noised(self, t: int, sigma: float, of_machines: list[Array]) -> Array:
        average = np.mean(of_machines, axis=0)
        return average + sigma / self.M * self.noise(t) if sigma > 0 else average

    def project(self, w: Array) -> Array:
        return project(w, self.x1, self.D / 2)

    def squared_error(self, C: float, sigma: float) -> float:
        """Return what E of the squared error of an average gradient, clipped to C and noised, is at most."""
        return C**2 / self.M + self.x1.size * sigma**2 / self.N**2


def parallel_sgd(run: Setting) -> tuple[Array, Array]:
    """Dekel et al. 2012, with the noise of Song et al. 2013: return the mean of w_1 .. w_T, and w_T."""
    C = run.clipping(lipschitz(run.F))
    sigma = 2 * C / run.rho
    eta = 1 / (run.L + math.sqrt(run.squared_error(C, sigma) * run.T) / run.D)
    w = [run.x1]
    for t in range(1, run.T + 1):
        g = run.noised(t, sigma, [kept(g, C, run.grid_spacing) for g in run.gradients(t, w[-1])])
        w.append(run.project(w[-1] - eta * g))
    return np.mean(w[:-1], axis=0), w[-2]


def anytime_sgd(run: Setting) -> tuple[Array, Array]:
    """Cutkosky 2019, Algorithm 1 with alpha_t = t and projected gradient steps: return x_T and w_T."""
    C = run.clipping(lipschitz(run.F))
    sigma = 2 * C / run.rho
    alphas = np.arange(1.0, run.T + 1)
    steps = math.sqrt(run.squared_error(C, sigma) * np.sum(alphas**2))
    eta = min(run.D / steps, 1 / (4 * run.L * run.T))
    w = [run.x1]
    for t in range(1, run.T + 1):
        x = np.tensordot(alphas[:t], np.stack(w), axes=1) / np.sum(alphas[:t])
        g = run.noised(t, sigma, [kept(g, C, run.grid_spacing) for g in run.gradients(t, x)])
        w.append(run.project(w[-1] - eta * t * g))
    return x, w[-2]


def storm(run: Setting) -> tuple[Array, Array]:
    """Cutkosky and Orabona 2019, Algorithm 1 with a_t = 1/t: return w_T twice.

    What a sample adds to t d_t is clipped.
    """
    C = run.clipping(math.inf)
    sigma = 2 * C * math.sqrt(run.T) / run.rho
    eta = 1 / (9 * run.L)
    if sigma > 0:
        eta = min(eta, run.D * run.N / (sigma * math.sqrt(run.x1.size)))
    w = w_previous = run.x1
    q = [np.zeros(run.x1.shape)] * run.M
    for t in range(1, run.T + 1):
        both = zip(run.gradients(t, w), run.gradients(t, w_previous), strict=True)
        increments = [kept(t * g - (t - 1) * h, C, run.grid_spacing) for g, h in both]
        q = [of_machine + s for of_machine, s in zip(q, increments, strict=True)]
        d = run.noised(t, sigma, q) / t
        w, w_previous = run.project(w - eta / math.sqrt(t + 1) * d), w
    return w_previous, w_previous


@dataclass
class Drawn:
    """What the methods have in common that draw their samples at random.

    `features` (M, n, F - 1) and `labels` (M, n) are all samples; `chosen(i, t)` are the numbers of those that
    machine i uses in round t, and `batch` is how many are expected of all machines together. `noise(t)` is
    what the sum over machines receives in units of `sigma`.
    """

    features: NDArray
    labels: NDArray
    chosen: Callable[[int, int], NDArray]
    rounds: int
    batch: float
    x1: Array
    D: float
    C: float
    eta: float
    sigma: float
    noise: NoiseOfSum
    unit: bool = False
    grid_spacing: float = 0.0


def noisy_steps(run: Drawn) -> list[Array]:
    """Return w_1 .. w_{R+1}: each a projected step with the clipped, noised mean of the samples drawn."""
    z = samples(run.features, run.unit)
    w = [run.x1]
    for t in range(1, run.rounds + 1):
        total = np.zeros(run.x1.shape)
        for i in range(len(z)):
            for j in run.chosen(i, t):
                g = gradient(w[-1], z[i, j], int(run.labels[i, j]))
                total = total + kept(g, run.C, run.grid_spacing)
        noised = total + run.sigma * run.noise(t) if run.sigma > 0 else total
        w.append(project(w[-1] - run.eta * noised / run.batch, run.x1, run.D / 2))
    return w


def noisy_minibatch_sgd(run: Drawn) -> tuple[Array, Array]:
    """Lowy and Razaviyayn 2023, Algorithm 1 with equal weights: the mean of w_1 .. w_R, and w_R."""
    w = noisy_steps(run)
    return np.mean(w[:-1], axis=0), w[-2]


def dp_sgd(run: Drawn) -> tuple[Array, Array]:
    """Abadi et al. 2016, Algorithm 1: the last iterate, twice."""
    w = noisy_steps(run)
    return w[-2], w[-2]


def minibatch_constants(
    C: float, n: int, M: int, d: int, D: float, L: float, epsilon: float, delta: float
) -> tuple[int, int]:
    """Return R and K of Theorem D.2 of Lowy and Razaviyayn."""
    smooth = L * D * math.sqrt(M) / C * min(math.sqrt(n), epsilon * n / math.sqrt(d))
    R = math.ceil(smooth + min(n * M, (epsilon * n) ** 2 * M / d))
    K = max(1, math.ceil(epsilon * n / (4 * math.sqrt(2 * R * math.log(2 / delta)))))
    return R, K


def batch_learning_rate(
    C: float, L: float, D: float, R: int, batch: float, noise: float, all_samples: float
) -> float:
    """Return 1 / (L + sqrt(V R) / D), V = C^2 / batch + noise^2 + 4 C^2 R / all_samples.

    `noise` is the norm that the noise of the average has on average, squared and rooted.
    """
    V = C**2 / batch + noise**2 + 4 * C**2 * R / all_samples
    return 1 / (L + math.sqrt(V * R) / D)


# ------------------------------------------------------------------------------ ChaCha20, RFC 8439

WORD = 0xFFFFFFFF


def _rotate_left(word: int, bits: int) -> int:
    return (word << bits | word >> (32 - bits)) & WORD


def _quarter_round(state: list[int], a: int, b: int, c: int, d: int) -> None:
    for first, second, third, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        state[first] = (state[first] + state[second]) & WORD
        state[third] = _rotate_left(state[third] ^ state[first], bits)


def _words(data: bytes) -> list[int]:
    return [int.from_bytes(data[k : k + 4], "little") for k in range(0, len(data), 4)]


def chacha20_block(key: bytes, counter: int, nonce: bytes) -> bytes:
    """Return 64 bytes of key stream (RFC 8439 section 2.3): key 32 bytes, nonce 12, counter 32 bits."""
    if len(key) != 32 or len(nonce) != 12 or not 0 <= counter <= WORD:
        raise ValueError("ChaCha20 takes a key of 32 bytes, a counter of 32 bits and a nonce of 12 bytes")
    start = _words(b"expand 32-byte k") + _words(key) + [counter] + _words(nonce)
    state = list(start)
    for _ in range(10):
        for column in range(4):
            _quarter_round(state, column, column + 4, column + 8, column + 12)
        for k in range(4):
            _quarter_round(state, k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4)
    return b"".join(((a + b) & WORD).to_bytes(4, "little") for a, b in zip(state, start, strict=True))


def noise_words(key: bytes, nonce: tuple[int, int, int], chunk: int) -> NDArray:
    """Return the 256 words of 64 bits of a chunk: word w of 32 blocks before word w + 1 of any."""
    packed = np.array(nonce, "<u4").tobytes()
    blocks = [np.frombuffer(chacha20_block(key, chunk * 32 + b, packed), "<u4") for b in range(32)]
    return np.array(blocks).T.ravel().view("<u8")


# ----------------------------------------------------------------------- privacy of Gaussian noise


def gaussian_delta(epsilon: float | mpmath.mpf, rho: float) -> mpmath.mpf:
    """Return Phi(rho/2 - epsilon/rho) - e^epsilon Phi(-rho/2 - epsilon/rho) to many digits."""
    with mpmath.workdps(DIGITS):
        epsilon, rho = mpmath.mpf(epsilon), mpmath.mpf(rho)
        upper = mpmath.erfc((epsilon / rho - rho / 2) / mpmath.sqrt(2)) / 2
        lower = mpmath.erfc((epsilon / rho + rho / 2) / mpmath.sqrt(2)) / 2
        return upper - mpmath.exp(epsilon) * lower


def epsilon_paper(rho: float, delta: float) -> mpmath.mpf:
    """Return rho^2/2 + rho sqrt(2 log(1/delta)) (Lemma 2.4) to many digits."""
    with mpmath.workdps(DIGITS):
        rho, delta = mpmath.mpf(rho), mpmath.mpf(delta)
        return rho**2 / 2 + rho * mpmath.sqrt(-2 * mpmath.log(delta))


def epsilon_exact(rho: float, delta: float) -> mpmath.mpf:
    """Return the smallest epsilon >= 0 at which noise of sensitivity / sigma = rho is (epsilon, delta)-DP."""
    with mpmath.workdps(DIGITS):
        if gaussian_delta(0, rho) <= delta:
            return mpmath.mpf(0)

        # The logarithm of delta is smooth and steep in epsilon, delta itself vanishes.
        def excess(epsilon: mpmath.mpf) -> mpmath.mpf:
            return mpmath.log(gaussian_delta(epsilon, rho)) - mpmath.log(mpmath.mpf(delta))

        # The paper's lemma bounds the root from above; bisection cannot leave that bracket.
        bracket = (0, epsilon_paper(rho, delta))
        return mpmath.findroot(excess, bracket, solver="bisect", tol=1e-45, maxsteps=300, verify=False)


def epsilon_sampled(
    epsilon_at: Callable[[float], mpmath.mpf], delta: float, draws: int, scale: float
) -> mpmath.mpf:
    """Return what docs/background/sampler.md states for so many draws on a grid of so many units, in full."""
    with mpmath.workdps(DIGITS):
        delta, two = mpmath.mpf(delta), mpmath.mpf(2)
        width = two**-10 if scale > 2**21 else 1 / mpmath.mpf(scale)
        square = draws * (6.5 * two**-49 / width) ** 2
        largest = two**-41 / width + two**-60 / width**2
        ceiling = 1.01 * epsilon_at(delta) + 0.01
        log = ceiling + mpmath.log(2**12 / delta)
        if log > 640:
            return mpmath.inf
        linear = largest * log / 3
        xi = square + linear + mpmath.sqrt(linear**2 + 2 * square * log)
        if 2 * xi > ceiling:
            return mpmath.inf
        epsilon = epsilon_at(delta * (1 - two**-11) * mpmath.exp(-xi)) + 2 * xi
        return epsilon if epsilon <= ceiling else mpmath.inf
