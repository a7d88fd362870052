"""Differentially private federated stochastic convex optimisation over MPI.

>>> result = mu2mpi.run(mu2mpi.Experiment(data="digits", machines=4, server="trusted", rho=4.0, seed=1))
>>> runs = mu2mpi.load("runs/")
"""

from typing import Any

from mu2mpi._version import __version__

# Module of each public name; __init__.pyi declares the names for type checkers
_MODULE_OF_EXPORT = {
    "Experiment": "mu2mpi.config.experiment",
    "InputError": "mu2mpi.core.errors",
    "Interrupted": "mu2mpi.core.errors",
    "Callback": "mu2mpi.results.callbacks",
    "Result": "mu2mpi.results.result",
    "Runs": "mu2mpi.analysis.runs",
    "audit_trust_modes": "mu2mpi.audit.trials",
    "load": "mu2mpi.analysis.runs",
    "read_result": "mu2mpi.results.reader",
    "register": "mu2mpi.core.registry",
    "run": "mu2mpi.execution.job",
    "sweep": "mu2mpi.analysis.runs",
}
__all__ = ["__version__", *_MODULE_OF_EXPORT]


def __getattr__(name: str) -> Any:
    """Import a public name on its first use, since imports such as numba would slow down `mu2mpi --help`."""
    if name not in _MODULE_OF_EXPORT:
        raise AttributeError(f"module 'mu2mpi' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULE_OF_EXPORT[name]), name)


def __dir__() -> list[str]:
    return __all__
