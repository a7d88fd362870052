"""FedAvg, FedOpt and SCAFFOLD in plain NumPy, from their papers: what runs with local steps have to equal."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers import reference as ref
from helpers.noise import drawn_noise
from helpers.plain_losses import PLAIN
from mu2mpi.data.partition import iid_rows
from mu2mpi.execution.plan import RunKeys
from mu2mpi.privacy.noise.noise_stream import (
    MACHINE_STREAM,
    SERVER_STREAM,
    derive_key,
    key_to_uint32,
    root_key,
)

SAMPLING_NONCE_WORD = 0x73616D70
SMOOTHNESS = {"softmax": 1 / 2, "logistic": 1 / 4, "squared": 1.0}
"""Smoothness of a loss per feature, for features within [-1, 1]."""


class PlainRun:
    """A run of a simulation with local steps once more, one machine and one sample at a time."""

    def __init__(self, simulation: Any, source: Any) -> None:
        self.experiment, self.constants = simulation.experiment, simulation.constants
        problem, options = self.constants.problem, self.experiment.method_options
        self.M, self.T, self.H = problem.machines, self.experiment.rounds, options.local_steps
        self.n = self.constants.batching.samples_per_machine
        self.K = options.batch or source.training_samples // self.M
        self.hides_machines = getattr(options, "unit", "sample") == "machine"
        root = root_key(self.experiment.seed)
        shape = self.M, self.n
        rows = iid_rows(source.training_samples, *shape, derive_key(root, "dealing"), range(self.M)).T
        stored = source.read_training(rows.ravel())
        features = stored.features.astype(float) * source.feature_scale
        self.z = ref.samples(features, self.experiment.normalize == "unit").reshape(*shape, -1)
        self.labels = stored.labels.reshape(shape)
        self.F = self.z.shape[2]
        loss = self.experiment.loss
        self.residual = PLAIN[loss].residual
        self.zeros = np.zeros((problem.classes if loss == "softmax" else 1, self.F))
        self.key = RunKeys.noise_key(root, self.experiment)
        self.G = ref.lipschitz(self.F) if loss == "softmax" else problem.G
        bound = self.H * self.G if self.hides_machines else self.G
        self.C = min(bound, self.experiment.clip_norm or math.inf)
        self.sigma = self.constants.mechanism.sigma  # Whole machines: tests of the mechanism
        if not self.hides_machines:
            self.sigma = 2 * self.C * math.sqrt(math.ceil(self.H * self.K * self.T / self.n))
            self.sigma /= self.experiment.rho
        self.eta = self.experiment.eta_scale / (SMOOTHNESS[loss] * self.F + problem.l2)

    def noise(self, stream: int, machine: int, number: int, sigma: float) -> Any:
        """Return a draw of noise of this std."""
        if sigma == 0:
            return 0.0
        mechanism = replace(self.constants.mechanism, sigma=sigma)
        constants = replace(self.constants, mechanism=mechanism)
        return sigma * drawn_noise(constants, key_to_uint32(self.key), stream, machine, number)

    def takes_part(self, machine: int, t: int) -> bool:
        """Whether a machine is sampled: whether its first 64 random bits of a round are below 2^64 q."""
        if not self.hides_machines:
            return True
        nonce = np.array([SAMPLING_NONCE_WORD, machine, t], "<u4").tobytes()
        key = derive_key(self.key, "sampling")
        low, high = (int.from_bytes(ref.chacha20_block(key, b, nonce)[:4], "little") for b in (0, 1))
        return (high << 32 | low) < int(math.ldexp(self.q, 64))

    @property
    def q(self) -> float:
        """Probability of a machine to take part in a round."""
        return (self.experiment.method_options.participants or self.M) / self.M

    def rounded(self, array: NDArray) -> NDArray:
        return np.rint(array / self.spacing) * self.spacing

    @property
    def spacing(self) -> float:
        return self.constants.mechanism.grid_spacing

    def gradient_sum(self, machine: int, y: NDArray, first: int) -> NDArray:
        """Return the sum of clipped gradients at y of K samples in cyclic order from number `first` on."""
        total = np.zeros_like(y)
        for k in range(first, first + self.K):
            z, label = self.z[machine, k % self.n], self.labels[machine, k % self.n]
            gradient = np.outer(self.residual(y @ z, label), z)
            if self.hides_machines:
                total += self.rounded(ref.clip(gradient, min(self.G, 1000 * self.C)))
            else:
                total += ref.kept(gradient, self.C, self.spacing)
        return total

    def local_steps(self, machine: int, t: int, x: NDArray, correction: Any) -> tuple[NDArray, NDArray]:
        """Return the model of a machine after its steps from x, and its mean noised gradient."""
        y, total = x, np.zeros_like(x)
        for h in range(self.H):
            step = (t - 1) * self.H + h
            g = self.gradient_sum(machine, y, step * self.K)
            if not self.hides_machines:
                g = g + self.noise(MACHINE_STREAM, machine, step + 1, self.sigma)
            y = y - self.eta * (g / self.K + correction)
            total = total + g
        return y, total / (self.H * self.K)

    def mean_step(self, t: int, x: NDArray) -> NDArray:
        """Return the mean of the machines' displacements from x in FedAvg."""
        if not self.hides_machines:
            return np.mean([self.local_steps(i, t, x, 0.0)[0] for i in range(self.M)], axis=0) - x
        total = np.zeros_like(x)
        for i in range(self.M):
            if self.takes_part(i, t):
                message = self.H * self.local_steps(i, t, x, 0.0)[1]
                total += ref.kept(message, self.C, self.spacing)
        if self.experiment.server == "trusted":
            total = total + self.noise(SERVER_STREAM, 0, t, self.sigma)
        else:
            share = self.sigma / math.sqrt(self.constants.mechanism.noise_shares)
            total = total + sum(self.noise(MACHINE_STREAM, i, t, share) for i in range(self.M))
        return -self.eta * total / (self.q * self.M)

    def scaffold_steps(self, x: NDArray) -> Any:
        """Yield the mean displacement in each round of SCAFFOLD with control variates of option II."""
        control, controls = np.zeros_like(x), [np.zeros_like(x)] * self.M
        for t in range(1, self.T):
            ends = [self.local_steps(i, t, x, control - controls[i]) for i in range(self.M)]
            controls = [mean for _, mean in ends]
            control = np.mean(controls, axis=0)
            x = yield np.mean([y for y, _ in ends], axis=0) - x

    def models(self) -> list[NDArray]:
        """Return the server's models x_1 .. x_T."""
        options, models, adam = self.experiment.method_options, [self.zeros] * 2, (0.0, 0.0)
        control_steps = self.scaffold_steps(self.zeros) if self.experiment.method == "scaffold" else None
        for t in range(1, self.T):
            before, x = models[-2:]
            if control_steps is None:
                step = self.mean_step(t, x)
            else:
                step = next(control_steps) if t == 1 else control_steps.send(x)
            decay = (1 - (1 - self.eta * self.constants.problem.l2) ** self.H) * x
            if getattr(options, "server_optimizer", "average") == "adam":
                step, adam = self.adam_step(-step / self.eta, adam, t)
            else:
                step = step + (options.momentum or 0) * (x - before)
            models.append(ref.project(x - decay + step, self.zeros, self.constants.problem.radius))
        return models[1:]

    def adam_step(self, gradient: NDArray, state: Any, t: int) -> tuple[NDArray, Any]:
        """Return the step of FedAdam (Reddi et al., Algorithm 2), with corrected means, and its state."""
        options = self.experiment.method_options
        beta = 0.9 if options.momentum is None else options.momentum
        unit = self.C * (self.H if options.unit == "sample" else 1) / math.sqrt(gradient.size)
        scaled = gradient / unit
        m, v = beta * state[0] + (1 - beta) * scaled, 0.99 * state[1] + 0.01 * scaled**2
        corrected = m / (1 - beta**t), v / (1 - 0.99**t)
        return -self.eta * unit * corrected[0] / (np.sqrt(corrected[1]) + 1e-3), (m, v)

    def output(self, models: list[NDArray]) -> NDArray:
        """Return the mean of the tail, or of all models but the first."""
        tail = self.experiment.tail
        return np.mean(models[1:] if tail is None else models[-math.ceil(tail * self.T) :], axis=0)
