"""Differentially private federated stochastic convex optimisation over MPI.

>>> result = mu2mpi.run(mu2mpi.Experiment(data="digits", machines=4, server="trusted", rho=4.0, seed=1))
>>> runs = mu2mpi.load("runs/")
"""

from typing import TYPE_CHECKING, Any

from mu2mpi._version import __version__

if TYPE_CHECKING:
    from mu2mpi.analysis.live import LiveFigure as LiveFigure
    from mu2mpi.analysis.runs import Runs as Runs, load as load
    from mu2mpi.config.experiment import Experiment as Experiment
    from mu2mpi.core.errors import InputError as InputError, Interrupted as Interrupted
    from mu2mpi.core.registry import register as register
    from mu2mpi.execution.job import run as run
    from mu2mpi.execution.sweep import sweep as sweep
    from mu2mpi.results.observer import Observer as Observer
    from mu2mpi.results.reader import read_result as read_result
    from mu2mpi.results.schema import Result as Result

_HOMES = {
    "Experiment": "mu2mpi.config.experiment",
    "InputError": "mu2mpi.core.errors",
    "Interrupted": "mu2mpi.core.errors",
    "LiveFigure": "mu2mpi.analysis.live",
    "Observer": "mu2mpi.results.observer",
    "Result": "mu2mpi.results.schema",
    "Runs": "mu2mpi.analysis.runs",
    "load": "mu2mpi.analysis.runs",
    "read_result": "mu2mpi.results.reader",
    "register": "mu2mpi.core.registry",
    "run": "mu2mpi.execution.job",
    "sweep": "mu2mpi.execution.sweep",
}
__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: numba alone takes longer than `mu2mpi --help` may."""
    if name not in _HOMES:
        raise AttributeError(f"module 'mu2mpi' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
