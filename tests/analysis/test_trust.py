"""Tables of trust modes, and the figure of their losses against the number of machines, of made-up runs."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
from helpers.summaries import TRUSTED_TO, rate_run, trust_runs
from matplotlib.colors import to_hex

from mu2mpi.analysis.aggregation import TableLayout, build_sections
from mu2mpi.analysis.figures import FigureOptions, draw_figure

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


def drawn(runs, x_axis="machines", value="excess_loss"):
    return draw_figure("tradeoff", runs, x_axis, FigureOptions(values=[value]))


def test_lines_are_servers_and_shares_of_machines_that_may_collude():
    figure = drawn([*trust_runs(rho=0.5), *trust_runs(rho=2.0)][::-1])
    assert [panel.get_title("left") for panel in figure.axes] == ["ρ = 0.5", "ρ = 2"]
    handles = {style(line): text.split(": ") for text, line in legend(figure).items()}
    M = np.array([20, 40, 200])
    for panel in figure.axes:
        assert (panel.get_xscale(), panel.get_yscale()) == ("log", "log")
        lines = [container.lines[0] for container in panel.containers]
        assert [handles[style(line)][0] for line in lines] == [*NOISE]
        # Lines that lie on each other are drawn side by side.
        assert len({line.get_xdata(orig=False)[0] for line in lines}) == len(lines)
        for noise, line in zip(NOISE.values(), lines, strict=True):
            np.testing.assert_allclose(line.get_xdata(orig=False), M, rtol=0.15)
            np.testing.assert_allclose(line.get_ydata(orig=False), noise(M) / M)
    exponents = {name: text for name, text in list(handles.values())[: len(NOISE)]}
    assert exponents == dict.fromkeys(NOISE, "−1.00 | −1.00") | {"untrusted server": "−0.50 | −0.50"}


def test_colluders_are_numbers_or_shares():
    runs = [
        rate_run(1 / M, 1, server="aggregated", machines=M, colluders=c)
        for M in (4, 8, 30)
        for c in (0, 1, 3)
    ]
    assert [text.split(": ")[0] for text in legend(drawn(runs))][:3] == ["c = 0", "c = 1", "c = 3"]
    # A tenth is rounded up.
    runs = [
        rate_run(1 / M, 1, machines=M, colluders=c, server="shuffled", diameter=0.01)
        for M, c in {15: 2, 20: 2, 21: 3, 40: 10, 44: 11}.items()
    ]
    assert [text.split(": ")[0] for text in legend(drawn(runs))][:2] == ["c = M/10", "c = M/4"]


def test_exponents_need_three_points_and_two_logarithmic_axes():
    few = [run for run in trust_runs() if run.experiment.machines != 40]
    assert not any("exponent" in text for text in legend(drawn(few)))
    for figure in (drawn(trust_runs(), "server"), drawn(trust_runs(), value="test_loss")):
        assert not any("exponent" in text for text in legend(figure))
        assert {panel.get_yscale() for panel in figure.axes} == {"linear"}
    lost = [replace(run, measurements={"excess_loss": -1e-9}) for run in trust_runs()]
    assert {panel.get_yscale() for panel in drawn(lost).axes} == {"linear"}
