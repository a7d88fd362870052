"""From what the user said to what the method is to do, and to what machines are that differ."""

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import extension_files, find, imported_files
from mu2mpi.data.machine_files import file_digest, read_budgets
from mu2mpi.data.redaction import telling
from mu2mpi.federation.participation.schedule import Federation, schedule_of
from mu2mpi.federation.task import Task
from mu2mpi.federation.unequal_machines import UnequalMachines
from mu2mpi.losses.loss import Problem
from mu2mpi.losses.model.scaling import Scaling
from mu2mpi.privacy.accounting.guarantee import Budget, affordable_rho
from mu2mpi.privacy.accounting.per_machine import Accounts


def task_of(
    experiment: Experiment,
    machines: int,
    classes: int,
    features: int,
    samples: int,
    most: int | None = None,
    square: float | None = None,
    unequal: UnequalMachines | None = None,
) -> Task:
    """Return what the method of an experiment is to do, once a preset, if any, is filled in.

    `features` count the bias, `most` limits the samples of a machine, and `square` the squared norm of
    features without the bias, by default F - 1.
    """
    problem: Problem = find("losses", experiment.loss)
    parts = experiment.trust.parts(experiment.server_options, machines)
    if not (isinstance(parts, int) and 1 <= parts <= machines):
        raise InputError(f"server = {experiment.server} has {parts!r} parts of noise of {machines} machines")
    scaling = Scaling(experiment.normalize == "unit", experiment.norm_bound)
    longest = scaling.largest_square(features - 1 if square is None else square)
    constants = problem.constants(longest, experiment.diameter / 2, classes)
    return Task(
        problem=problem,
        server=experiment.server,
        server_options=experiment.server_options,
        parts=parts,
        machines=machines,
        samples=samples,
        most=most,
        classes=classes,
        rows=problem.rows(classes),
        features=features,
        diameter=experiment.diameter,
        scaling=scaling,
        budget=Budget(experiment.rho, experiment.target_epsilon, experiment.delta),
        mechanism=experiment.chosen_mechanism,
        square=longest,
        G=constants.G,
        L=constants.L,
        l2=experiment.l2 or 0.0,
        clip_norm=experiment.clip_norm,
        eta_scale=experiment.eta_scale,
        aggregate_noise=experiment.noise == "aggregate",
        options=experiment.options,
        mechanism_options=experiment.mechanism_options,
        unequal=unequal,
    )


def unequal_machines_of(
    experiment: Experiment,
    samples: NDArray[np.int64],
    owners: tuple[str, ...] | None,
    known: Accounts | None = None,
) -> UnequalMachines:
    """Return the machines of an experiment that differ or are away; `known` stands for files."""
    names = owners or tuple(map(str, range(len(samples))))
    schedule, value = schedule_of(experiment.participation)
    objective = experiment.objective or schedule.default_objective
    seed = experiment.participation_seed
    seed = (experiment.seed or 0) if seed is None else seed
    federation = Federation(samples, names, seed, None if known is None else known.present)
    stated: dict[int, tuple[str, float]] = {}
    # These files may be the data file.
    with telling(not experiment.source.is_user_data or experiment.source_options.data_is_public):
        participation = schedule(value, federation)
        if experiment.budgets is not None:
            path = Path(experiment.budgets).expanduser()
            stated = read_budgets(path, names) if known is None else known.budgets
    delta = experiment.delta
    budgets = {
        i: Budget(value, math.inf, delta)
        if kind == "rho"
        else Budget(affordable_rho(value, delta), value, delta)
        for i, (kind, value) in stated.items()
    }
    return UnequalMachines(participation, samples, objective == "samples", budgets, owners)


def input_files(experiment: Experiment) -> dict[str, str]:
    """Return SHA-256 digests by name of files that an experiment uses, and of all that were imported."""
    return used_files(experiment) | imported_digests()


def used_files(experiment: Experiment) -> dict[str, str]:
    """Return SHA-256 digests of budgets, participation files and used extensions, by name."""
    schedule, value = schedule_of(experiment.participation)
    named = (experiment.budgets, *schedule.input_files(value))
    extensions = extension_files(
        ("sources", experiment.source.name),
        *([("partitions", experiment.partition.partition(":")[0])] if experiment.partition else []),
        ("losses", experiment.loss),
        ("methods", experiment.method),
        ("mechanisms", experiment.chosen_mechanism),
        ("servers", experiment.server),
        ("participation", schedule.name),
    )
    files = {f"the file {name}": Path(name).expanduser() for name in named if name}
    files |= {f"the module {name}": path for name, path in extensions.items()}
    imported = imported_digests()
    return {name: imported.get(name) or file_digest(path) for name, path in files.items()}


def imported_digests() -> dict[str, str]:
    """Return digests of the content that ``--import`` executed, by module."""
    return {f"the module {name}": file.digest for name, file in imported_files().items()}
