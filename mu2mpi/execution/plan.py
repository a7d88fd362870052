"""Plan of a run: the experiment with all open settings resolved from the data and the number of ranks.

Ranks may read different copies of settings, files and data. Differences would void the privacy guarantee, by
noise of another scale or the same noise on different data, so ranks compare them before the first message.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from mu2mpi.config.experiment import (
    Experiment,
    complete_experiment,
    message_settings,
    simulated_protocol_name,
)
from mu2mpi.config.problem_builder import (
    build_problem,
    build_unequal_machines,
    imported_module_digests,
    used_input_digests,
)
from mu2mpi.core.arrays import UInt32Array
from mu2mpi.core.errors import CollectiveInputError, InputError
from mu2mpi.core.files import file_identity
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import default_name, lookup
from mu2mpi.data.machine_files import combined_digest
from mu2mpi.data.memory import DataLocation, MemoryData
from mu2mpi.data.partition import check_enough_samples, parse_partition
from mu2mpi.data.source import DataRequest, DataSource, PublicFacts
from mu2mpi.federation.participants import check_machine_rounds
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.privacy.noise.noise_stream import derive_key, key_to_uint32, root_key
from mu2mpi.privacy.statement import PrivacyStatement


@dataclass(frozen=True)
class Plan:
    """Plan of a run: the experiment with all settings resolved, its data and its constants; immutable."""

    experiment: Experiment  # with M, T, the method's sizes and the choices of its preset filled in
    source: DataSource
    partition: str  # partition of the samples among machines, such as "iid"
    public_facts: PublicFacts  # public facts of the data that presets may use
    constants: RunConstants
    used_input_digests: dict[str, str]  # digests of budget, trace and extension files, by name

    @property
    def input_files(self) -> dict[str, str]:
        """Digests, by name, of all input files besides the data: budgets, traces, imported extensions."""
        return self.used_input_digests | imported_module_digests()

    @property
    def noise_key_context(self) -> str:
        """Text of table schema and input file digests, which the noise key depends on."""
        return (self.source.schema_toml or "") + combined_digest(self.used_input_digests.values())

    @cached_property
    def privacy_statement(self) -> PrivacyStatement:
        """Privacy statement of the run; InputError if the noise sampler is not accurate enough for it."""
        experiment, constants = self.experiment, self.constants
        state = partial(
            PrivacyStatement.of,
            delta=experiment.delta,
            noise=simulated_protocol_name(experiment),
            server=constants.problem.server,
            S=constants.S,
            noise_recomputable=experiment.seed is not None,
        )
        statement = state(constants.mechanism)
        for mechanism, epsilon in constants.target_epsilons(experiment.max_claimed_epsilon):
            # Accounting may take a quarter of a second, so that a known statement is reused.
            known = statement if mechanism is constants.mechanism else None
            (known or state(mechanism)).check_sampler(epsilon)
        return statement

    @property
    def digest(self) -> bytes:
        """SHA-256 of all inputs that determine the messages: training data and input files."""
        return input_digest(self.source, self.input_files)


def input_digest(source: DataSource, input_files: Mapping[str, str]) -> bytes:
    """Return the SHA-256 of the training data and, if there are any, of other input files."""
    digests = source.digest + combined_digest(input_files.values()).encode()
    return hashlib.sha256(digests).digest() if input_files else source.digest


def resolve_plan(experiment: Experiment, source: DataSource, ranks: int) -> Plan:
    """Resolve the settings that an experiment leaves open; InputError if it cannot be run on the data.

    By default, M is the number of owners or of ranks, samples are partitioned by owner or else at random, and
    the method determines T.
    """
    if source.label_range is not None:
        lookup("losses", experiment.loss).check_label_range(*source.label_range)
    partition_text = experiment.partition or ("owner" if source.has_owners else default_name("partitions"))
    partition = parse_partition(partition_text)
    machines = experiment.machines or (len(source.owner_sizes) if partition.is_by_owner else ranks)
    is_population = source.has_known_distribution
    max_samples = None if is_population else partition.min_samples_per_machine(source, machines)
    samples = max(1, source.training_samples // machines) if max_samples is None else max_samples
    square = float(source.dimension) if source.max_squared_norm is None else source.max_squared_norm
    unequal_machines = None
    if experiment.has_unequal_machines:
        check_machine_rounds(machines, experiment.rounds or 1)
        owners = (source.owner_sizes, source.owner_names) if partition.is_by_owner else None
        unequal_machines = build_unequal_machines(experiment, *(owners or (np.full(machines, samples), None)))
    public_facts = PublicFacts(source.classes, square, machines * samples)
    if unequal_machines is not None and experiment.preset is not None:
        rounds = experiment.rounds or unequal_machines.max_rounds
        protects_sum_only = experiment.trust_mode.protects_sum_only
        reduction, effective = unequal_machines.noise_statistics(rounds, protects_sum_only, experiment.rho)
        public_facts = public_facts._replace(noise_reduction=reduction, effective_machines=effective)
    trust_options = experiment.trust_mode.resolve_options(experiment.server_options, machines)
    experiment = complete_experiment(experiment, public_facts, machines=machines, **trust_options)
    method = experiment.chosen_method
    shape = machines, source.classes, source.dimension + 1, samples
    problem = build_problem(experiment, *shape, max_samples, square, unequal_machines)
    batching = method.batching(problem, experiment.rounds)
    needs_fresh = unequal_machines is not None and unequal_machines.participation.needs_fresh_samples
    if needs_fresh and not batching.is_fresh:
        raise InputError(
            f"--participation {experiment.participation} needs a method with a fresh sample per round, and "
            f"--method {method.name} has none. Choose another --participation."
        )
    if max_samples is not None:
        if unequal_machines is not None and batching.is_fresh:
            max_samples = int(unequal_machines.samples.max())
        check_enough_samples(max_samples, machines, batching.rounds, batching.samples_per_machine)
    resolved = {"rounds": batching.rounds, **method.resolve_options(problem, batching)}
    completed = experiment.replace_unvalidated(**resolved)
    constants = method.run_constants(problem, batching)
    return Plan(completed, source, partition_text, public_facts, constants, used_input_digests(experiment))


def check_agreement(values: Mapping[str, object], communicator: Communicator) -> None:
    """Raise CollectiveInputError if the `repr` of a named value differs on any rank; collective."""
    digests = {name: hashlib.sha256(repr(value).encode()).digest() for name, value in values.items()}
    gathered = communicator.allgather((communicator.host, digests))
    host_0, digests_0 = gathered[0]
    for rank, (host, rank_digests) in enumerate(gathered):
        for name in dict.fromkeys([*digests_0, *rank_digests]):
            if rank_digests.get(name) != digests_0.get(name):
                raise CollectiveInputError(
                    f"{name} is not the same on all ranks: rank {rank} on {host} differs from rank 0 on "
                    f"{host_0}. Give all ranks the same, on a shared file system or as copies."
                )


def check_settings_on_ranks(experiments: Iterable[Experiment], communicator: Communicator) -> None:
    """Raise CollectiveInputError unless all ranks have the same list of experiments; collective."""
    settings = [experiment.settings() for experiment in experiments]
    values: dict[str, object] = {"the number of runs": len(settings), "the list of runs": settings}
    if len(settings) == 1:
        values = {"the number of runs": 1} | {f"the setting {n}": v for n, v in settings[0].items()}
    check_agreement(values, communicator)


def check_inputs_on_ranks(plan: Plan, communicator: Communicator) -> None:
    """Raise CollectiveInputError unless all ranks have equal settings, files and data; collective."""
    check_data_on_ranks(plan.source, communicator)
    check_settings_on_ranks([plan.experiment], communicator)
    per_machine_plan = plan.constants.problem.per_machine_plan
    values = {
        "the schema of the data": plan.source.schema_toml,
        "the privacy budgets or the participation of machines": per_machine_plan and per_machine_plan.digest,
    }
    check_agreement({**plan.input_files, **values}, communicator)


def open_source(experiment: Experiment, location: DataLocation = None, verify: bool = True) -> DataSource:
    """Open an experiment's data; InputError if they are missing, damaged or do not suit the loss."""
    request = experiment.data, experiment.source_options, experiment.sample_scaling
    memory, data_dir = (location, None) if isinstance(location, MemoryData) else (None, location)
    source = experiment.source.open(DataRequest(*request, data_dir, verify, memory))
    labels = lookup("losses", experiment.loss).label_kind
    if labels == "numbers":
        if source.label_range is None and not experiment.source.supports_classes_as_numbers:
            raise InputError(
                f"--loss {experiment.loss} needs numbers as labels; the label of {source.name} is a class. "
                "Declare its low and high in the schema or by --label-range, or use --loss softmax."
            )
        source.use_classes_as_numbers()
    if source.label_range is not None and labels == "classes":
        raise InputError(
            f"--loss {experiment.loss} needs classes as labels; the label of {source.name} is a number. "
            "Use --loss squared, or declare its classes."
        )
    return source


