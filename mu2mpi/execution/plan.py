"""What will run: everything that the user left open settled, once, from the data and the number of ranks.

Ranks may read settings, files and data from copies of their own. Different ones would void the guarantee, by
noise of another scale or the same noise on other data, so all ranks agree on them before anything is sent.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment, filled, sent
from mu2mpi.config.task_builder import imported_digests, task_of, unequal_machines_of, used_files
from mu2mpi.core.errors import InputError, SharedInputError
from mu2mpi.core.files import identity
from mu2mpi.core.parallel import TURNS, Communicator
from mu2mpi.core.registry import find
from mu2mpi.data.machine_files import combined_digest
from mu2mpi.data.partition import check_rounds, default_partition, parse_partition
from mu2mpi.data.source import DataRequest, PublicFacts, Source
from mu2mpi.federation.participants import check_machine_rounds
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.privacy.noise.noise_stream import derive_key, key_words, root_key


@dataclass(frozen=True)
class Plan:
    """What will run, with nothing open."""

    experiment: Experiment  # with M, T, the method's sizes and what its preset chooses filled in
    source: Source
    partition: str  # how the samples are dealt to the machines, such as "iid"
    facts: PublicFacts  # what presets may use of the data
    constants: RunConstants
    used_files: dict[str, str] = field(default_factory=dict)  # digests of other files, by name

    @property
    def input_files(self) -> dict[str, str]:
        """Digests of used files and of all imported ones, by name."""
        return self.used_files | imported_digests()

    @property
    def context(self) -> str:
        """What beside the experiment decides what is sent, as text; the noise key is derived from it."""
        return (self.source.columns or "") + combined_digest(self.used_files.values())

    @property
    def digest(self) -> bytes:
        """That of all data which decide what is sent."""
        return digest_with(self.source, self.input_files)


def digest_with(source: Source, input_files: Mapping[str, str]) -> bytes:
    """Return the digest of a source and of the other input files, if there are any."""
    both = source.digest + combined_digest(input_files.values()).encode()
    return hashlib.sha256(both).digest() if input_files else source.digest


def resolve(experiment: Experiment, source: Source, ranks: int) -> Plan:
    """Settle what an experiment leaves open, from its data and the number of ranks.

    By default there is one machine an owner or a rank, samples are dealt to their owners, if any, or else at
    random, and a run takes as many rounds as its method says. Raises InputError for what cannot be run.
    """
    if source.label_range is not None:
        find("losses", experiment.loss).check_range(*source.label_range)
    chosen = experiment.partition or default_partition(source.has_owners)
    partition = parse_partition(chosen)
    machines = experiment.machines or (len(source.owner_sizes) if partition.is_by_owner else ranks)
    most = None if source.draws_fresh else partition.most_rounds(source, machines)
    samples = max(1, source.training_samples // machines) if most is None else most
    square = float(source.dimension) if source.square is None else source.square
    unequal = None
    if experiment.machines_differ:
        check_machine_rounds(machines, experiment.rounds or 1)
        known = (source.owner_sizes, source.owner_names) if partition.is_by_owner else None
        unequal = unequal_machines_of(experiment, *(known or (np.full(machines, samples), None)))
    facts = PublicFacts(source.classes, square, machines * samples)
    if unequal is not None and experiment.preset is not None:
        rounds = experiment.rounds or unequal.longest
        shared, effective = unequal.averaging(rounds, experiment.trust.hides_sums, experiment.rho)
        facts = facts._replace(shared=shared, effective=effective)
    trust, own = experiment.trust, experiment.server_options
    experiment = filled(experiment, facts, machines=machines, **trust.complete(own, machines))
    method = experiment.chosen_method
    task = task_of(experiment, machines, source.classes, source.dimension + 1, samples, most, square, unequal)
    sampling = method.sampling(task, experiment.rounds)
    if not sampling.is_fresh and unequal is not None and unequal.participation.needs_fresh_samples:
        raise InputError(
            f"participation = {experiment.participation} is for methods that take a fresh sample a round, "
            f"and method = {method.name} does not; choose another --participation"
        )
    if most is not None:
        largest = most if unequal is None or not sampling.is_fresh else int(unequal.samples.max())
        check_rounds(largest, machines, sampling.rounds, sampling.owned)
    completed = experiment.derived(rounds=sampling.rounds, **method.completed(task, sampling))
    constants = method.constants(task, sampling)
    return Plan(completed, source, chosen, facts, constants, used_files(experiment))


def check_agreement(values: Mapping[str, object], communicator: Communicator) -> None:
    """Raise SharedInputError on every rank, with its name, for a value whose `repr` differs among ranks."""
    digests = {name: hashlib.sha256(repr(value).encode()).digest() for name, value in values.items()}
    everyones = communicator.allgather((communicator.host, digests))
    host, expected = everyones[0]
    for rank, (other, found) in enumerate(everyones):
        for name in dict.fromkeys([*expected, *found]):
            if found.get(name) != expected.get(name):
                raise SharedInputError(
                    f"{name} is not the same on all ranks: rank {rank} on {other} differs from rank 0 on "
                    f"{host}. Give all ranks the same, on a shared file system or as copies."
                )


def check_settings(experiments: Iterable[Experiment], communicator: Communicator) -> None:
    """Raise SharedInputError unless all ranks were given the same experiments, in the same order."""
    settings = [experiment.settings() for experiment in experiments]
    values: dict[str, object] = {"the number of runs": len(settings), "the list of runs": settings}
    if len(settings) == 1:
        values = {"the number of runs": 1} | {f"the setting {n}": v for n, v in settings[0].items()}
    check_agreement(values, communicator)


def check_inputs(plan: Plan, communicator: Communicator) -> None:
    """Raise SharedInputError unless all ranks read the same settings, files and training data."""
    check_data(plan.source, communicator)
    check_settings([plan.experiment], communicator)
    members = plan.constants.task.per_machine
    what = "the privacy budgets or the participation of machines"
    values = {"the schema of the data": plan.source.columns, what: members and members.digest}
    check_agreement({**plan.input_files, **values}, communicator)


def open_source(experiment: Experiment, data_dir: Path | None = None, verify: bool = True) -> Source:
    """Open an experiment's data; InputError if they are missing, damaged, or have labels not for its loss."""
    asked = experiment.data, experiment.source_options, experiment.scaling
    source = experiment.source.open(DataRequest(*asked, data_dir, verify))
    labels = find("losses", experiment.loss).labels
    if labels == "numbers":
        if source.label_range is None and not experiment.source.classes_are_numbers:
            raise InputError(
                f"loss = {experiment.loss} learns numbers, and the label of {source.name} is a class; "
                "declare its low and high in the schema, or give --label-range; or give --loss softmax"
            )
        source.take_numbers()
    if source.label_range is not None and labels == "classes":
        raise InputError(
            f"loss = {experiment.loss} tells classes apart, and the label of {source.name} is a number; "
            "give --loss squared, or declare its classes"
        )
    return source


