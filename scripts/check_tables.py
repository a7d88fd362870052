"""Judge a folder of results of jobs/tables.toml against the paper's two tables: every cell, one line each.

A cell agrees if its mean loss lies within 0.001 of the paper's, and its mean accuracy within 2.5 standard
deviations over the seeds, or 1.5 points where that is more. Ends with code 1 if any cell does not agree
or has fewer than five seeds.

    mpirun -n 2 mu2mpi sweep jobs/tables.toml --output runs/tables
    python scripts/check_tables.py runs/tables
"""

import argparse
import csv
import io
import sys
from pathlib import Path

from mu2mpi.analysis.tables import build_table
from mu2mpi.errors import InputError
from mu2mpi.results.collection import find_summaries

CELLS, SEEDS = 18, 5


def main(folders: list[Path]) -> int:
    """Print a line for each cell and return the exit code."""
    summaries, warnings = find_summaries(folders)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    table = build_table(summaries).render("csv")
    cells = [row for row in csv.DictReader(io.StringIO(table)) if row["test_loss_paper"]]
    whole = [row for row in cells if int(row["seeds"]) >= SEEDS]
    good = sum([agrees(row) for row in whole])
    print(
        f"{good} of {len(whole)} cells agree with the paper; {CELLS - len(whole)} of {CELLS} are incomplete"
    )
    return 0 if good == CELLS else 1


def agrees(row: dict[str, str]) -> bool:
    """Print how one cell compares, and return whether it agrees."""
    name = f"{row['server']:9} M = {row['machines']:>3}, rho = {float(row['rho']):2g}"
    loss_off = float(row["test_loss_mean"]) - float(row["test_loss_paper"])
    accuracy_off = float(row["test_accuracy_mean"]) - float(row["test_accuracy_paper"])
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
    try:
        sys.exit(main(parser.parse_args().folders))
    except InputError as error:
        sys.exit(f"error: {error}")