def open_source_on_ranks(
    experiment: Experiment, location: DataLocation, communicator: Communicator
) -> DataSource:
    """Open the experiment's data on every rank, after the first rank of each node has verified checksums."""
    verify = communicator.is_first_on_node
    return communicator.run_in_order(lambda: open_source(experiment, location, verify))


def check_data_on_ranks(source: DataSource, communicator: Communicator) -> None:
    """Check all samples; raise CollectiveInputError unless all ranks have the same training data; collective.

    The first rank of each node reads the data once, and so does every rank with other files than that one.
    Afterwards `source.digest` is set on every rank.
    """
    files = communicator.host, tuple(map(file_identity, source.files))
    is_first = communicator.is_first_on_node
    files_of_first_ranks = {key for key, first in communicator.allgather((files, is_first)) if first}
    digest: bytes | None = None
    with communicator.collective_errors():
        if is_first or files not in files_of_first_ranks:
            digest = source.digest
    digests = {key: value for key, value in communicator.allgather((files, digest)) if value is not None}
    source.digest = digests[files] if digest is None else digest
    check_agreement({f"the training data of {source.name}": source.digest}, communicator)


@dataclass(frozen=True)
class RunKeys:
    """Keys of a run's noise, partition and batches; None where this rank must not hold them."""

    root: bytes | None  # 32-byte key from which the others are derived; None but on rank 0
    partition: bytes  # for the partition of samples among machines
    batching: bytes  # for random mini-batches
    noise: UInt32Array | None  # ChaCha20 key, 8 words; None on other ranks if only the server has it

    @staticmethod
    def noise_key(root: bytes, experiment: Experiment, context: str = "") -> bytes:
        """Derive the noise key of a resolved experiment; `context` is `Plan.noise_key_context`.

        The key depends on everything that changes messages except the samples: otherwise noise would cancel
        in the difference of messages of two runs with the same secret seed and, say, different rho.
        """
        # The noise of a seed is that of files without the relation, which is then "replace".
        settings = message_settings(experiment).to_toml().replace('neighbours = "replace"\n', "", 1)
        return derive_key(root, "noise", settings + context)

    @classmethod
    def create(
        cls, experiment: Experiment, communicator: Communicator, root: bytes | None = None, context: str = ""
    ) -> "RunKeys":
        """Derive a run's keys on rank 0 from a root key, seed or os.urandom; send ranks those they need."""
        noise = data_keys = None
        if communicator.rank == 0:
            if root is None:
                root = os.urandom(32) if experiment.seed is None else root_key(experiment.seed)
            noise = cls.noise_key(root, experiment, context)
            data_keys = derive_key(root, "dealing"), derive_key(noise, "sampling")
        partition, batching = communicator.bcast_object(data_keys)
        if not experiment.trust_mode.is_central:
            noise = communicator.bcast_object(noise)
        return cls(root, partition, batching, key_to_uint32(noise) if noise else None)
