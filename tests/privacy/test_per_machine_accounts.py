"""Rows of what each machine spends, against those that are computed again."""

from dataclasses import replace

import numpy as np
import pytest

from mu2mpi.privacy.accounting.per_machine_accounts import PerMachineAccounts

COLUMNS = {name: np.array([2, 4]) for name in ("samples", "rounds")}
COLUMNS |= {name: np.array([1.0, 0.5]) for name in PerMachineAccounts.columns() if name not in COLUMNS}
STATED = PerMachineAccounts(
    **{**COLUMNS, "rho": np.array([1.0, np.nan])}, machine_owners=("clinic", "practice")
)


@pytest.mark.parametrize("column", PerMachineAccounts.columns())
def test_a_value_that_differs_is_named_with_its_machine(column):
    values = getattr(STATED, column)
    assert STATED.differences(replace(STATED, **{column: values * (1 + 1e-12)})) == []
    (found,) = STATED.differences(replace(STATED, **{column: np.array([values[0], 3])}))
    assert found.startswith(f"{column} of machine practice is ")
    assert STATED.differences(replace(STATED, **{column: values[:1]})) == [
        "2 machines are stated, but the experiment has 1"
    ]


def test_totals_and_attendance():
    assert STATED.machine_names == ("clinic", "practice")
    assert (replace(STATED, machine_owners=None).machine_names, STATED.budgets[1]) == (
        ("0", "1"),
        ("rho", 0.5),
    )
    participation = np.array([[True, False], [True, True]])
    stated = replace(STATED, participation=participation)
    assert stated.differences(replace(STATED, participation=participation.copy())) == []
    assert (
        len(stated.differences(STATED))
        == len(stated.differences(replace(STATED, participation=~participation)))
        == 1
    )