def shared_source(experiment: Experiment, data_dir: Path | None, communicator: Communicator) -> Source:
    """Open the experiment's data on every rank; the first rank of each node checks the content before."""
    verify = communicator.turn < TURNS - 1
    return communicator.in_turn(lambda: open_source(experiment, data_dir, verify=verify))


def check_data(source: Source, communicator: Communicator) -> None:
    """Check all samples, and raise SharedInputError unless the training data are the same on all ranks.

    The first rank of each node reads them once, and so does every rank that opened other files than that
    one. Afterwards every rank has their digest.
    """
    opened = communicator.host, tuple(map(identity, source.files))
    is_first = communicator.turn < TURNS - 1
    read_by_first = {files for files, first in communicator.allgather((opened, is_first)) if first}
    digest: bytes | None = None
    with communicator.together():
        if is_first or opened not in read_by_first:
            digest = source.digest
    known = {files: found for files, found in communicator.allgather((opened, digest)) if found is not None}
    source.digest = known[opened] if digest is None else digest
    check_agreement({f"the training data of {source.name}": source.digest}, communicator)


@dataclass(frozen=True)
class Keys:
    """Keys of a run's randomness that this rank holds."""

    root: bytes | None  # of all others; known to rank 0 alone
    dealing: bytes  # of the partition
    sampling: bytes  # of random batches
    noise: NDArray[np.uint32] | None  # eight words; None where rank 0 alone may know them

    @staticmethod
    def noise_key(root: bytes, experiment: Experiment, context: str = "") -> bytes:
        """Return the key of the noise of a completed experiment, in its context as of a `Plan`.

        It depends on all that changes what is sent but for the samples: a difference of messages of two runs
        with one secret seed and, say, different rho or budgets must not be without noise.
        """
        return derive_key(root, "noise", sent(experiment).to_toml() + context)

    @classmethod
    def draw(
        cls, experiment: Experiment, communicator: Communicator, root: bytes | None = None, context: str = ""
    ) -> "Keys":
        """Make the keys on rank 0, from a root, the seed or os.urandom; share those that other ranks need."""
        noise = choices = None
        if communicator.rank == 0:
            if root is None:
                root = os.urandom(32) if experiment.seed is None else root_key(experiment.seed)
            noise = cls.noise_key(root, experiment, context)
            choices = derive_key(root, "dealing"), derive_key(noise, "sampling")
        dealing, sampling = communicator.share(choices)
        if experiment.trust.gives_key(experiment.server_options):
            noise = communicator.share(noise)
        return cls(root, dealing, sampling, key_words(noise) if noise else None)
