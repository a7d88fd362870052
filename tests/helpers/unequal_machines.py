"""A source of data of which owners have unequal numbers of samples, and files about machines."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from helpers.sources import ArraySource, random_source
from mu2mpi.federation.participation.schedule import Federation


class OwnedSource(ArraySource):
    """A source of which owners are called a, b, c, ..., or as they are numbered."""

    has_owners = True
    owners: NDArray[Any]

    def read_owners(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        return self.owners[rows]


def owned_source(
    seed: int, sizes: list[int], dimension: int, classes: int, dtype: type = np.float32
) -> OwnedSource:
    """Return random samples, of which owners have so many each, in no order."""
    source = random_source(seed, sum(sizes), dimension, classes, dtype)
    source.__class__ = OwnedSource
    names = np.array([chr(ord("a") + i) for i in range(len(sizes))])
    source.owners = np.random.default_rng(seed).permutation(np.repeat(names, sizes))  # type: ignore[attr-defined]
    return source  # type: ignore[return-value]


def write_budgets(path: Path, **budgets: dict[str, float]) -> str:
    """Write tables of budgets by name, and return the name of the file."""
    lines = [
        line
        for kind, of in budgets.items()
        for line in (f"[{kind}]", *(f"{k!r} = {v}" for k, v in of.items()))
    ]
    path.write_text("\n".join(lines))
    return str(path)


def write_trace(path: Path, present: NDArray[np.bool_], names: list[str] | None = None) -> str:
    """Write who is there when as rows of a CSV file, and return the name of the option."""
    rounds, machines = np.nonzero(present)
    rows = [f"{t + 1},{names[i] if names else i}" for t, i in zip(rounds, machines, strict=True)]
    path.write_text("\n".join(["round,machine", *rows, ""]))
    return f"trace:{path}"


def federation_of(machines: int, seed: int = 0, present: NDArray[np.bool_] | None = None) -> Federation:
    """Return facts about machines of a sample each, from which participation schedules are made."""
    return Federation(np.ones(machines, np.int64), tuple(map(str, range(machines))), seed, present)
