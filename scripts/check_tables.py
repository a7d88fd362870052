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
from mu2mpi.core.errors import InputError
from mu2mpi.results.result_files import load_summaries

SEEDS = 5
"""A cell is not judged with fewer."""


def main(folders: list[Path], partial: bool) -> int:
    """Print a line for each cell of the paper and return the exit code."""
    summaries, warnings = load_summaries(folders)
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    rows = csv.DictReader(io.StringIO(build_table(summaries).render("csv")))
    measured = {cell_of(row): row for row in rows if row["test_loss_paper"]}
    paper = resources.files("mu2mpi.analysis").joinpath("paper_tables.csv").read_text("utf-8")
    cells = [cell_of(row) for row in csv.DictReader(io.StringIO(paper))]
    verdicts = [judge(cell, measured.get(cell)) for cell in cells]
    good, bad = verdicts.count(True), verdicts.count(False)
    left = f"{len(cells) - good - bad} of {len(cells)} are not judged yet"
    print(f"{good} of {good + bad} cells agree with the paper; {left}")
    return 1 if bad or (good < len(cells) and not partial) else 0


def cell_of(row: dict[str, str]) -> tuple[str, int, float]:
    """Return server, M and rho of a row of a table."""
    return row["server"], int(row["machines"]), float(row["rho"])


def judge(cell: tuple[str, int, float], row: dict[str, str] | None) -> bool | None:
    """Print how one cell compares, and return whether it agrees, or None if it is not judged."""
    server, machines, rho = cell
    seeds, good, verdict = int(row["seeds"]) if row else 0, None, "not run yet"
    if row is not None and seeds:
        loss = float(row["test_loss_mean"]) - float(row["test_loss_paper"])
        accuracy = float(row["test_accuracy_mean"]) - float(row["test_accuracy_paper"])
        allowed = max(2.5 * float(row["test_accuracy_sd"] or 0), 0.015)
        verdict = f"loss {loss:+.5f}, accuracy {100 * accuracy:+.2f} of {100 * allowed:.2f} points allowed: "
        if seeds < SEEDS:
            verdict += f"not judged, {seeds} of at least {SEEDS} seeds"
        else:
            good = abs(loss) <= 0.001 and abs(accuracy) <= allowed
            verdict += "agrees" if good else "DIFFERS"
    print(f"{server:9} M = {machines:>3}, rho = {rho:2g}: {verdict}")
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
