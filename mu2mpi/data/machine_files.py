"""Files about machines: what each may spend, and when each was there."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mu2mpi.core.errors import InputError
from mu2mpi.core.files import check_readable
from mu2mpi.core.options import LEAST, MOST
from mu2mpi.core.toml import read_toml
from mu2mpi.data.formats.format import OWNERS, is_file, open_file
from mu2mpi.data.redaction import shown

KINDS = ("rho", "epsilon")  # what a budget may be stated as
MOST_ROUNDS = 10**8  # machines times rounds of a trace


def read_budgets(path: Path, names: Sequence[str]) -> dict[int, tuple[str, float]]:
    """Return the budgets of some machines by their numbers: ``rho`` or ``epsilon``, and how much.

    In TOML, tables ``[rho]`` and ``[epsilon]`` have a number for each name. Any other file has a column, or
    dataset, ``machine``, and one that is called rho or epsilon: a row a machine, or as in the data themselves
    a row a sample, of which all of a machine say the same. InputError if it cannot be used.
    """
    if path.suffix.lower() == ".toml":
        content = read_toml(path)
        if not content or any(kind not in KINDS or not isinstance(of, dict) for kind, of in content.items()):
            raise InputError(f"{path} should have tables [rho] or [epsilon] of machines' names and numbers")
        stated = [(kind, name, value) for kind, of in content.items() for name, value in of.items()]
    else:
        kind, machines, values = _columns(path, KINDS)
        stated = [(kind, *pair) for pair in dict.fromkeys(zip(machines, values.tolist(), strict=True))]
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


def read_trace(path: Path, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return who was there when, by columns ``round``, from 1, and ``machine``: shape (rounds, machines)."""
    _, machines, rounds = _columns(path, ("round",))
    most = MOST_ROUNDS // len(names)
    if not np.all((rounds >= 1) & (rounds <= most) & (rounds == np.floor(rounds))):
        raise InputError(f"{path}: round should be whole numbers in 1 .. {most}")
    places = {name: i for i, name in enumerate(names)}
    if unknown := [name for name in machines if name not in places]:
        raise InputError(f"{path} speaks of {shown(unknown[0])}, and there is no such machine")
    seen = np.zeros((int(rounds.max()), len(names)), bool)
    seen[rounds.astype(np.int64) - 1, [places[name] for name in machines]] = True
    return seen


def _columns(path: Path, numbers: Sequence[str]) -> tuple[str, list[str], NDArray[np.float64]]:
    """Return the one of some columns of numbers that is there by its name, the owners, and the numbers."""
    file = open_file(path) if is_file(str(path)) else None
    there = [] if file is None else file.names if OWNERS in file.names else file.column_names
    found = [name for name in numbers if name in there]
    if file is None or OWNERS not in there or len(found) != 1:
        raise InputError(f"{path} needs a column {OWNERS}, and one that is called {' or '.join(numbers)}")
    columns = file.columns({OWNERS: "names", found[0]: "numbers"})
    owners, values = columns.cells([OWNERS, found[0]], np.arange(columns.samples)).values()
    return found[0], [*map(str, owners.names(set()))], values.numbers()
