"""Tables of trust modes, and the figure of their losses against the number of machines, of made-up runs."""

from fractions import Fraction

import numpy as np
import pytest
from helpers.summaries import TRUSTED_TO, rate_run, trust_runs
from matplotlib.colors import to_hex

from mu2mpi.analysis.aggregation import TableLayout, build_sections
from mu2mpi.analysis.figures import draw_figure, get_figure
from mu2mpi.core.errors import InputError

NOISE = {
    "untrusted server": lambda M: M**0.5,
    "aggregated server, c = 0": lambda M: 1,
    "aggregated server, c = M/10": lambda M: 0.9**-0.5,
    "aggregated server, c = 3M/4": lambda M: 2,
    "shuffled server, c = 0": lambda M: 1,
    "shuffled server, c = M/10": lambda M: 0.9**-0.5,
    "trusted server": lambda M: 1,
}
"""Lines of the legend, with the noise of the average times M."""


def legend(figure):
    """Return the handles of a legend by their words."""
    (found,) = figure.legends
    return dict(zip((text.get_text() for text in found.get_texts()), found.get_lines(), strict=True))


def test_tables_have_trust_modes_side_by_side():
    machines = [(20, 400), (40, 400), (200, 400)]
    (usual,), _ = build_sections(trust_runs(), TableLayout(values=("excess_loss",)))
    assert usual.columns == machines
    assert all(cell.seeds == 2 for cell in usual.aggregates.values())
    # As shares of M, whose numbers differ.
    assert [row[:2] for row in usual.rows] == [
        (server, share) for server, shares in TRUSTED_TO.items() for share in shares
    ]
    many = usual.aggregates[("aggregated", Fraction(3, 4), *usual.rows[0][2:]), machines[-1]]
    assert many.settings == {"colluders": 150}
    named, _ = build_sections(trust_runs(), TableLayout(("server", "colluders"), values=("excess_loss",)))
    assert [row for section in named for row in section.rows if row[0] == "shuffled"] == [
        ("shuffled", number) for number in (0, 2, 4, 20)
    ]


def style(line):
    return to_hex(line.get_color()), line.get_marker()


def test_lines_are_servers_and_shares_of_machines_that_may_collude():
    figure = draw_figure("trust", [*trust_runs(rho=0.5), *trust_runs(rho=2.0)][::-1])
    assert [panel.get_title("left") for panel in figure.axes] == ["population, ρ = 0.5", "population, ρ = 2"]
    handles = {style(line): text.split(": ") for text, line in legend(figure).items()}
    M = np.array([20, 40, 200])
    for panel in figure.axes:
        assert (panel.get_xscale(), panel.get_yscale(), panel.get_xlabel()) == ("log", "log", "machines M")
        drawn = [container.lines[0] for container in panel.containers]
        assert [handles[style(line)][0] for line in drawn] == [*NOISE]
        # Lines that lie on each other are drawn side by side.
        assert len({line.get_xdata(orig=False)[0] for line in drawn}) == len(drawn)
        for noise, line in zip(NOISE.values(), drawn, strict=True):
            np.testing.assert_allclose(line.get_xdata(orig=False), M, rtol=0.15)
            np.testing.assert_allclose(line.get_ydata(orig=False), noise(M) / M)
    exponents = {name: text for name, text in list(handles.values())[: len(NOISE)]}
    assert exponents == dict.fromkeys(NOISE, "−1.00 | −1.00") | {"untrusted server": "−0.50 | −0.50"}


def test_colluders_are_numbers_or_shares_and_a_method_has_its_title():
    runs = [
        rate_run(1 / M, 1, server="aggregated", machines=M, colluders=c)
        for M in (4, 8, 30)
        for c in (0, 1, 3)
    ]
    said = [text.split(": ")[0] for text in legend(draw_figure("trust", runs))]
    assert said[:3] == ["aggregated server, c = 0", "aggregated server, c = 1", "aggregated server, c = 3"]
    settings = {"server": "shuffled", "diameter": 0.01}
    # A tenth is rounded up.
    of_methods = {None: {15: 2, 20: 2, 21: 3}, "anytime-sgd": {30: 3, 40: 4, 44: 11}}
    runs = [
        rate_run(1 / M, 1, machines=M, colluders=c, method=method, **settings)
        for method, machines in of_methods.items()
        for M, c in machines.items()
    ]
    figure = draw_figure("trust", runs)
    assert [text.split(": ")[0] for text in legend(figure)][:2] == [
        "shuffled server, c = M/10",
        "shuffled server, c = M/4",
    ]
    titles = {panel.get_title("left"): len(panel.containers) for panel in figure.axes}
    assert titles == {"population, ρ = 4, Anytime-SGD": 2, "population, ρ = 4, μ²-SGD": 1}


def test_what_cannot_be_drawn_is_said():
    runs = trust_runs()
    longer = [run for run in trust_runs(rounds=800) if run.experiment.server == "shuffled"]
    for wrong, option in (
        ([run for run in runs if run.experiment.machines == 20], "--machines"),
        (runs + longer, "--where rounds="),
        ([run for rho in range(1, 6) for run in trust_runs(rho=float(rho))], "--where rho="),
    ):
        with pytest.raises(InputError, match=option):
            draw_figure("trust", wrong)


def test_a_report_has_it_where_machines_may_collude_and_m_varies():
    runs, reported = trust_runs(), get_figure("trust").is_in_report
    assert reported(runs)
    assert not reported([run for run in runs if run.experiment.machines == 20])
    assert not reported([run for run in runs if run.experiment.colluders is None])
    few = legend(draw_figure("trust", [run for run in runs if run.experiment.machines != 40]))
    assert {*NOISE} <= {*few}
