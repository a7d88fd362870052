"""What will run: everything that the user left open settled, once, from the data and the number of ranks."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.identity import filled
from mu2mpi.config.task import cohort_of, input_files, task_of
from mu2mpi.config.together import machines_differ
from mu2mpi.data.machine_files import combined_digest
from mu2mpi.data.partition import check_rounds, most_rounds
from mu2mpi.data.source import Source
from mu2mpi.data.sources.population import Population
from mu2mpi.errors import InputError
from mu2mpi.federation.participation import check_size
from mu2mpi.federation.schedule import Schedule
from mu2mpi.problem.practical import Facts
from mu2mpi.registry import find


@dataclass(frozen=True)
class Plan:
    """What will run, with nothing open."""

    experiment: Experiment  # with M, T, the method's sizes and what its preset chooses filled in
    source: Source
    partition: str  # how the samples are dealt to the machines, such as "iid"
    facts: Facts  # what presets may use of the data
    schedule: Schedule
    input_files: dict[str, str] = field(default_factory=dict)  # digests of other files, as of `input_files`

    @property
    def context(self) -> str:
        """What beside the experiment decides what is sent, as text."""
        return (self.source.columns or "") + combined_digest(self.input_files.values())

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
        find("problems", experiment.loss).check_range(*source.label_range)
    partition = experiment.partition or ("owner" if source.has_owners else "iid")
    machines = experiment.machines or (len(source.owner_sizes) if partition == "owner" else ranks)
    most = None if isinstance(source, Population) else most_rounds(source, machines, partition)
    samples = max(1, source.training_samples // machines) if most is None else most
    square = float(source.dimension) if source.square is None else source.square
    cohort = None
    if machines_differ(experiment):
        check_size(machines, experiment.rounds or 1)
        known = (source.owner_sizes, source.owner_names) if partition == "owner" else None
        cohort = cohort_of(experiment, *(known or (np.full(machines, samples), None)))
    facts = Facts(source.classes, square, machines * samples)
    if cohort is not None and experiment.preset is not None:
        rounds = experiment.rounds or cohort.longest
        shared, effective = cohort.averaging(rounds, experiment.trust.hides_sums, experiment.rho)
        facts = facts._replace(shared=shared, effective=effective)
    trust, own = experiment.trust, experiment.server_options
    experiment = filled(experiment, facts, machines=machines, **trust.complete(own, machines))
    method = experiment.chosen_method
    task = task_of(experiment, machines, source.classes, source.dimension + 1, samples, most, square, cohort)
    sizes = method.sizes(task, experiment.rounds)
    if sizes.most is None and experiment.participation == "by-size":
        raise InputError(
            "participation = by-size is for methods that take a fresh sample a round, and method = "
            f"{method.name} does not; choose another --participation"
        )
    if most is not None:
        check_rounds(sizes.most or most, machines, sizes.rounds, sizes.sampling.owned)
    completed = experiment.having(rounds=sizes.rounds, **sizes.options)
    schedule = method.schedule(task, sizes)
    return Plan(completed, source, partition, facts, schedule, input_files(experiment))
