"""Files about machines: what each may spend, and when each was there."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mu2mpi.data.formats.by_suffix import column_names, open_columns
from mu2mpi.data.formats.columns import Kind
from mu2mpi.data.formats.table import OWNERS, shown
from mu2mpi.data.options import LEAST, MOST, is_file
from mu2mpi.errors import InputError
from mu2mpi.files import check_readable
from mu2mpi.toml import read_toml

KINDS = ("rho", "epsilon")
"""What a budget may be stated as."""

ROUND = "round"

MOST_ROUNDS = 10**8
"""Machines times rounds of a trace."""


def read_budgets(path: Path, names: Sequence[str]) -> dict[int, tuple[str, float]]:
    """Return the budgets of some machines by their numbers: ``rho`` or ``epsilon``, and how much.

    In TOML, tables ``[rho]`` and ``[epsilon]`` have a number for each name. Any other file has a column, or
    dataset, ``machine``, and one that is called rho or epsilon: a row a machine, or as in the data themselves
    a row a sample, of which all of a machine say the same. InputError if it cannot be used.
    """
    if path.suffix.lower() == ".toml":
        stated = _of_toml(path)
    else:
        there = _names(path)
        kinds = [kind for kind in KINDS if kind in there]
        if OWNERS not in there or len(kinds) != 1:
            raise InputError(f"{path} needs a column {OWNERS}, and one that is called {' or '.join(KINDS)}")
        kind = kinds[0]
        rows = _columns(path, {OWNERS: "names", kind: "numbers"})
        pairs = zip(_texts(rows[OWNERS]), rows[kind].tolist(), strict=True)
        stated = [(kind, *pair) for pair in dict.fromkeys(pairs)]
    places = {name: i for i, name in enumerate(names)}
    found: dict[int, tuple[str, float]] = {}
    for kind, name, value in stated:
        if name not in places:
            raise InputError(f"{path} has a budget of {shown(name)}, and there is no such machine")
        if places[name] in found:
            raise InputError(f"{path} has several budgets of {shown(name)}; give one")
        if isinstance(value, bool) or not isinstance(value, int | float) or not LEAST <= value <= MOST:
            raise InputError(f"{path}: {kind} of {shown(name)} should be a number in {LEAST:g} .. {MOST:g}")
        found[places[name]] = kind, float(value)
    return found


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    check_readable(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def combined_digest(digests: Iterable[str]) -> str:
    """Return one digest of the content of several files; empty for no files."""
    found = b"".join(map(bytes.fromhex, digests))
    return hashlib.sha256(found).hexdigest() if found else ""


def _of_toml(path: Path) -> list[tuple[str, str, Any]]:
    content = read_toml(path)
    if not content or any(kind not in KINDS or not isinstance(of, dict) for kind, of in content.items()):
        raise InputError(f"{path} should have tables [rho] or [epsilon] of machines' names and numbers")
    return [(kind, name, value) for kind, of in content.items() for name, value in of.items()]


def read_trace(path: Path, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return who was there when, shape (rounds, machines).

    The file has columns ``round``, from 1, and ``machine``, and a row for each machine in each round.
    InputError if it cannot be used.
    """
    if not {ROUND, OWNERS} <= set(_names(path)):
        raise InputError(f"{path} needs columns {ROUND} and {OWNERS}: a row for each machine in each round")
    rows = _columns(path, {ROUND: "numbers", OWNERS: "names"})
    rounds = rows[ROUND].astype(np.float64)
    most = MOST_ROUNDS // len(names)
    if not np.all((rounds >= 1) & (rounds <= most) & (rounds == np.floor(rounds))):
        raise InputError(f"{path}: {ROUND} should be whole numbers in 1 .. {most}")
    places = {name: i for i, name in enumerate(names)}
    machines = [places.get(name, -1) for name in _texts(rows[OWNERS])]
    if -1 in machines:
        unknown = _texts(rows[OWNERS])[machines.index(-1)]
        raise InputError(f"{path} speaks of {shown(unknown)}, and there is no such machine")
    seen = np.zeros((int(rounds.max()), len(names)), bool)
    seen[rounds.astype(np.int64) - 1, machines] = True
    return seen


def _names(path: Path) -> list[str]:
    """Return the names of columns; none of what is no table."""
    return column_names(path, beside=True) if is_file(str(path)) else []


def _columns(path: Path, wanted: dict[str, Kind]) -> dict[str, NDArray[Any]]:
    columns = open_columns(path, wanted, verify=True, beside=True)
    return columns.read(list(wanted), np.arange(columns.samples))


def _texts(values: NDArray[Any]) -> list[str]:
    if values.dtype.kind == "f" and np.all(values == np.floor(values)):
        # As owners of samples are whole numbers, however they are stored.
        values = values.astype(np.int64)
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values.tolist()]
