"""Fitted exponents: of made-up runs with known ones, and of real runs against the theorems."""

import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from helpers.simulations import make_schedule
from helpers.summaries import rate_run, rate_runs, trust_runs

from mu2mpi.analysis.figures import draw_figure
from mu2mpi.analysis.figures.rates_figure import RATE_VARIABLES, fit_rates
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError
from mu2mpi.core.parallel import Communicator
from mu2mpi.core.toml import read_toml
from mu2mpi.execution.plan import open_source, resolve_plan
from mu2mpi.execution.simulation import Simulation
from mu2mpi.results.reader import RunSummary

RATES = Path(__file__).parents[2] / "jobs" / "rates.toml"


def power_law(exponent, seeds=4, **settings):
    return [
        rate_run(3.0 * T**exponent * (1 + 0.1 * (-1) ** seed), seed, rounds=T, **settings)
        for T in (100, 300, 2000)
        for seed in range(seeds)
    ]


@pytest.mark.parametrize("exponent", [-1.0, -0.3, 0.2])
def test_the_exponent_of_a_power_law(exponent):
    (rate,) = fit_rates(power_law(exponent))
    assert rate.exponent == pytest.approx(exponent, abs=1e-12)
    # The same seeds are as lucky at each point, so that the slope is certain although the losses are not.
    assert rate.exponent_low == pytest.approx(exponent, abs=1e-12)
    assert rate.exponent_high == pytest.approx(exponent, abs=1e-12)
    np.testing.assert_allclose(rate.worst_problem_losses, 3.0 * rate.values**exponent)
    np.testing.assert_allclose(rate.theorem_bounds, 30 * 3.0 * 0.9 * rate.values**exponent)


@pytest.mark.slow
def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """95 % of them would; with ten seeds the bootstrap is known to fall a little short: 85 % of 200."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        runs = [
            rate_run(math.exp(0.3 * rng.standard_normal()) / T, seed, rounds=T)
            for T in (100, 200, 400, 800)
            for seed in range(10)
        ]
        (rate,) = fit_rates(runs)
        # The mean of a lognormal number is a factor larger at each T: the slope is -1.
        hits += rate.exponent_low <= -1 <= rate.exponent_high
    assert 170 <= hits < 200


def test_the_worst_problem_counts_at_each_point():
    # One problem falls as 1/n, one is flat; and their order changes.
    flat = [rate_run(1.0, s, rounds=T, label_noise=0.9) for T in (100, 200, 400) for s in (1, 2)]
    falling = [rate_run(200 / T, s, rounds=T, label_noise=0.5) for T in (100, 200, 400) for s in (1, 2)]
    (rate,) = fit_rates(flat + falling)
    np.testing.assert_allclose(rate.worst_problem_losses, [2, 1, 1])
    assert rate.mean_losses.shape == (2, 3)
    # A problem that is missing somewhere is no problem there.
    (rate,) = fit_rates(flat + falling[2:])
    np.testing.assert_allclose(rate.worst_problem_losses, [1, 1, 1])


def test_exponents_of_made_up_runs_are_the_theorems():
    rates = fit_rates(rate_runs())
    assert {(rate.variable.symbol, rate.is_private) for rate in rates} == {
        ("n", False), ("M", False), ("n", True), ("M", True), ("d", True), ("ρ", True)
    }  # fmt: skip
    for rate in rates:
        assert rate.exponent == pytest.approx(rate.theorem_exponent, abs=0.12)
        assert rate.exponent_low < rate.exponent < rate.exponent_high


def test_what_makes_no_rate_is_left_out():
    assert fit_rates([]) == []
    assert fit_rates([run for run in power_law(-1.0) if run.experiment.rounds != 300]) == []
    nowhere = [
        replace(run, measurements={**run.measurements, "excess_loss": math.nan}) for run in power_law(-1.0)
    ]
    assert fit_rates(nowhere) == []
    # Different servers, or anything else that differs, are different rates.
    assert len(fit_rates(power_law(-1.0) + power_law(-1.0, server="trusted", diameter=0.3))) == 2
    negative = [
        replace(run, measurements={**run.measurements, "excess_loss": -1e-9}) for run in power_law(-1.0)
    ]
    assert math.isnan(fit_rates(negative)[0].exponent)


@pytest.mark.parametrize("server", ["untrusted", "trusted", "aggregated"])
def test_exponents_of_the_theorems_are_those_of_their_bound(server):
    """The bound's own slopes where the noise is enormous, or where there is none and n is enormous."""

    def slope(axis, rho, factor=1.001):
        def bound(**change):
            settings = {"machines": 100, "rounds": 10**9, "classes": 4, "rho": rho, **change}
            return make_schedule(server=server, features=8, diameter=1e-6, **settings).excess_loss_bound

        name = dict(zip("nMdρ", ("rounds", "machines", "classes", "rho"), strict=True))[axis]
        value = {"rounds": 10**9, "machines": 100, "classes": 4, "rho": rho}[name]
        changed = value * factor if name == "rho" else value * 2
        return math.log(bound(**{name: changed}) / bound()) / math.log(changed / value)

    (rate,) = fit_rates(power_law(-1.0))
    for axis in RATE_VARIABLES:
        for rho in (1e-7, math.inf) if axis.setting != "rho" else (1e-7,):
            of_variable = replace(rate, variable=axis, settings={"server": server, "rho": rho})
            assert slope(axis.symbol, rho) == pytest.approx(of_variable.theorem_exponent, abs=0.01)


