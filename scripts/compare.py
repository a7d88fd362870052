"""Print the table of docs/background/tables.md from what scripts/rivals.py and scripts/ours.py wrote.

python scripts/compare.py rivals.csv ours.csv
"""

import sys

import pandas as pd


def entry(runs: pd.DataFrame) -> str:
    """Return mean and deviation of the accuracy in %, or of R2, and the loss."""
    if runs.empty:
        return ""
    share = not runs.accuracy.isna().all()
    score = 100 * runs.accuracy if share else runs.r2
    if score.mean() < 0 and not share and score.std() > 1:
        return f"{score.max():.2g} at best"
    digits = 2 if share else 3
    text = f"{score.mean():.{digits}f}" + (f" ± {score.std():.{digits}f}" if len(runs) > 1 else "")
    return text + (f" ({runs.loss.mean():.4f})" if runs.loss.notna().all() else "")


if __name__ == "__main__":
    found = pd.concat([pd.read_csv(name) for name in sys.argv[1:]])
    ours = found[found.model.str.contains("sgd|ssp")]
    columns = ("no privacy", "diffprivlib", "`mu2-sgd`", "`dp-sgd`", "`ada-ssp`")
    print(f"| table, loss | rows | ε | {' | '.join(columns)} |\n{'| --- ' * 8}|")
    for (table, kind), runs in ours.groupby(["table", ours.model.str.split().str[1]], sort=True):
        regression = {"logistic": "Logistic", "squared": "Linear", "poisson": "Poisson"}[kind]
        others = found[found.table == table]
        plain = others[others.model.str.fullmatch(f"{regression}Regress(ion|or)")]
        for epsilon in (1.0, 4.0):
            rivals = others[others.epsilon == epsilon]
            ours_by_method = (f"{method} {kind}" for method in ("mu2-sgd", "dp-sgd", "ada-ssp"))
            private = [f"diffprivlib {regression}Regression", *ours_by_method]
            cells = [entry(plain), *(entry(rivals[rivals.model == name]) for name in private)]
            print(f"| {table}, {kind} | {runs.samples.max():,} | {epsilon:g} | {' | '.join(cells)} |")
