"""What comes before the first round: data on every rank, the size of the run, its constants and keys."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.preset import with_preset
from mu2mpi.data import open_source
from mu2mpi.data.partition import check_rounds, most_rounds
from mu2mpi.data.source import Source
from mu2mpi.errors import InputError
from mu2mpi.federation.sampling import Poisson, Sampling, WithReplacement
from mu2mpi.methods.defaults import PASSES, expected_batch, theorem_batch, theorem_rounds
from mu2mpi.methods.schedule import Schedule, make_schedule
from mu2mpi.methods.snowball import growth_of, most_steps
from mu2mpi.parallel import TURNS, Communicator
from mu2mpi.privacy.noise import derive_key, key_words, root_key
from mu2mpi.problem.logistic import gradient_constants

__all__ = ["Keys", "check_data", "complete", "partition_of", "plan", "shared_source"]

MOST_ROUNDS, MOST_PASSES = 10**6, 10**4
"""Of DP-SGD with noise: to account for more would take gigabytes."""


def shared_source(experiment: Experiment, data_dir: Path | None, communicator: Communicator) -> Source:
    """Open the experiment's data on every rank; the first rank of each node checks the content before."""
    source: Source | None = None
    for turn in range(TURNS):
        with communicator.together():
            if communicator.turn == turn:
                source = open_source(experiment, data_dir, verify=turn < TURNS - 1)
    if source is None:
        raise RuntimeError("this rank had no turn")
    return source


def check_data(source: Source, communicator: Communicator) -> None:
    """Check all samples before anything is sent, and let every rank know their digest.

    The first rank of each node reads them, as nodes may have files of their own; once, however often this
    is called for a source.

    Raises
    ------
    InputError
        On every rank, if a sample cannot be used or two nodes have different data.
    """
    digest: bytes | None = None
    with communicator.together():
        if communicator.turn < TURNS - 1:
            digest = source.digest
    found = [(host, of) for host, of in communicator.allgather((communicator.host, digest)) if of is not None]
    host, source.digest = found[0]
    with communicator.together():
        other = next((other for other, of in found if of != source.digest), None)
        if other is not None:
            raise InputError(
                f"{source.name} is not the same on all nodes: the training data that {other} reads differ "
                f"from those on {host}; give every node the same, on a shared file system or as copies"
            )


def partition_of(experiment: Experiment, source: Source) -> str:
    """Return how the samples are dealt: by default to their owners, if they have any, or else at random."""
    return experiment.partition or ("owner" if source.has_owners else "iid")


def complete(experiment: Experiment, source: Source, ranks: int) -> Experiment:
    """Return the experiment with M, T and the batch filled in, and with what its preset chooses.

    By default there is one machine an owner or a rank, and as many rounds as the samples of a machine allow,
    or as suit a method that draws them at random.

    Raises
    ------
    InputError
        If the machines cannot be given samples.
    """
    partition = partition_of(experiment, source)
    machines = experiment.machines or (len(source.owner_sizes) if partition == "owner" else ranks)
    if experiment.pieces.draws:
        return _with_batches(experiment, source, machines)
    rounds = experiment.rounds or _rounds_of(experiment, source, machines)
    if experiment.pieces.hides_iterates and source.population is None:
        # Each step takes a sample at least, and it takes memory to say how many more.
        check_rounds(most_rounds(source, machines, partition), machines, rounds, rounds - 1)
    return with_preset(experiment.with_size(machines, rounds))


def _rounds_of(experiment: Experiment, source: Source, machines: int) -> int:
    """Return for how many rounds the samples of each machine suffice."""
    samples = samples_of_each(source, machines, partition_of(experiment, source))
    if not experiment.pieces.hides_iterates:
        return samples
    growth = growth_of(machines, source.parameters, experiment.rho)
    steps = most_steps(samples, growth)
    if steps == 0:
        raise InputError(
            f"snowball-sgd with rho = {experiment.rho:g} needs a last batch of {math.ceil(growth):,} samples "
            f"of each machine, which has {samples:,}; give a larger rho, or more machines or samples"
        )
    # The last round shows what the steps made.
    return steps + 1


