"""The constants of a run from plain numbers, also in combinations that an experiment refuses."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from mu2mpi.config.experiment import Experiment
from mu2mpi.config.problem_builder import build_problem
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.registry import lookup
from mu2mpi.data.source import DataSource
from mu2mpi.execution.plan import resolve_plan
from mu2mpi.execution.simulation import Simulation
from mu2mpi.federation.machine import Machines
from mu2mpi.federation.problem import Problem
from mu2mpi.federation.run_constants import RunConstants
from mu2mpi.federation.sample_reader import make_sample_reader
from mu2mpi.losses.model.scaling import Scaling
from mu2mpi.methods.method import Method
from mu2mpi.privacy.released_sums import ReleasedSums
from mu2mpi.results.result import Result

SWITCHED = ("mu2-sgd", "anytime-sgd", "parallel-sgd", "storm")
"""The methods that consist of one of two estimators and one of two query points."""
NO_SCALING = Scaling()


def make_messages(clip_norm: float, gradient_norm: float, d: int, machines: int, summed: int) -> ReleasedSums:
    """Return what is to be hidden, with the numbers that a grid depends on."""
    return ReleasedSums(
        rounds=summed, machines=machines, parameters=d, clip_norm=clip_norm, max_gradient_norm=gradient_norm,
        affected_sums=1, increments_per_message=summed, samples=summed, batch_size=1.0,
    )  # fmt: skip


def make_task(
    method: str,
    *,
    machines: int,
    classes: int,
    features: int,
    samples: int,
    most: int | None = None,
    server: str = "untrusted",
    server_options: dict[str, Any] | None = None,
    clip_norm: float | None = None,
    eta_scale: float | None = None,
    options: dict[str, Any] | None = None,
    **settings: Any,
) -> tuple[Method, Problem]:
    """Return a method and its task; settings of which methods refuse some never meet their checks."""
    chosen: Method = lookup("methods", method)
    problem = build_problem(Experiment(**settings), machines, classes, features, samples, most)
    own = {"clip_norm": clip_norm, "eta_scale": eta_scale}
    mine = chosen.options(**(options or {}))
    trust_mode = lookup("servers", server)
    others = trust_mode.options(**(server_options or {}))
    own |= {
        "server": server,
        "server_options": others,
        "noise_shares": trust_mode.noise_shares(others, machines),
    }
    own["mechanism"] = mechanism = trust_mode.mechanism or chosen.mechanism
    own["mechanism_options"] = lookup("mechanisms", mechanism).options()
    return chosen, replace(problem, method_options=mine, **own)


def make_schedule(method: str = "mu2-sgd", *, rounds: int, samples: int = 0, **sizes: Any) -> RunConstants:
    """Return the constants of a run of so many rounds, for which there are enough samples by default."""
    chosen, problem = make_task(method, samples=samples or rounds, **sizes)
    return chosen.run_constants(problem, chosen.batching(problem, rounds))


def evaluated_problem(loss: str, scaling: Scaling = NO_SCALING, G: float = 1.0) -> Any:
    """Return the part of a problem that evaluators read."""
    return SimpleNamespace(loss=lookup("losses", loss), feature_scaling=scaling, G=G)


def simulation_of(
    experiment: Experiment, source: DataSource, communicator: Communicator | None = None
) -> Simulation:
    """Return a run on some ranks, or in this process alone."""
    communicator = communicator or Communicator()
    return Simulation(resolve_plan(experiment, source, communicator.size), communicator)


def share_result(result: Result, communicator: Communicator) -> Result:
    """Return the result of a run in one process as ranks get it, on all but rank 0 without private values."""
    return result if communicator.rank == 0 else replace(result, diagnostics=None)


def machines_on(
    source: DataSource, constants: RunConstants, key: bytes = bytes(32), noise: Any = None
) -> Machines:
    """Return all machines of a run, hosted by one rank, before the first round."""
    hosted_machines = range(constants.problem.machines)
    return Machines(
        constants,
        hosted_machines,
        make_sample_reader(source, constants, key, hosted_machines, "iid", bytes(32)),
        noise,
    )
