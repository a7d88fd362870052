"""What the attacks of an audit are given, what they find, and how they are found."""

import importlib
import pkgutil
from dataclasses import dataclass
from types import ModuleType
from typing import NamedTuple

from mu2mpi.audit.canaries import Canaries, Kinds
from mu2mpi.config.experiment import Experiment
from mu2mpi.federation.constants import RunConstants
from mu2mpi.losses.base import Array
from mu2mpi.privacy.accounting.guarantee import Budget


class Finding(NamedTuple):
    """Line of the report, what refutes the claim, and what cannot be if the code does what it says."""

    summary: str = ""
    refutations: tuple[str, ...] = ()
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True)
class Runs:
    """Runs of one worst case, each with its own key, and what an adversary sees of them."""

    canaries: Canaries
    kinds: Kinds  # shape (runs, canaries)
    keys: list[bytes]
    seen: list[Array]  # what crosses each rank's wire, as of `see`, shape (runs, numbers)
    differences: list[Array]  # by what each canary moves that, shape (canaries, numbers)


@dataclass(frozen=True)
class View:
    """What attacks may use."""

    experiment: Experiment
    constants: RunConstants  # constants of the audited runs
    root: bytes  # secret of 32 bytes from which all keys follow
    risk: float  # largest probability with which one attack complains about faultless code
    runs: tuple[Runs, ...] = ()  # of each worst case

    @property
    def budget(self) -> Budget:
        """Claim for machines without a budget of their own."""
        return Budget(self.experiment.rho, self.experiment.target_epsilon, self.experiment.delta)


def all_attacks() -> list[ModuleType]:
    """Modules of `mu2mpi.audit.attacks`, by name."""
    from mu2mpi.audit import attacks

    names = (found.name for found in pkgutil.iter_modules(attacks.__path__))
    return [importlib.import_module(f"{attacks.__name__}.{name}") for name in names]
