"""Canaries in the messages of a run, for an audit of that run: `mu2mpi.audit.one_run`.

A canary is one more sample of a machine. Its increment is as long as clipping allows, along a coordinate that
no other canary changes. A secret coin chooses whether it is in; a canary that is out has the opposite
increment, or none, as the neighbouring relation says. If a sample affects all sums, so does a canary;
otherwise its increment is in one message.
"""

import hashlib
import math

import numpy as np

from mu2mpi.core.arrays import IntArray, UInt32Array
from mu2mpi.core.errors import InputError
from mu2mpi.execution.plan import Plan
from mu2mpi.federation.machine import Machines
from mu2mpi.federation.servers.server import Server
from mu2mpi.privacy.noise.noise_source import NoiseSource
from mu2mpi.privacy.noise.noise_stream import MACHINE_STREAM, derive_key
from mu2mpi.results.canary_scores import CanaryScores


class Canaries:
    """Noise source that adds canaries besides noise, and adds up what the adversary observes of each.

    The adversary knows all samples, so what they add to messages is subtracted: increments depend on samples
    and query points alone. The noised sum of a trusted server follows from the query points unless the ball
    is reached, and the guarantee covers it in any case. `scores`, of shape (1, canaries), are the rank's
    share of a sum over ranks, in grid units.
    """

    def __init__(self, plan: Plan, machines: Machines, server: Server, key: UInt32Array | None) -> None:
        m, rounds, mechanism = plan.experiment.canaries or 0, plan.constants.rounds, plan.constants.mechanism
        self._problem, self._mechanism, d = plan.constants.problem, mechanism, mechanism.parameters
        is_central, size = self._problem.trust_mode.is_central, machines.flat_message_sum.size
        released = rounds - is_central  # A central server adds no noise to the last sum, which has no step.
        if m > d or released == 0:
            raise InputError(
                f"--canaries needs a model parameter for each, and two rounds, got {m:,} canaries, "
                f"{d:,} parameters and {rounds:,} rounds. Use fewer --canaries or more --rounds."
            )
        is_in_all_sums = getattr(mechanism, "affected_sums", 1) == rounds
        self._n_messages = released if is_in_all_sums else 1
        self._rounds = np.where(is_in_all_sums, 0, np.arange(m) % released + 1)  # 0: all
        self.scores = np.zeros((1, m), np.int64)
        if key is None:
            return
        secret = derive_key(key.astype("<u4").tobytes(), "canaries")
        self._coordinates = np.random.default_rng(list(secret)).permutation(d)[:m]
        self._included = np.frombuffer(hashlib.shake_256(secret).digest(m), np.uint8) % 2 == 1
        is_replaced = mechanism.neighbours == "replace"
        unit = math.floor(mechanism.sensitivity / (1 + is_replaced) / mechanism.grid_spacing)
        self._variants = unit, -unit if is_replaced else 0
        self._increments = np.where(self._included, *self._variants)
        self._flat_increments, self._flat_noised = np.zeros((2, size), np.int64)
        # Noise of each observed message, and its machine
        self._noise_sources: list[tuple[NoiseSource, int | None]] = []
        if is_central and server.noise_source is not None:
            self._noise_sources, server.noise_source = [(server.noise_source, None)], self
        elif machines.noise_source is not None:
            for i in range(machines.first_machine, machines.first_machine + machines.count):
                streams = MACHINE_STREAM, i, 1
                source = mechanism.noise_source(key, streams, 1 / self._problem.noise_shares, size)
                self._noise_sources.append((source, i))
            machines.noise_source = self

    def __call__(self, noised: IntArray, message: IntArray, t: int) -> None:
        """Set ``noised`` to ``message`` plus the canaries and the noise of round t."""
        # The grid has twice the range of all messages, and a coordinate gets one more increment at most.
        np.copyto(noised, message)
        own = observed = active = (self._rounds == 0) | (self._rounds == t)
        for source, machine in self._noise_sources:
            if machine is not None:
                # Colluders, here the next machines, reveal their noise in sums over machines.
                distance = (machine - np.arange(len(active))) % self._problem.machines
                own = active & (distance == 0)
                observed = own | (active & (distance > self._problem.colluders))
            self._flat_increments[:] = 0
            self._flat_increments[self._coordinates] = self._increments * own
            source(self._flat_noised, self._flat_increments, t)
            noised += self._flat_noised
            self.scores[0] += self._flat_noised[self._coordinates] * observed

    def finished_scores(self, scores: IntArray) -> CanaryScores:
        """Return the scores of a finished run, summed over ranks, with their coins."""
        mechanism, n = self._mechanism, self._n_messages
        centred = (scores[0] - n * sum(self._variants) / 2) * mechanism.grid_spacing
        separation = math.sqrt(n) * mechanism.sensitivity / mechanism.sigma
        return CanaryScores(centred / (math.sqrt(n) * mechanism.sigma), self._included, separation)
