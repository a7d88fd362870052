"""Build a run's problem, its unequal machines and the digests of its input files from an experiment."""

import math
from pathlib import Path

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.arrays import IntArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import extension_paths, imported_files, lookup
from mu2mpi.data.machine_files import file_digest, read_privacy_budgets
from mu2mpi.data.redaction import redacted_errors
from mu2mpi.federation.participation.schedule import Federation, parse_participation
from mu2mpi.federation.problem import Problem
from mu2mpi.federation.unequal_machines import UnequalMachines
from mu2mpi.losses.loss import Loss
from mu2mpi.losses.model.scaling import Scaling
from mu2mpi.privacy.accounting.guarantee import Budget, rho_for_epsilon
from mu2mpi.privacy.accounting.per_machine_accounts import PerMachineAccounts


def build_problem(
    experiment: Experiment,
    machines: int,
    classes: int,
    features: int,
    samples: int,
    max_samples: int | None = None,
    max_squared_norm: float | None = None,
    unequal_machines: UnequalMachines | None = None,
) -> Problem:
    """Build the problem of an experiment as `complete_experiment` returns it.

    `features` counts the bias, and `samples` are those of each machine. `max_squared_norm` bounds the squared
    norm of a sample without the bias, by default `features` - 1. InputError if the trust mode returns an
    invalid number of noise shares.
    """
    loss_function: Loss = lookup("losses", experiment.loss)
    noise_shares = experiment.trust_mode.noise_shares(experiment.server_options, machines)
    if not (isinstance(noise_shares, int) and 1 <= noise_shares <= machines):
        limits = f"1 to {machines} noise shares"
        raise InputError(f"--server {experiment.server} must have {limits}, got {noise_shares!r}")
    scaling = Scaling(experiment.normalize == "unit", experiment.norm_bound)
    squared_bound = scaling.max_squared_norm(features - 1 if max_squared_norm is None else max_squared_norm)
    constants = loss_function.constants(squared_bound, experiment.diameter / 2, classes)
    return Problem(
        loss=loss_function,
        server=experiment.server,
        server_options=experiment.server_options,
        noise_shares=noise_shares,
        machines=machines,
        samples=samples,
        max_samples_per_machine=max_samples,
        classes=classes,
        model_rows=loss_function.model_rows(classes),
        features=features,
        diameter=experiment.diameter,
        feature_scaling=scaling,
        budget=Budget(experiment.rho, experiment.target_epsilon, experiment.delta),
        neighbours=experiment.neighbours,
        mechanism=experiment.chosen_mechanism,
        max_squared_norm=squared_bound,
        G=constants.G,
        L=constants.L,
        l2=experiment.l2 or 0.0,
        clip_norm=experiment.clip_norm,
        eta_scale=experiment.eta_scale,
        uses_aggregate_noise=experiment.noise == "aggregate",
        method_options=experiment.method_options,
        mechanism_options=experiment.mechanism_options,
        unequal_machines=unequal_machines,
    )


def build_unequal_machines(
    experiment: Experiment,
    samples: IntArray,
    owner_names: tuple[str, ...] | None,
    stored_accounts: PerMachineAccounts | None = None,
) -> UnequalMachines:
    """Build the participation, weights and budgets of an experiment with one of PER_MACHINE_OPTIONS.

    `samples` has the shape (machines,). Machines without owners are named by their numbers, from 0. Stored
    accounts, of a result or checkpoint, replace the files of budgets and participation.
    """
    machine_names = owner_names or tuple(map(str, range(len(samples))))
    schedule, value = parse_participation(experiment.participation)
    objective = experiment.objective or schedule.default_objective
    seed = experiment.seed or 0 if experiment.participation_seed is None else experiment.participation_seed
    stored_participation = None if stored_accounts is None else stored_accounts.participation
    federation = Federation(samples, machine_names, seed, stored_participation)
    budget_limits: dict[int, tuple[str, float]] = {}
    # The file of budgets or participation may be the private data file itself.
    with redacted_errors(not experiment.source.is_user_data or experiment.source_options.data_is_public):
        participation = schedule(value, federation)
        if experiment.budgets is not None and stored_accounts is not None:
            budget_limits = stored_accounts.budgets
        elif experiment.budgets is not None:
            budget_limits = read_privacy_budgets(Path(experiment.budgets).expanduser(), machine_names)
    budgets, delta = dict[int, Budget](), experiment.delta
    for machine, (parameter, limit) in budget_limits.items():
        rho, epsilon = (limit, math.inf) if parameter == "rho" else (rho_for_epsilon(limit, delta), limit)
        budgets[machine] = Budget(rho, epsilon, delta)
    return UnequalMachines(participation, samples, objective == "samples", budgets, owner_names)


def input_digests(experiment: Experiment) -> dict[str, str]:
    """Return the SHA-256 digests, by name, of an experiment's input files and of all imported modules."""
    return used_input_digests(experiment) | imported_module_digests()


def used_input_digests(experiment: Experiment) -> dict[str, str]:
    """Return the SHA-256 digests, by name, of the budget, participation and extension files in use."""
    schedule, value = parse_participation(experiment.participation)
    file_names = (experiment.budgets, *schedule.input_files(value))
    extensions = extension_paths(
        ("sources", experiment.source.name),
        *([("partitions", experiment.partition.partition(":")[0])] if experiment.partition else []),
        ("losses", experiment.loss),
        ("methods", experiment.method),
        ("mechanisms", experiment.chosen_mechanism),
        ("servers", experiment.server),
        ("participation", schedule.name),
    )
    files = {f"the file {name}": Path(name).expanduser() for name in file_names if name}
    files |= {f"the module {name}": path for name, path in extensions.items()}
    imported = imported_module_digests()
    return {name: imported.get(name) or file_digest(path) for name, path in files.items()}


def imported_module_digests() -> dict[str, str]:
    """Return the SHA-256 digests, by name, of the Python modules imported by ``--import``."""
    return {f"the module {name}": file.digest for name, file in imported_files().items()}
