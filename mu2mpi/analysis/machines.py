"""Machines that differ, in words and in a short table: what each does and spends."""

import math

import numpy as np
from numpy.typing import NDArray

from mu2mpi.analysis.formats import as_paragraph, as_text, rounded_up
from mu2mpi.privacy.accounts import Accounts

_MAX_ROWS = 20


def by_epsilon(accounts: Accounts) -> NDArray[np.int64]:
    """Return the numbers of all machines, those about whose samples most is told first."""
    return np.lexsort((-accounts.rounds, -np.nan_to_num(accounts.rho), -accounts.epsilon))


def describe_machines(accounts: Accounts) -> str:
    """Say from where to where the machines go, and what each spends about which most is told."""
    there = accounts.rounds > 0
    texts = {"rounds": "{:,}".format, "sigma": "{:.4g}".format, "rho": rounded_up, "epsilon": rounded_up}
    ranges = []
    for name, text in texts.items():
        values = getattr(accounts, name)[there]
        if len(values) and not math.isnan(values.min()):
            ends = dict.fromkeys(map(text, (values.min().item(), values.max().item())))
            ranges.append(f"{name} {' to '.join(ends)}")
    away = f", of which {np.sum(~there):,} never take part" if not there.all() else ""
    said = (
        f"Machines differ, and this is about those of which most is told. There are {len(there):,}{away}: "
        f"{', '.join(ranges)}."
    )
    order = by_epsilon(accounts)[:_MAX_ROWS]
    if len(order) < len(there):
        said += f" The {_MAX_ROWS} about which most is told:"
    header = ["machine", "samples", "rounds", "weight", "sigma", "rho allowed", "rho", "epsilon"]
    return f"{as_paragraph(said)}\n{as_text(header, [[_row(accounts, i) for i in order.tolist()]])}"


def _row(accounts: Accounts, i: int) -> list[str]:
    spent = [getattr(accounts, name)[i].item() for name in ("rho_allowed", "rho", "epsilon")]
    return [
        accounts.names[i],
        f"{accounts.samples[i]:,}",
        f"{accounts.rounds[i]:,}",
        f"{accounts.weight[i]:.3g}",
        f"{accounts.sigma[i]:.4g}",
        *("none" if math.isnan(value) else rounded_up(value) for value in spent),
    ]
