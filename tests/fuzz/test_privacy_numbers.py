"""rho, epsilon and delta from each other: what is printed is true, and hardly more than it has to be."""

import math
import re

import mpmath
import pytest
from helpers.slow import slow

from mu2mpi.analysis.budget_conversion import convert_budget
from mu2mpi.core.options import MAX_REAL_OPTION, MIN_REAL_OPTION
from mu2mpi.privacy.accounting.gaussian_dp import MIN_DELTA

DIGITS, FAR = 200, 60
"""Of numbers that differ by as little as the smallest rho; and beyond so many standard deviations
there are bounds that floating-point numbers cannot tell from the truth."""

LEFT = mpmath.mpf(511) / 512
"""Of an epsilon and a delta that are given: the rest is left to draws of noise."""

LOOSE = mpmath.mpf("1.002")
"""By what four digits, rounded, and their neighbours differ at most."""


def log_uniform(chance, low, high):
    return math.exp(chance.uniform(math.log(low), math.log(high)))


def drawn_size(chance):
    usual = [log_uniform(chance, 1e-6, 1e3) for _ in range(5)]
    return chance.choice(
        [MIN_REAL_OPTION, MAX_REAL_OPTION, log_uniform(chance, MIN_REAL_OPTION, MAX_REAL_OPTION), *usual]
    )


def drawn_delta(chance):
    usual = [log_uniform(chance, 1e-12, 1) for _ in range(3)]
    return chance.choice([MIN_DELTA, 1 - 2**-53, log_uniform(chance, MIN_DELTA, 1), *usual])


def exact_delta(epsilon, rho):
    """Return Phi(-a) - e^epsilon Phi(-b) with a and b = epsilon/rho -+ rho/2, or where it is far, a bound."""
    epsilon, rho = mpmath.mpf(epsilon), mpmath.mpf(rho)
    a, b = epsilon / rho - rho / 2, epsilon / rho + rho / 2
    if abs(a) > FAR:
        return mpmath.exp(-a * a / 2) if a > 0 else mpmath.mpf(1)
    return mpmath.ncdf(-a) - mpmath.exp(epsilon) * mpmath.ncdf(-b)


def check_epsilon(epsilon, rho, delta):
    assert exact_delta(epsilon, rho) <= delta
    assert epsilon == 0 or exact_delta(epsilon / LOOSE, rho) > delta / LOOSE


def check_lemma(epsilon, rho, delta):
    exact, more = (
        mpmath.mpf(rho) ** 2 / 2 + rho * mpmath.sqrt(-2 * mpmath.log(at)) for at in (delta, delta / LOOSE)
    )
    assert exact <= epsilon <= more * LOOSE


def number(words, text):
    return float(re.search(rf"{words} (\S*[^.,\s])", text)[1])


def check(given):
    """Convert some numbers, and compare all that is printed with the formulas in many digits."""
    printed = convert_budget(given)
    text = " ".join(printed.split())
    rho, epsilon, delta = (number(f"{name} =", text) for name in ("rho", "epsilon", "delta"))
    assert {name: {"rho": rho, "epsilon": epsilon, "delta": delta}[name] for name in given} == given
    if "rho" not in given:
        assert (
            exact_delta(epsilon * LEFT, rho) <= delta * LEFT < exact_delta(epsilon * LEFT, rho * (1 + 1e-6))
        )
    elif "epsilon" in given:
        exact = exact_delta(epsilon, rho)
        assert exact <= delta <= max(exact * LOOSE, mpmath.mpf(5e-324))
    else:
        check_epsilon(epsilon, rho, delta)
    rows = [line.split() for line in printed.split("\n\n")[1].splitlines()[2:]]
    for row in rows:
        of_row, exactly, by_lemma = map(float, row)
        check_epsilon(exactly, rho, of_row)
        check_lemma(by_lemma, rho, of_row)


@pytest.mark.parametrize("cases", [40, *slow(400)])
def test_whatever_is_printed_is_true(cases, chance):
    for _ in range(cases):
        sizes = {name: drawn_size(chance) for name in ("rho", "epsilon")} | {"delta": drawn_delta(chance)}
        left_out = chance.choice(list(sizes))
        given = {name: value for name, value in sizes.items() if name != left_out}
        try:
            with mpmath.workdps(DIGITS):
                check(given)
        except BaseException as error:
            error.add_note(f"of {given!r}")
            raise
