"""Tables of trust modes, and the figure of their losses against the number of machines, of made-up runs."""

import re
from fractions import Fraction

import numpy as np
import pytest
from made_up import TRUSTED_TO, rate_run, trust_runs

from mu2mpi.analysis.catalogue import find_figure
from mu2mpi.analysis.cells import Layout, build_sections
from mu2mpi.analysis.figures import draw
from mu2mpi.errors import InputError

EXPONENTS = re.compile(r": [−–0-9.| ]+$")
WORDS = [
    "untrusted server",
    "aggregated server, c = 0",
    "aggregated server, c = M/10",
    "aggregated server, c = 3M/4",
    "shuffled server, c = 0",
    "shuffled server, c = M/10",
    "trusted server",
]


def legend(figure):
    """Return the handles of a legend by their words."""
    (found,) = figure.legends
    words = (EXPONENTS.sub("", text.get_text()) for text in found.get_texts())
    return dict(zip(words, found.get_lines(), strict=True))


def exponents(figure):
    """Return the exponents of lines, panel by panel, by their words."""
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    return {EXPONENTS.sub("", text): found[0][2:] for text in said if (found := EXPONENTS.search(text))}


def lines_of(figure, panel):
    """Return the lines of a panel by their words: those of the handle that looks the same."""

    def look(line):
        return tuple(line.get_color()), line.get_marker(), line.get_linewidth()

    words = {look(line): name for name, line in legend(figure).items()}
    return {words[look(line)]: line for line in (container.lines[0] for container in panel.containers)}


def test_tables_have_trust_modes_side_by_side():
    machines = [(20, 400), (40, 400), (200, 400)]
    (usual,), _ = build_sections(trust_runs(), Layout(values=("excess_loss",)))
    assert usual.columns == machines
    assert all(cell.seeds == 2 for cell in usual.cells.values())
    # As shares of M, whose numbers differ.
    assert [row[:2] for row in usual.rows] == [
        (server, share) for server, shares in TRUSTED_TO.items() for share in shares
    ]
    many = usual.cells[("aggregated", Fraction(3, 4), *usual.rows[0][2:]), machines[-1]]
    assert many.settings == {"colluders": 150}
    named, _ = build_sections(trust_runs(), Layout(("server", "colluders"), values=("excess_loss",)))
    assert [row for section in named for row in section.rows if row[0] == "shuffled"] == [
        ("shuffled", number) for number in (0, 2, 4, 20)
    ]


def test_lines_are_servers_and_shares_of_machines_that_may_collude():
    runs = [*trust_runs(rho=0.5), *trust_runs(rho=2.0)]
    figure = draw("trust", runs[::-1])
    assert list(legend(figure))[:7] == WORDS
    assert [panel.get_title("left") for panel in figure.axes] == ["population\nρ = 0.5", "population\nρ = 2"]
    M = np.array([20, 40, 200])
    for panel in figure.axes:
        assert (panel.get_xscale(), panel.get_yscale()) == ("log", "log")
        assert panel.get_xlabel() == "machines M"
        lines = lines_of(figure, panel)
        assert sorted(lines) == sorted(WORDS)
        for words, line in lines.items():
            known = {"untrusted server": M**0.5, "aggregated server, c = 3M/4": 2, "trusted server": 1}
            noise = known.get(words, 1 if words.endswith("c = 0") else 0.9**-0.5)
            np.testing.assert_array_equal(line.get_xdata(orig=False), M)
            np.testing.assert_allclose(line.get_ydata(orig=False), noise / M)
        # The trusted server's line lies on others, and is the narrowest.
        widths = [line.get_linewidth() for line in lines.values()]
        assert lines["trusted server"].get_linewidth() == min(widths) < max(widths)
    said = dict.fromkeys(WORDS, "−1.00 | −1.00") | {"untrusted server": "−0.50 | −0.50"}
    assert exponents(figure) == said


def test_numbers_of_colluders_that_each_m_has_are_numbers():
    runs = [
        rate_run(1 / M, 1, server="aggregated", machines=M, colluders=c)
        for M in (4, 8, 30)
        for c in (0, 1, 3)
    ]
    said = list(legend(draw("trust", runs)))
    assert said[:3] == ["aggregated server, c = 0", "aggregated server, c = 1", "aggregated server, c = 3"]


def test_a_tenth_is_rounded_up_and_a_method_has_its_title():
    settings = {"server": "shuffled", "diameter": 0.01}
    tenths = {15: 2, 20: 2, 21: 3}
    plain = [
        rate_run(1 / M, 1, machines=M, colluders=c, estimator="gradient", **settings)
        for M, c in tenths.items()
    ]
    named = [
        rate_run(2 / M, 1, machines=M, colluders=c, method="anytime-sgd", **settings)
        for M, c in ((30, 3), (40, 4), (44, 11))
    ]
    usual = [rate_run(3 / M, 1, machines=M, colluders=c, **settings) for M, c in tenths.items()]
    figure = draw("trust", plain + named + usual)
    assert list(legend(figure))[:2] == ["shuffled server, c = M/10", "shuffled server, c = M/4"]
    titles = {panel.get_title("left"): len(panel.containers) for panel in figure.axes}
    assert titles == {
        "population\nρ = 4\nAnytime-SGD": 2,
        "population\nρ = 4\nμ²-SGD": 1,
    }


def test_what_cannot_be_drawn_is_said():
    runs = trust_runs()
    with pytest.raises(InputError, match=r"that differ in --machines, such as those of jobs/trust\.toml"):
        draw("trust", [run for run in runs if run.experiment.machines == 20])
    longer = [run for run in trust_runs(rounds=800) if run.experiment.server == "shuffled"]
    with pytest.raises(InputError, match=r"shuffled server, c = 0, and M = 20 differ in rounds; "):
        draw("trust", runs + longer)
    with pytest.raises(InputError, match=r"4 panels .* --where rho="):
        draw("trust", [run for rho in (1.0, 2.0, 3.0, 4.0) for run in trust_runs(rho=rho)])


def test_a_report_has_it_where_machines_may_collude_and_m_varies():
    runs = trust_runs()
    reported = find_figure("trust").is_reported
    assert reported(runs)
    few = [run for run in runs if run.experiment.machines != 40]
    assert "numbers: fitted exponents of M" in legend(draw("trust", runs))
    assert "numbers: fitted exponents of M" not in legend(draw("trust", few))
    assert not reported([run for run in runs if run.experiment.machines == 20])
    assert not reported([run for run in runs if run.experiment.colluders is None])
