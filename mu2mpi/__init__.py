"""Differentially private federated stochastic convex optimisation over MPI.

>>> result = mu2mpi.run(mu2mpi.Experiment(data="digits", machines=4, server="trusted", rho=4.0, seed=1))
>>> runs = mu2mpi.load("runs/")
"""

from typing import Any

from mu2mpi._version import __version__

# Module of each public name; type checkers read them in __init__.pyi
_HOMES = {
    "Experiment": "mu2mpi.config.experiment",
    "InputError": "mu2mpi.core.errors",
    "Interrupted": "mu2mpi.core.errors",
    "LiveFigure": "mu2mpi.analysis.runs",
    "Observer": "mu2mpi.results.callbacks",
    "Result": "mu2mpi.results.result",
    "Runs": "mu2mpi.analysis.runs",
    "load": "mu2mpi.analysis.runs",
    "read_result": "mu2mpi.results.reader",
    "register": "mu2mpi.core.registry",
    "run": "mu2mpi.execution.job",
    "sweep": "mu2mpi.analysis.runs",
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
