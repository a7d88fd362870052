"""From what the user said to what the method is to do, and to what machines are that differ."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import extension_files, find, imported_files
from mu2mpi.data.machine_files import file_digest, read_budgets, read_trace
from mu2mpi.federation.cohort import Cohort
from mu2mpi.federation.participation import Bernoulli, BySize, Everybody, Participation, Trace, Uniform
from mu2mpi.federation.schedule import Task
from mu2mpi.losses.base import Problem
from mu2mpi.losses.model.scaling import Scaling
from mu2mpi.privacy.accounting.guarantee import Budget, affordable_rho
from mu2mpi.privacy.accounting.machines import Accounts


def task_of(
    experiment: Experiment,
    machines: int,
    classes: int,
    features: int,
    samples: int,
    most: int | None = None,
    square: float | None = None,
    cohort: Cohort | None = None,
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
        cohort=cohort,
    )


def cohort_of(
    experiment: Experiment,
    samples: NDArray[np.int64],
    owners: tuple[str, ...] | None,
    known: Accounts | None = None,
) -> Cohort:
    """Return the machines of an experiment that differ or are away; `known` stands for files."""
    names = owners or tuple(map(str, range(len(samples))))
    objective = experiment.objective or ("samples" if experiment.participation == "by-size" else "machines")
    stated: dict[int, tuple[str, float]] = {}
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
    participation = _participation(experiment, samples, names, known)
    return Cohort(participation, samples, objective == "samples", budgets, owners)


def input_files(experiment: Experiment) -> dict[str, str]:
    """Return SHA-256 digests of budgets, trace, extensions' modules and imported files, by name."""
    trace = (experiment.participation or "").removeprefix("trace:")
    named = [experiment.budgets, trace if trace != experiment.participation else None]
    extensions = extension_files(
        ("losses", experiment.loss),
        ("methods", experiment.method),
        ("mechanisms", experiment.chosen_mechanism),
        ("servers", experiment.server),
    )
    files = {f"the file {name}": Path(name).expanduser() for name in named if name}
    files |= {f"the module {name}": path for name, path in extensions.items()}
    digests = {name: file_digest(path) for name, path in files.items()}
    return digests | {f"the module {name}": file.digest for name, file in imported_files().items()}


def _participation(
    experiment: Experiment, samples: NDArray[np.int64], names: Sequence[str], known: Accounts | None
) -> Participation:
    kind, _, value = (experiment.participation or "all").partition(":")
    machines, seed = len(samples), experiment.participation_seed
    seed = (experiment.seed or 0) if seed is None else seed
    match kind:
        case "uniform":
            if (number := int(value)) > machines:
                raise InputError(f"participation = uniform:{number} is more than the {machines} machines")
            return Uniform(machines, number, seed)
        case "bernoulli":
            return Bernoulli(machines, float(value), seed)
        case "by-size":
            return BySize(samples, seed)
        case "trace" if known is not None and known.present is not None:
            return Trace(known.present)
        case "trace":
            return Trace(read_trace(Path(value).expanduser(), names))
    return Everybody(machines)
