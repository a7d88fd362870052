"""Files with per-machine settings: privacy budgets, and participation traces."""

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from mu2mpi.core.arrays import BoolArray, FloatArray
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import check_readable
from mu2mpi.core.options import MAX_REAL_OPTION, MIN_REAL_OPTION
from mu2mpi.core.toml import read_toml
from mu2mpi.data.formats.format import OWNER_COLUMN, is_data_file, open_data_file
from mu2mpi.data.redaction import safe_text, to_nfc

BUDGET_KINDS = ("rho", "epsilon")  # privacy parameters in which a budget may be stated
MAX_TRACE_MACHINE_ROUNDS = 10**8  # machines x rounds of a trace


def read_privacy_budgets(path: Path, machine_names: Sequence[str]) -> dict[int, tuple[str, float]]:
    """Read privacy budgets as pairs ("rho" or "epsilon", value), by index of the machine in `machine_names`.

    The file is TOML with tables ``[rho]`` and ``[epsilon]`` of machine names and numbers, or a data file with
    the column ``machine`` and a column rho or epsilon. InputError if the content is invalid.
    """
    if path.suffix.lower() == ".toml":
        content = read_toml(path)
        if not content or any(k not in BUDGET_KINDS or not isinstance(t, dict) for k, t in content.items()):
            raise InputError(f"{path} must have tables [rho] or [epsilon] of machine names and numbers")
        budgets = [(kind, name, value) for kind, table in content.items() for name, value in table.items()]
    else:
        kind, machines, values = _read_machine_column(path, BUDGET_KINDS)
        budgets = [(kind, *pair) for pair in dict.fromkeys(zip(machines, values.tolist(), strict=True))]
    index_of = {name: i for i, name in enumerate(machine_names)}
    by_machine: dict[int, tuple[str, float]] = {}
    for kind, given_name, value in budgets:
        if (name := to_nfc(given_name)) not in index_of:
            raise InputError(f"{path} has a budget of {safe_text(name)}, and there is no such machine")
        if index_of[name] in by_machine:
            raise InputError(f"{path} has several budgets of {safe_text(name)}; give one")
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not MIN_REAL_OPTION <= value <= MAX_REAL_OPTION:
            valid_range = f"{MIN_REAL_OPTION:g} .. {MAX_REAL_OPTION:g}"
            raise InputError(f"{path}: {kind} of {safe_text(name)} must be a number in {valid_range}")
        by_machine[index_of[name]] = kind, float(value)
    return by_machine


def file_digest(path: Path) -> str:
    """SHA-256 digest of the content of a file, in hexadecimal digits."""
    check_readable(path)
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def combined_digest(digests: Iterable[str]) -> str:
    """SHA-256 digest of the concatenated digests of several files; empty without files."""
    content = b"".join(map(bytes.fromhex, digests))
    return hashlib.sha256(content).hexdigest() if content else ""


def read_participation_trace(path: Path, machine_names: Sequence[str]) -> BoolArray:
    """Read a participation trace as a mask (rounds, machines), from its columns ``round`` and ``machine``."""
    _, machines, rounds = _read_machine_column(path, ("round",))
    max_rounds = MAX_TRACE_MACHINE_ROUNDS // len(machine_names)
    if not np.all((rounds >= 1) & (rounds <= max_rounds) & (rounds == np.floor(rounds))):
        raise InputError(f"{path}: round must be whole numbers in 1 .. {max_rounds}")
    index_of = {name: i for i, name in enumerate(machine_names)}
    if unknown := [name for name in machines if name not in index_of]:
        raise InputError(f"{path} names the machine {safe_text(unknown[0])}, and there is no such machine")
    mask = np.zeros((int(rounds.max()), len(machine_names)), bool)
    mask[rounds.astype(np.int64) - 1, [index_of[name] for name in machines]] = True
    return mask


def _read_machine_column(path: Path, candidate_columns: Sequence[str]) -> tuple[str, list[str], FloatArray]:
    """Name of the only candidate column of a data file, machine names, and the column's numbers."""
    file = open_data_file(path) if is_data_file(str(path)) else None
    names = file and file.column_names
    present = [name for name in candidate_columns if name in (names or [])]
    if not file or not names or OWNER_COLUMN not in names or len(present) != 1:
        columns = " or ".join(candidate_columns)
        raise InputError(f"{path} needs the column {OWNER_COLUMN} and one column {columns}")
    arrays = file.columns({OWNER_COLUMN: "names", present[0]: "numbers"})
    rows = np.arange(arrays[OWNER_COLUMN].shape[0])
    owners, values = (file.column_values(name, rows, array[rows]) for name, array in arrays.items())
    return present[0], [*map(str, owners.to_integers_or_texts(set()))], values.to_numbers()
