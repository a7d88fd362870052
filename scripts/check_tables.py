"""Judge a folder of results of jobs/tables.toml against the paper's two tables: every cell, one line each.

A cell agrees if its mean loss lies within 0.001 of the paper's, and its mean accuracy within 2.5 standard
deviations over the seeds, or 1.5 points where that is more. A cell with fewer than five seeds is not judged.
Ends with code 1 if any cell does not agree or, but for --partial, if any is not judged.

    mpirun -n 2 mu2mpi sweep jobs/tables.toml --output runs/tables
    python scripts/check_tables.py runs/tables
"""

import argparse
import csv
import io
import sys
from importlib import resources
from pathlib import Path

from mu2mpi.analysis.tables import build_table
from mu2mpi.errors import InputError
from mu2mpi.results.collection import find_summaries

SEEDS = 5
"""A cell is not judged with fewer."""

Cell = tuple[str, int, float]
"""Server, M and rho."""


def main(folders: list[Path], partial: bool) -> int:
    """Print a line for each cell of the paper and return the exit code."""
    summaries, warnings = find_summaries(folders)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    table = build_table(summaries).render("csv")
    rows = csv.DictReader(io.StringIO(table))
    measured = {cell_of(row): row for row in rows if row["test_loss_paper"]}
    paper = resources.files("mu2mpi.analysis").joinpath("paper_tables.csv").read_text("utf-8")
    cells = [cell_of(row) for row in csv.DictReader(io.StringIO(paper))]
    verdicts = [judge(cell, measured.get(cell)) for cell in cells]
    good, bad = verdicts.count(True), verdicts.count(False)
    left = f"{len(cells) - good - bad} of {len(cells)} are not judged yet"
    print(f"{good} of {good + bad} cells agree with the paper; {left}")
    return 1 if bad or (good < len(cells) and not partial) else 0


def cell_of(row: dict[str, str]) -> Cell:
    """Return the cell of a row of a table."""
    return row["server"], int(row["machines"]), float(row["rho"])


def judge(cell: Cell, row: dict[str, str] | None) -> bool | None:
    """Print how one cell compares, and return whether it agrees, or None if it is not judged."""
    server, machines, rho = cell
    name = f"{server:9} M = {machines:>3}, rho = {rho:2g}"
    seeds = int(row["seeds"]) if row else 0
    if row is None or not seeds:
        print(f"{name}: not run yet")
        return None
    loss_off = float(row["test_loss_mean"]) - float(row["test_loss_paper"])
    accuracy_off = float(row["test_accuracy_mean"]) - float(row["test_accuracy_paper"])
    if seeds < SEEDS:
        print(
            f"{name}: loss {loss_off:+.5f}, accuracy {100 * accuracy_off:+.2f} points: "
            f"not judged, {seeds} of at least {SEEDS} seeds"
        )
        return None
    allowed = max(2.5 * float(row["test_accuracy_sd"]), 0.015)
    good = abs(loss_off) <= 0.001 and abs(accuracy_off) <= allowed
    print(
        f"{name}: loss {loss_off:+.5f}, accuracy {100 * accuracy_off:+.2f} of {100 * allowed:.2f} points "
        f"allowed: {'agrees' if good else 'DIFFERS'}"
    )
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+", metavar="PATH", help="results of jobs/tables.toml")
    parser.add_argument(
        "--partial", action="store_true", help="do not fail for cells of which runs are missing so far"
    )
    try:
        arguments = parser.parse_args()
        sys.exit(main(arguments.folders, arguments.partial))
    except InputError as error:
        sys.exit(f"error: {error}")
