"""What each machine does and spends, where machines differ: a row of a table for each."""

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]


def described(long_name: str, units: str = "1") -> dict[str, str]:
    """Return what a file says of a column."""
    return {"long_name": long_name, "units": units}


@dataclass(frozen=True, eq=False)
class Accounts:
    """What each of M machines does and spends; every column has shape (machines,)."""

    samples: Integers = field(metadata=described("samples that the machine has"))
    rounds: Integers = field(metadata=described("rounds in which the machine takes part"))
    weight: Floats = field(metadata=described("by what its increments are multiplied"))
    clip_norm: Floats = field(metadata=described("norm to which its weighted increments are clipped"))
    sigma: Floats = field(metadata=described("standard deviation of the noise that hides its messages"))
    rho_allowed: Floats = field(metadata=described("rho that it may spend"))
    rho: Floats = field(metadata=described("rho of what is told of one of its samples; NaN if there is none"))
    epsilon: Floats = field(metadata=described("epsilon of that at the delta of /privacy"))
    owners: tuple[str, ...] | None = None
    present: NDArray[np.bool_] | None = None

    @classmethod
    def columns(cls) -> dict[str, Any]:
        """Return what a file says of each column, by name."""
        return {entry.name: entry.metadata for entry in fields(cls) if entry.metadata}

    @property
    def names(self) -> tuple[str, ...]:
        """What the machines are called."""
        return self.owners or tuple(map(str, range(len(self.samples))))

    @property
    def all_samples(self) -> int:
        """How many all machines have together."""
        return int(self.samples.sum())

    @property
    def budgets(self) -> dict[int, tuple[str, float]]:
        """What each may spend, as files of budgets say it."""
        return {i: ("rho", rho) for i, rho in enumerate(self.rho_allowed.tolist())}

    def differences(self, other: "Accounts") -> list[str]:
        """Say what of another's rows is not what these say: for each column the first machine."""
        found = []
        for name in self.columns():
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours.shape != theirs.shape:
                return [f"{len(ours)} machines are stated, and there are {len(theirs)}"]
            wrong = np.flatnonzero(~np.isclose(ours, theirs, rtol=1e-9, atol=1e-12, equal_nan=True))
            if wrong.size:
                i = wrong[0]
                found.append(
                    f"{name} of machine {self.names[i]} is {ours[i]:.10g}, and {theirs[i]:.10g} by its "
                    "rounds, its weight and what it may spend"
                )
        present, expected = (np.empty(0) if one.present is None else one.present for one in (self, other))
        if not np.array_equal(present, expected):
            found.append("who is present when is not what the experiment says")
        return found
