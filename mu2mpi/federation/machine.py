"""What the machines of one rank do in a round: use their samples, keep their sum, hide it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.source import Labels, classes_of
from mu2mpi.federation.participants import RoundParticipants
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.subsampling import users
from mu2mpi.losses.model.linear import BATCH
from mu2mpi.privacy.mechanisms.mechanism import per_machine_noise_source
from mu2mpi.privacy.noise.noise_stream import AGGREGATE, MACHINE, padded_zeros


@dataclass(frozen=True)
class HostedSamples:
    """Samples of one rank in consecutive rounds, by round and machine; or once, if every round uses them."""

    features: NDArray[np.generic]  # in the stored type, shape (samples, F - 1)
    labels: Labels  # shape (samples,)
    scales: NDArray[np.float64]  # factors that take stored features to those of z, shape (samples,)
    sizes: NDArray[np.int64]  # how many each machine uses in each round, shape (rounds, machines)
    first_round: int = 1
    bias: float = 1.0  # the bias feature

    @cached_property
    def rounds(self) -> range:
        """The rounds that these samples are for."""
        return range(self.first_round, self.first_round + len(self.sizes))

    @cached_property
    def _ends(self) -> list[int]:
        # Python's own numbers, which are at hand faster than those of an array.
        return [0, *np.cumsum(self.sizes.sum(axis=1)).tolist()]

    @cached_property
    def _bounds(self) -> NDArray[np.int64]:
        return np.append(0, np.cumsum(self.sizes))

    def of_machine(self, t: int, machine: int) -> tuple[int, int]:
        """Return the same of one of the machines, by its number among these."""
        place = (t - self.first_round) * self.sizes.shape[1] + machine
        return int(self._bounds[place]), int(self._bounds[place + 1])

    @property
    def are_same(self) -> bool:
        """Whether each round uses all of them."""
        return self._ends[-1] > len(self.labels)

    def of(self, t: int) -> tuple[int, int]:
        """Return the numbers of the first sample of one of the rounds, and of the one after its last."""
        if self.are_same:
            return 0, len(self.labels)
        return self._ends[t - self.first_round], self._ends[t - self.first_round + 1]


MOST_COUNTS = 10_000_000  # machines times classes up to which it is counted what each machine gets
Supply = Callable[[int], HostedSamples]  # the samples of a round and of those after it that are read with it
_NOTHING = HostedSamples(np.empty((0, 0)), np.empty(0, np.int32), np.empty(0), np.empty((0, 0), np.int64))


def counted_classes(constants: RunConstants) -> int:
    """Return of how many classes it is counted what each machine spends: of all, or of too many none."""
    task = constants.task
    return task.classes if task.machines * task.classes <= MOST_COUNTS else 0


class Machines:
    """The machines hosted by one rank, of which no machine may draw noise without a key.

    They keep one vector together, as sums of integers do not depend on how they are split: `q`, the sum of
    q_{t,i} or of gradients, shape (rows, F), in units of the grid, not noised; `flat_q` as noise is drawn.
    """

    def __init__(
        self, constants: RunConstants, hosted: range, supply: Supply, key: NDArray[np.uint32] | None
    ) -> None:
        task, mechanism, plan = constants.task, constants.mechanism, constants.task.per_machine
        self.constants = constants
        self.first, self.count = hosted.start, len(hosted)
        self.samples = _NOTHING
        self._supply = supply
        self._add = constants.estimator.kernel(task.problem, task.rows)
        self._lasts = constants.estimator.lasts
        self._bound, self._resolution = constants.clip_bound, mechanism.resolution
        self._apart = constants.per_machine_clipping(hosted)
        # With aggregate noise, the host of the first machine draws for all.
        draws = (plan or mechanism).is_noisy and self.count > 0
        self._draws = draws and not (task.aggregate_noise and self.first > 0)
        self._class_counts = np.zeros((self.count, counted_classes(constants)), dtype=np.int64)
        # Two machines gain less from sharing a batch than they lose by its empty places.
        self._batch = BATCH if task.machines > 2 else 1
        self.key = key
        self.flat_q, self.q = padded_zeros((task.rows, task.features))
        self.largest_squared_norm = 0.0
        self.clipped = 0
        self._flat_noised, self._noised = padded_zeros(self.q.shape)
        if not (self._draws and key is not None):
            return
        size = self.flat_q.size
        if plan is not None:
            participants, own = RoundParticipants(plan.participation, hosted), plan.mechanisms_of(hosted)
            self._draw = per_machine_noise_source(own, key, self.first, participants, self._lasts, size)
        elif task.aggregate_noise:
            self._draw = mechanism.noise_source(key, (AGGREGATE, 0, 1), task.machines, size)
        else:
            who = (MACHINE, self.first, self.count)
            self._draw = mechanism.noise_source(key, who, 1 / task.parts, size)

    def read(self, t: int) -> HostedSamples:
        """Have the samples of round t at hand, and return them with those that were read with them."""
        if t not in self.samples.rounds:
            self._class_counts = self.class_counts(t - 1)
            # What is used up goes before its successor comes, so that memory never holds both.
            self.samples = _NOTHING
            self.samples = self._supply(t)
        return self.samples

    def class_counts(self, t: int) -> NDArray[np.int64]:
        """Return how many samples of each class each machine has spent; (machines, 0) if too many."""
        counts = self._class_counts
        if counts.size == 0:
            return counts
        rounds, times = max(0, t + 1 - self.samples.first_round), 1
        if rounds and self.samples.are_same:
            rounds, times = 1, rounds
        machines = users(self.samples.sizes[:rounds])
        labels = classes_of(self.samples.labels[: len(machines)], counts.shape[1])
        places = machines * counts.shape[1] + labels
        return counts + times * np.bincount(places, minlength=counts.size).reshape(counts.shape)

    def observe(self, t: int, x: NDArray[np.float64], x_previous: NDArray[np.float64]) -> None:
        """Use each machine's samples z_{t,i}: q_{t,i} = q_{t-1,i} + s_{t,i}, or their gradients alone."""
        samples = self.read(t)
        points = x, x_previous, samples.features, samples.labels, samples.scales, samples.bias
        if self._apart is None:
            sizes = self._bound, self._resolution, self._batch
            self._count(*self._add(self.q, *points, *samples.of(t), t, *sizes))
            return
        # What does not last is made anew by each call.
        sums = None if self._lasts else np.zeros_like(self.q)
        for machine, bound, resolution in self._apart:
            first, end = samples.of_machine(t, machine)
            if first < end:
                sizes = bound, resolution, self._batch
                self._count(*self._add(self.q, *points, first, end, t, *sizes))
                if sums is not None:
                    sums += self.q
        if sums is not None:
            np.copyto(self.q, sums)

    def _count(self, largest: float, clipped: int) -> None:
        self.largest_squared_norm = max(self.largest_squared_norm, largest)
        self.clipped += clipped

    def noised(self, t: int) -> NDArray[np.int64]:
        """Return the sum of q~_{t,i} = q_{t,i} + Y_{t,i}, in an array that the next call reuses."""
        if not self._draws:
            return self.q
        if self.key is None:
            raise RuntimeError("these machines hold no noise key")
        self._draw(self._flat_noised, self.flat_q, t)
        return self._noised
