"""From what the user said of machines that differ to what they are."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mu2mpi.config.experiment import Experiment
from mu2mpi.data.machine_files import file_digest, read_budgets, read_trace
from mu2mpi.errors import InputError
from mu2mpi.federation.cohort import Cohort
from mu2mpi.federation.participation import Bernoulli, BySize, Everybody, Participation, Trace, Uniform
from mu2mpi.privacy.accounts import Accounts
from mu2mpi.privacy.guarantee import Budget, affordable_rho
from mu2mpi.registry import extension_files


def cohort_of(
    experiment: Experiment,
    samples: NDArray[np.int64],
    owners: tuple[str, ...] | None,
    known: Accounts | None = None,
) -> Cohort:
    """Return the machines of an experiment that differ or are away; `known` stands for files."""
    names = owners or tuple(map(str, range(len(samples))))
    objective = experiment.objective or ("samples" if experiment.participation == "by-size" else "machines")
    budgets: dict[int, tuple[str, float]] = {}
    if experiment.budgets is not None:
        path = Path(experiment.budgets).expanduser()
        budgets = read_budgets(path, names) if known is None else known.budgets
    return Cohort(
        participation=_participation(experiment, samples, names, known),
        samples=samples,
        by_samples=objective == "samples",
        budgets={i: _budget(experiment.delta, *stated) for i, stated in budgets.items()},
        owners=owners,
    )


def input_files(experiment: Experiment) -> dict[str, str]:
    """Return digests, by name, of the budgets and the trace, and of the modules of extensions."""
    trace = (experiment.participation or "").removeprefix("trace:")
    named = [experiment.budgets, trace if trace != experiment.participation else None]
    extensions = extension_files(
        ("problems", experiment.loss),
        ("methods", experiment.method),
        ("mechanisms", experiment.chosen_mechanism),
        ("servers", experiment.server),
    )
    files = {f"the file {name}": Path(name).expanduser() for name in named if name}
    files |= {f"the module {name}": path for name, path in extensions.items()}
    return {name: file_digest(path) for name, path in files.items()}


def _budget(delta: float, kind: str, value: float) -> Budget:
    if kind == "rho":
        return Budget(value, math.inf, delta)
    return Budget(affordable_rho(value, delta), value, delta)


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
