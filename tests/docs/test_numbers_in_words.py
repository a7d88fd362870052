"""The page on privacy in plain words states numbers: here they are computed again."""

import re
from math import exp, sqrt
from pathlib import Path
from statistics import NormalDist

import pytest

from mu2mpi.privacy.accounting.gaussian_dp import epsilon_exact, rho_exact

PAGE = (Path(__file__).parents[2] / "docs/background/privacy-in-plain-words.md").read_text()
ROWS = [re.findall(r"[\d.]+", row) for row in re.findall(r"^\| \d.*$", PAGE, re.MULTILINE)]
DELTA = 1e-5


def decimals(number: str) -> int:
    """Return how many digits of a number are behind its point."""
    return len(number.partition(".")[2])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"epsilon={row[0]}")
def test_a_row_says_what_an_attacker_can_do(row):
    normal = NormalDist()
    rho = float(row[1])
    if rho != 4:
        rho = rho_exact(float(row[0]), DELTA)
    epsilon = epsilon_exact(rho, DELTA)
    found = normal.cdf(normal.inv_cdf(0.01) + rho)
    by_epsilon = (exp(epsilon) + DELTA) / (exp(epsilon) + 1)
    numbers = epsilon, rho, 100 * normal.cdf(rho / 2), 100 * found, 100 * by_epsilon
    assert row == [f"{number:.{decimals(stated)}f}" for number, stated in zip(numbers, row, strict=True)]


def test_all_rows_are_found():
    assert [row[0] for row in ROWS] == ["0", "0.5", "1", "2", "4", "8", "24.4"]


@pytest.mark.parametrize("times", [sqrt(2), sqrt(10), 5], ids=["two runs", "ten runs", "five samples"])
def test_several_have_the_epsilon_that_is_stated(times):
    assert f"ε = {epsilon_exact(0.5 * times, DELTA):.1f}" in PAGE
