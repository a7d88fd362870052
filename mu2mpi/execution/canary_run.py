"""Canaries in the messages of a run, for an audit of that run: `mu2mpi.audit.one_run`.

A canary is one more sample of a machine. Its increment is as long as clipping allows, along a coordinate that
no other canary changes. A secret coin chooses whether it is in; a canary that is out has the opposite
increment, or none, as the neighbouring relation says. If a sample affects all sums, so does a canary;
otherwise its increment is in one message.
"""

import hashlib
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mu2mpi.core.arrays import BoolArray, IntArray, UInt32Array
from mu2mpi.core.errors import InputError
from mu2mpi.execution.plan import Plan
from mu2mpi.federation.machine import Machines
from mu2mpi.federation.servers.server import Server
from mu2mpi.privacy.noise.noise_source import NoiseSource
from mu2mpi.privacy.noise.noise_stream import MACHINE_STREAM, derive_key, padded_zeros
from mu2mpi.results.canary_scores import CanaryScores


class _ObservedMessage(NamedTuple):
    """Noise of a message that the adversary observes, its canaries, and those that it shows."""

    noise_source: NoiseSource
    own: BoolArray  # of each canary
    shown: BoolArray


class Canaries:
    """Canaries of a run and their scores so far, in grid units; a rank holds its share of the scores."""

    def __init__(self, plan: Plan) -> None:
        self._plan, self.constants, self._m = plan, plan.constants, plan.experiment.canaries or 0
        problem, mechanism, rounds = plan.constants.problem, plan.constants.mechanism, plan.constants.rounds
        self.scores = np.zeros(self._m, np.int64)
        # In the last round, a central server adds no noise to messages, which change no iterate.
        released = rounds - problem.trust_mode.is_central
        self._is_in_all_sums = getattr(mechanism, "affected_sums", 1) == rounds
        self._n_messages = released if self._is_in_all_sums else 1
        self._rounds = np.arange(self._m) % max(1, released) + 1  # if in one message
        self._relation: str = getattr(mechanism, "neighbours", "replace")
        self._increment = math.floor(mechanism.clip_norm / mechanism.grid_spacing)
        # The adversary observes a message of one machine, or a sum with as much noise.
        self._sigma_score = mechanism.sigma / mechanism.grid_spacing * math.sqrt(self._n_messages)
        if self._m > problem.d or released == 0:
            raise InputError(
                f"--canaries needs a model parameter for each, and two rounds, got {self._m:,} canaries, "
                f"{problem.d:,} parameters and {rounds:,} rounds. Use fewer --canaries or more --rounds."
            )

    def install(self, machines: Machines, server: Server, hosted: range, key: UInt32Array) -> None:
        """Let the rank's machines, or a central server, add canaries with their noise, of this key."""
        problem, mechanism = self.constants.problem, self.constants.mechanism
        secret = derive_key(key.astype("<u4").tobytes(), "canaries")
        self.coordinates = np.random.default_rng(list(secret)).permutation(problem.d)[: self._m]
        self.included = np.frombuffer(hashlib.shake_256(secret).digest(self._m), np.uint8) % 2 == 1
        noisy = server if problem.trust_mode.is_central else machines
        if noisy.noise_source is None:
            return
        messages = [_ObservedMessage(noisy.noise_source, *np.ones((2, self._m), bool))]
        if not problem.trust_mode.is_central:
            messages, own = [], np.arange(self._m) % problem.machines
            for i in hosted:
                # Noise in the sum over machines is known of those that collude: here of the next machines.
                distance = (i - own) % problem.machines
                shown = (distance == 0) | (distance > problem.colluders)
                stream = MACHINE_STREAM, i, 1
                source = mechanism.noise_source(
                    key, stream, 1 / problem.noise_shares, machines.flat_noised.size
                )
                messages.append(_ObservedMessage(source, own == i, shown))
        noisy.noise_source = CanaryNoiseSource(self, messages, problem.d)

    def increments(self, t: int) -> IntArray:
        """Return what each canary adds to the message of round t, in grid units; shape (m,)."""
        out = -self._increment if self._relation == "replace" else 0
        return np.where(self.included, self._increment, out) * self.are_active(t)

    def are_active(self, t: int) -> BoolArray:
        """Whether the message of round t contains the increment of each canary."""
        return self._is_in_all_sums | (self._rounds == t)

    def scores_of_run(self, scores: IntArray, run_digest: str) -> CanaryScores:
        """Return the scores of the finished run, as gathered on rank 0, with their coins."""
        means = self._n_messages * self._increment * (0.0 if self._relation == "replace" else 0.5)
        mechanism = self.constants.mechanism
        gap = self._n_messages * mechanism.sensitivity / mechanism.grid_spacing
        floats = scores - means, self.included, self._sigma_score, gap / self._sigma_score
        return CanaryScores(*floats, self._relation, run_digest)


class CanaryNoiseSource:
    """Noise source that also adds canaries, and adds up what the adversary observes of each: its score.

    The adversary knows all samples, so what they add to messages is subtracted: increments depend on samples
    and query points alone. The noised sum of a trusted server follows from the query points unless the ball
    is reached, and the guarantee covers it in any case.
    """

    def __init__(self, canaries: Canaries, messages: Sequence[_ObservedMessage], d: int) -> None:
        self._canaries, self._messages = canaries, messages
        self._flat_increments, _ = padded_zeros((1, d))
        self._flat_noised, _ = padded_zeros((1, d))

    def __call__(self, noised: IntArray, message: IntArray, t: int) -> None:
        """Set ``noised`` to ``message`` plus the canaries and the noise of round t."""
        canaries, coordinates = self._canaries, self._canaries.coordinates
        active, increments = canaries.are_active(t), canaries.increments(t)
        # The sum of all increments of canaries in a coordinate is at most one clipping norm, so that the sum
        # of messages stays within twice the bound of the grid's range, and within 64 bits.
        np.copyto(noised, message)
        for source, own, shown in self._messages:
            self._flat_increments[:] = 0
            self._flat_increments[coordinates[own]] = increments[own]
            source(self._flat_noised, self._flat_increments, t)
            noised += self._flat_noised
            shown = shown & active
            canaries.scores[shown] += self._flat_noised[coordinates[shown]]