def samples_of_each(source: Source, machines: int, partition: str) -> int:
    """Return how many samples each machine gets; one of a population could make more.

    Raises
    ------
    InputError
        If the machines cannot be given samples.
    """
    if source.population is not None:
        return max(1, source.training_samples // machines)
    return most_rounds(source, machines, partition)


def _with_batches(experiment: Experiment, source: Source, machines: int) -> Experiment:
    """Fill in M, T and the batch of a method that draws its samples at random."""
    samples = samples_of_each(source, machines, partition_of(experiment, source))
    rounds, batch, epsilon = experiment.rounds, experiment.batch, experiment.target_epsilon
    if experiment.method == "dp-sgd":
        everything = machines * samples
        batch = batch or expected_batch(everything)
        _check_batch(batch, everything, "all machines")
        rounds = rounds or math.ceil(PASSES * everything / batch)
        most = min(MOST_ROUNDS, MOST_PASSES * everything // batch)
        if rounds > most and epsilon < math.inf:
            raise InputError(
                f"{rounds} rounds are too many: with batch = {batch}, the privacy of dp-sgd is accounted for "
                f"in no more than {most}; give at most --rounds {most}"
            )
    else:
        G, L = gradient_constants(source.dimension + 1, experiment.normalize == "unit")
        rounds = rounds or theorem_rounds(
            samples=samples,
            machines=machines,
            d=source.parameters,
            D=experiment.diameter,
            L=L,
            G=min(G, experiment.clip_norm or G),
            epsilon=epsilon,
        )
        wanted = theorem_batch(samples, rounds, epsilon, experiment.delta)
        batch = batch or wanted
        _check_batch(batch, max(samples, wanted), "a machine")
    return experiment.model_copy(update={"machines": machines, "rounds": rounds, "batch": batch})


def _check_batch(batch: int, most: int, whose: str) -> None:
    """Make sure that a round does not draw more samples than there are."""
    if batch > most:
        raise InputError(
            f"batch = {batch} is more than the {most} samples of {whose}; give at most --batch {most}"
        )


def _drawing_of(experiment: Experiment, source: Source) -> Sampling | None:
    """Return how each machine of a completed experiment draws its samples at random, if it does."""
    machines, batch = experiment.machines or 1, experiment.batch or 1
    if not experiment.pieces.draws:
        return None
    samples = samples_of_each(source, machines, partition_of(experiment, source))
    if experiment.method == "dp-sgd":
        return Poisson(samples, batch / (machines * samples))
    return WithReplacement(samples, batch)


def plan(experiment: Experiment, source: Source, ranks: int) -> Schedule:
    """Return the constants of an experiment on a source of data.

    Raises
    ------
    InputError
        If there are too few samples, or no grid of messages can hold the sum of all of them.
    """
    experiment = complete(experiment, source, ranks)
    machines, rounds = experiment.machines or 1, experiment.rounds or 1
    schedule = make_schedule(
        server=experiment.server,
        machines=machines,
        rounds=rounds,
        classes=source.classes,
        features=source.dimension + 1,
        diameter=experiment.diameter,
        rho=experiment.rho,
        clip_norm=experiment.clip_norm,
        unit_norm=experiment.normalize == "unit",
        eta_scale=experiment.eta_scale,
        aggregate_noise=experiment.noise == "aggregate",
        method=experiment.pieces,
        sampling=_drawing_of(experiment, source),
        epsilon=experiment.target_epsilon,
        delta=experiment.delta,
    )
    if source.population is None:
        most = most_rounds(source, machines, partition_of(experiment, source))
        check_rounds(most, machines, rounds, schedule.sampling.owned)
    return schedule


@dataclass(frozen=True)
class Keys:
    """What of a run's randomness this rank holds.

    Attributes
    ----------
    root : bytes or None
        What the others follow from; known to rank 0 alone.
    dealing, sampling : bytes
        Decide which machine gets which samples, and at random which of them it uses when; known to all ranks.
    noise : ndarray of uint32, shape (8,), or None
        Known to every rank if the machines draw the noise, and to rank 0 alone if the server does.
    """

    root: bytes | None
    dealing: bytes
    sampling: bytes
    noise: NDArray[np.uint32] | None

    @staticmethod
    def noise_key(root: bytes, experiment: Experiment) -> bytes:
        """Return the key of the noise of a completed experiment.

        It depends on everything that changes what is sent. If runs with the same secret seed and, say,
        different rho drew the same normals, a difference of their messages would hold no noise.
        """
        return derive_key(root, "noise", experiment.sent().to_toml())

    @classmethod
    def draw(cls, experiment: Experiment, communicator: Communicator, root: bytes | None = None) -> "Keys":
        """Make the keys on rank 0, and give the other ranks those that they need.

        Parameters
        ----------
        experiment : Experiment
            Completed. Its seed, if it has one, is what everything follows from.
        communicator : Communicator
            The ranks.
        root : bytes, optional
            On rank 0: the root of a run that goes on. By default that of the seed, or without a seed a
            new one from the operating system's secure generator.
        """
        is_rank_0 = communicator.rank == 0
        if is_rank_0 and root is None:
            root = os.urandom(32) if experiment.seed is None else root_key(experiment.seed)
        noise = cls.noise_key(root, experiment) if root else None
        choices = (derive_key(root, "dealing"), derive_key(noise, "sampling")) if root and noise else None
        dealing, sampling = communicator.share(choices)
        if experiment.server == "untrusted":
            noise = communicator.share(noise)
        return cls(root if is_rank_0 else None, dealing, sampling, key_words(noise) if noise else None)