def is_telling(experiment):
    """Choose few seeds with noise, and without it the problems that may be the worst at their point."""
    if math.isfinite(experiment.rho):
        at_the_ends = experiment.rho != 0.25 and experiment.classes in (2, 4, 8)
        return at_the_ends and experiment.seed <= 2 and experiment.rounds <= 4000
    signal = (1 - experiment.label_noise) * math.sqrt(experiment.machines * experiment.rounds)
    return experiment.classes == 4 and 0.9 < signal < 4.1


@pytest.fixture(scope="module")
def measured():
    """Run what tells the exponents of jobs/rates.toml, a third of it."""
    sources, summaries = {}, []
    for experiment in filter(is_telling, Sweep(read_toml(RATES)).experiments):
        source = sources.setdefault(experiment.data_set_identity, open_source(experiment))
        result = Simulation(resolve_plan(experiment, source, 1), Communicator()).run()
        theory = result.theory
        figures = {"excess_loss": theory.excess_loss, "excess_loss_bound": theory.excess_loss_bound}
        figures["parameters"] = result.x.size
        loss, accuracy = result.history.test_loss[-1], result.history.test_accuracy[-1]
        summaries.append(RunSummary(Path("none.h5"), result.experiment, "", loss, accuracy, figures))
    return summaries


@pytest.mark.slow
def test_measured_exponents_are_the_theorems(measured):
    """Within 0.15 of the theorem's for each of n, M, d and rho that is varied, whatever the heterogeneity."""
    found = {
        (rate.variable.symbol, rate.is_private, rate.settings["server"], rate.settings["heterogeneity"]): rate
        for rate in fit_rates(measured)
    }
    assert len(found) == len(fit_rates(measured))
    for (symbol, is_private, server, heterogeneity), rate in found.items():
        assert rate.exponent == pytest.approx(rate.theorem_exponent, abs=0.15), (rate.variable, rate.settings)
        twin = found[symbol, is_private, server, 1.0 - heterogeneity]
        assert abs(rate.exponent - twin.exponent) < 0.15
        # No mean is above its bound.
        assert np.all(rate.worst_problem_losses < rate.theorem_bounds)
        assert np.nanmin(rate.mean_losses) > 0
    assert {key[:3] for key in found} >= {
        ("n", False, "untrusted"), ("M", False, "untrusted"),
        *((symbol, True, server) for symbol in "nMdρ" for server in ("untrusted", "trusted")),
    }  # fmt: skip


def test_the_figure_shows_lines_bounds_and_exponents():
    runs = rate_runs()
    figure = draw_figure("rates", runs)
    figure.draw_without_rendering()
    panels = [panel for panel in figure.axes if panel.axison]
    assert sum(len(panel.texts) for panel in panels) == len(fit_rates(runs))
    for rate in fit_rates(runs):
        wanted = f"{rate.exponent:.2f} [{rate.exponent_low:.2f}, {rate.exponent_high:.2f}]".replace("-", "−")
        assert any(wanted in text.get_text() for panel in panels for text in panel.texts)
        drawn = [line for panel in panels for line in panel.get_lines()]
        for values in (rate.worst_problem_losses, rate.theorem_bounds):
            assert any(np.array_equal(line.get_ydata(), values) for line in drawn)
    for panel in panels:
        for box in [text.get_window_extent() for text in panel.texts]:
            assert panel.bbox.x0 <= box.x0
            assert box.x1 <= panel.bbox.x1 + 4
            for line in panel.get_lines():
                inside = panel.transData.transform(np.column_stack(line.get_data()))
                assert not any(box.contains(x, y) for x, y in inside)


def test_rates_of_shares_of_machines_that_may_collude_and_runs_without_lines():
    runs = trust_runs()
    lines = {rate.settings["colluders"] for rate in fit_rates(runs) if rate.variable.symbol == "M"}
    assert {Fraction(0), Fraction(1, 10), Fraction(3, 4)} <= lines
    assert sum(len(rate.runs) for rate in fit_rates(runs)) == len(runs)
    alone = rate_run(1.0, 1, server="trusted", machines=20, rounds=77)
    (legend,) = draw_figure("rates", [*runs, alone]).legends
    said = [text.get_text() for text in legend.get_texts()]
    assert any(f"1 of {len(runs) + 1} runs" in text for text in said)


def test_rates_of_runs_by_epsilon():
    runs = [rate_run(1 / epsilon, 1, epsilon=epsilon) for epsilon in (1.0, 2.0, 4.0)]
    (rate,) = fit_rates(runs)
    assert (rate.variable.symbol, rate.is_private) == ("ρ", True)
    (across,) = fit_rates([rate_run(1 / M, 1, epsilon=2.0, machines=M) for M in (4, 8, 16)])
    assert across.is_private
    assert across.theorem_exponent == -0.5


def test_runs_without_rates_say_what_is_needed():
    with pytest.raises(InputError, match=r"jobs/rates\.toml"):
        draw_figure("rates", power_law(-1.0)[:4])
    with pytest.raises(InputError, match="--where machines="):
        draw_figure("rates", power_law(-1.0) + power_law(-1.0, machines=16))
