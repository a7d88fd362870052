"""Per-machine privacy accounts of a federation whose machines differ: one table row per machine."""

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from mu2mpi.core.arrays import BoolArray, FloatArray, IntArray


def column_metadata(long_name: str, units: str = "1") -> dict[str, str]:
    """HDF5 attributes of an array: its long name, and its units by the CF conventions unless they are 1."""
    # xarray would print a unit of 1 on the axes of its plots.
    return {"long_name": long_name} | ({} if units == "1" else {"units": units})


@dataclass(frozen=True, eq=False)
class PerMachineAccounts:
    """Table of rounds, noise and privacy loss of each machine; every column has shape (machines,)."""

    samples: IntArray = field(metadata=column_metadata("number of samples of the machine"))
    rounds: IntArray = field(metadata=column_metadata("number of rounds in which the machine participates"))
    weight: FloatArray = field(metadata=column_metadata("weight of the machine's increments"))
    clip_norm: FloatArray = field(metadata=column_metadata("clipping norm of its weighted increments"))
    sigma: FloatArray = field(metadata=column_metadata("noise standard deviation of its messages"))
    rho_budget: FloatArray = field(metadata=column_metadata("privacy budget rho"))
    rho: FloatArray = field(metadata=column_metadata("rho of one of its samples; NaN if undefined"))
    epsilon: FloatArray = field(metadata=column_metadata("epsilon of one sample at the delta of /privacy"))
    machine_owners: tuple[str, ...] | None = None  # names of the machines' data owners
    participation: BoolArray | None = None  # shape (rounds, machines); None if it was not recorded

    @classmethod
    def columns(cls) -> dict[str, Any]:
        """HDF5 attributes of each column of the accounts table, by column name."""
        return {entry.name: entry.metadata for entry in fields(cls) if entry.metadata}

    @property
    def machine_names(self) -> tuple[str, ...]:
        """Name of each machine: its data owner, or its index if owners are unnamed."""
        return self.machine_owners or tuple(map(str, range(len(self.samples))))

    @property
    def budgets(self) -> dict[int, tuple[str, float]]:
        """Privacy budget of each machine, in the form of a budgets file: index -> ("rho", value)."""
        return {i: ("rho", rho) for i, rho in enumerate(self.rho_budget.tolist())}

    def differences(self, other: "PerMachineAccounts") -> list[str]:
        """Error messages on columns in which recomputed accounts differ, one per column."""
        messages = []
        for name in self.columns():
            stated, computed = getattr(self, name), getattr(other, name)
            if stated.shape != computed.shape:
                return [f"{len(stated)} machines are stated, but the experiment has {len(computed)}"]
            is_equal = np.isclose(stated, computed, rtol=1e-9, atol=1e-12, equal_nan=True)
            if not is_equal.all():
                i = np.argmin(is_equal)
                messages.append(
                    f"{name} of machine {self.machine_names[i]} is {stated[i]:.10g}, but its rounds, weight "
                    f"and budget give {computed[i]:.10g}"
                )
        if not np.array_equal(np.asarray(self.participation), np.asarray(other.participation)):
            messages.append("participation is not that of the experiment")
        return messages
