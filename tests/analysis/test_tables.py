import csv
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mu2mpi.analysis.cells import Estimate, without_repeats
from mu2mpi.analysis.formats import as_csv, as_markdown, as_text
from mu2mpi.analysis.latex import escaped
from mu2mpi.analysis.layouts import Layout
from mu2mpi.analysis.tables import build_table
from mu2mpi.config.experiment import Experiment
from mu2mpi.errors import InputError
from mu2mpi.results.reader import Summary


def summary(loss=2.25, accuracy=0.7, name="a.h5", created="2030-01-01T00:00:00+00:00", **settings):
    paper = {"data": "mnist", "server": "untrusted", "machines": 100, "rounds": 600, "rho": 4.0, "seed": 1}
    given = {n: value for n, value in (paper | settings).items() if value != "left out"}
    return Summary(Path(name), Experiment.make(given), created, loss, accuracy)


def three_seeds(**settings):
    values = [(2.2841, 0.652), (2.2851, 0.662), (2.2861, 0.648)]
    return [summary(*pair, seed=seed, **settings) for seed, pair in enumerate(values)]


def csv_lines(table):
    return list(csv.DictReader(table.render("csv").splitlines()))


def cells_of(text, word):
    """Return the cells of each line of a text table that has `word` for one of its cells."""
    lines = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    return [line for line in lines if word in line]


def test_mean_and_deviation_by_hand():
    (section,) = build_table(three_seeds()).sections
    cell = section.cells[("untrusted", 4.0), (100, 600)]
    assert cell.seeds == 3
    # Losses 1 apart in the third decimal: sd = 0.001; accuracies 0.652, 0.662, 0.648 about 0.654:
    # squares 4e-6 + 64e-6 + 36e-6 = 104e-6, halved 52e-6.
    assert cell.values["test_loss"] == pytest.approx((2.2851, 0.001))
    assert cell.values["test_accuracy"] == pytest.approx((0.654, math.sqrt(52e-6)))


def test_cell_with_the_papers_value_beside_it():
    text = build_table(three_seeds()).render()
    assert cells_of(text, "loss") == [["loss", "2.2851 ± 0.0010 [2.285]"]]
    assert [line for line in text.splitlines() if "accuracy %" in line] == [
        "accuracy %  65.4    ± 0.7    [65.4]"
    ]
    assert text.startswith("mnist, untrusted server, ρ = 4, D = 0.1\n")
    assert "over 3 seeds" in text
    assert "In brackets: the paper's value." in " ".join(text.split())


def test_one_seed_has_no_deviation():
    table = build_table([summary(2.2849, 0.654)])
    text = table.render()
    assert cells_of(text, "loss") == [["loss", "2.2849 [2.285]"]]
    assert "±" not in text
    assert "one seed" in text
    (line,) = csv_lines(table)
    assert (line["seeds"], line["test_loss_mean"], line["test_loss_sd"]) == ("1", "2.2849", "")


@pytest.mark.parametrize(
    "settings",
    [
        {"data": "digits"},
        {"data": "synthetic"},
        {"rounds": 599},
        {"machines": 99},
        {"rho": 5.0},
        {"diameter": 0.2},
        {"clip_norm": 17.0},
    ],
)
def test_papers_value_only_beside_the_papers_experiment(settings):
    table = build_table([summary(**settings)])
    assert "[" not in table.render()
    assert "paper" not in table.render()
    (line,) = csv_lines(table)
    assert line["test_loss_paper"] == line["test_accuracy_paper"] == ""


def test_every_value_of_the_paper_is_shipped():
    runs = [
        summary(server=server, machines=machines, rounds=60_000 // machines, rho=rho)
        for server in ("trusted", "untrusted")
        for machines in (1, 10, 100)
        for rho in (4, 8, 16)
    ]
    lines = csv_lines(build_table(runs))
    assert len(lines) == 18
    found = {
        (s["server"], s["machines"], s["rho"]): (s["test_loss_paper"], s["test_accuracy_paper"])
        for s in lines
    }
    assert found["untrusted", "1", "4"] == ("2.256", "0.699")
    assert found["untrusted", "10", "16"] == ("2.255", "0.701")
    assert found["untrusted", "100", "4"] == ("2.285", "0.654")
    assert found["trusted", "100", "8"] == ("2.257", "0.696")
    assert all(loss and accuracy for loss, accuracy in found.values())


def test_order_of_rows_and_columns_and_missing_cells():
    runs = [
        summary(server="trusted", machines=1, rounds=60_000, rho=16.0),
        summary(server="trusted", machines=10, rounds=6_000, rho=8.0),
        summary(server="untrusted", machines=100, rounds=600, rho=math.inf),
        summary(server="untrusted", machines=100, rounds=600, rho=0.5),
    ]
    table = build_table(runs)
    (section,) = table.sections
    assert section.rows == [
        ("untrusted", 0.5), ("untrusted", math.inf), ("trusted", 8.0), ("trusted", 16.0)
    ]  # fmt: skip
    assert section.columns == [(1, 60_000), (10, 6_000), (100, 600)]
    text = table.render()
    assert cells_of(text, "ρ") == [
        ["server", "ρ", "M = 1, T = 60,000", "M = 10, T = 6,000", "M = 100, T = 600"]
    ]
    assert cells_of(text, "loss") == [
        ["untrusted", "0.5", "loss", "–", "–", "2.2500"],
        ["untrusted", "∞", "loss", "–", "–", "2.2500"],
        ["trusted", "8", "loss", "–", "2.2500 [2.253]", "–"],
        ["trusted", "16", "loss", "2.2500 [2.252]", "–", "–"],
    ]
    lines = csv_lines(table)
    assert len(lines) == 12
    missing = [line for line in lines if line["seeds"] == "0"]
    assert len(missing) == 8
    assert all(line["test_loss_mean"] == "" for line in missing)
    assert next(s for s in missing if s["rho"] == "8" and s["machines"] == "1")["test_loss_paper"] == "2.253"


def test_numbers_of_seeds_that_differ_are_shown():
    runs = [*three_seeds(), summary(machines=10, rounds=6000)]
    assert cells_of(build_table(runs).render(), "seeds")[0] == ["seeds", "1", "3"]


@pytest.mark.parametrize(
    ("setting", "heading"),
    [
        ({"diameter": 0.2}, "mnist, untrusted server, ρ = 4"),
        ({"clip_norm": 3.0}, "mnist, untrusted server, ρ = 4, D = 0.1"),
        ({"data": "digits"}, "untrusted server, ρ = 4, D = 0.1"),
        ({"method": "dp-sgd", "server": "trusted"}, "mnist, ρ = 4, D = 0.1"),
        ({"estimator": "gradient"}, "mnist, untrusted server, ρ = 4, D = 0.1"),
        ({"normalize": "unit"}, "mnist, untrusted server, ρ = 4, D = 0.1"),
        ({"data": "synthetic", "data_seed": 5, "rounds": 50}, "untrusted server, ρ = 4, D = 0.1"),
        ({"diameter": 0.2, "machines": 10}, "mnist, untrusted server, ρ = 4, D = 0.2"),
    ],
)
def test_other_settings_are_never_averaged(setting, heading):
    table = build_table([summary(2.0, seed=1), summary(3.0, seed=2, **setting)])
    means = [cell.values["test_loss"].mean for section in table.sections for cell in section.cells.values()]
    assert sorted(means) == [2.0, 3.0]
    for format in ("text", "markdown"):
        assert heading in table.render(format)
    assert {line["seeds"] for line in csv_lines(table)} == {"1"}


def test_other_rounds_make_another_column():
    (section,) = build_table([summary(rounds=600), summary(rounds=500)]).sections
    assert section.columns == [(100, 500), (100, 600)]


def test_delta_and_number_of_evaluations_do_not_part_runs():
    (section,) = build_table([summary(2.0, seed=1), summary(3.0, seed=2, delta=1e-6, evaluations=5)]).sections
    (cell,) = section.cells.values()
    assert (cell.seeds, cell.values["test_loss"].mean) == (2, 2.5)


def test_delta_makes_another_run_where_samples_are_drawn():
    drawn = {"method": "noisy-minibatch-sgd", "batch": 9}
    runs = [summary(**drawn), summary(**drawn, delta=1e-6)]
    assert without_repeats(runs) == (runs, [])


def test_a_run_that_is_there_twice_counts_once():
    runs = [summary(2.0, seed=1), summary(3.0, seed=2), summary(3.0, seed=2, name="copy.h5", evaluations=3)]
    table = build_table(runs)
    (cell,) = table.sections[0].cells.values()
    assert cell.seeds == 2
    assert cell.values["test_loss"] == Estimate(2.5, pytest.approx(math.sqrt(0.5)))
    assert table.notes == ["copy.h5 repeats the run of a.h5 and is not counted again"]
    assert table.notes[0] in table.render()
    assert f"% {table.notes[0]}" in table.render("latex")


def test_runs_without_a_seed_are_all_new_but_copies():
    runs = [
        summary(2.0, seed=None),
        summary(3.0, seed=None, name="b.h5"),
        summary(3.0, seed=None, name="c.h5"),
    ]
    table = build_table(runs)
    (cell,) = table.sections[0].cells.values()
    assert cell.seeds == 2
    assert len(table.notes) == 1


def measured(run, **figures):
    return replace(run, figures=figures)


def test_other_rows_columns_and_values():
    runs = [
        measured(summary(2.0 + 0.1 * k, seed=k, rho=rho, diameter=D, server=server), elapsed_seconds=k + rho)
        for k in (0, 1, 2)
        for rho in (4, 8)
        for D in (0.1, 1.0)
        for server in ("trusted", "untrusted")
    ]
    layout = Layout(rows=("diameter",), columns=("rho", "server"), values=("elapsed_seconds",))
    table = build_table(runs, layout)
    (section,) = table.sections
    assert section.rows == [(0.1,), (1.0,)]
    assert section.columns == [(4.0, "untrusted"), (4.0, "trusted"), (8.0, "untrusted"), (8.0, "trusted")]
    assert section.settings == {
        "data": "mnist", "machines": 100, "rounds": 600, "loss": "softmax", "method": "mu2-sgd",
        "normalize": "none", "partition": "iid",
    }  # fmt: skip
    assert cells_of(table.render(), "1") == [["1", *["5 ± 1"] * 2, *["9 ± 1"] * 2]]
    assert "Elapsed seconds: mean ± standard deviation over 3 seeds." in table.render()
    assert [line["elapsed_seconds_mean"] for line in csv_lines(table)[:3]] == ["5.0", "5.0", "9.0"]


def test_the_papers_values_are_found_in_any_layout():
    layout = Layout(rows=("machines",), columns=("server",), values=("test_accuracy",))
    runs = [*three_seeds(), *three_seeds(server="trusted"), summary(machines=10, rounds=6000, accuracy=0.7)]
    text = build_table(runs, layout).render()
    assert cells_of(text, "100")[0] == ["100", "600", "accuracy %", "65.4 ± 0.7 [65.4]", "65.4 ± 0.7 [69.5]"]


def test_rounds_go_with_machines_unless_they_are_named():
    def columns(*layout, runs=(("machines", 10), ("rounds", 6000))):
        other = summary(**dict(runs))
        return build_table([summary(), other], Layout(*layout)).sections[0].layout.columns

    assert columns(("rho",), ("machines",)) == ("machines", "rounds")
    assert columns(("rounds",), ("machines",)) == ("machines",)
    assert columns(("rho",), ("server",)) == ("server",)
    # Rounds that follow from rho tell nothing of M.
    assert columns(("rho",), ("machines",), runs=(("rho", 8), ("rounds", 500))) == ("machines",)


def test_seeds_and_ranks_may_be_columns():
    runs = [measured(summary(2.0, seed=k), ranks=r, noise_seconds=1 / r) for k in (1, 2) for r in (1, 2)]
    text = build_table(runs, Layout(("seed",), ("ranks",), ("noise_seconds",))).render()
    assert cells_of(text, "0.5000") == [["1", "1.0000", "0.5000"], ["2", "1.0000", "0.5000"]]


@pytest.mark.parametrize(
    ("layout", "word"),
    [
        ({"rows": ("server", "roh")}, "'roh'; did you mean rho"),
        ({"rows": ("server", "zzzz")}, "'zzzz'; the settings are .*rho"),
        ({"rows": ("server",), "columns": ("server",)}, "two places"),
        ({"values": ("loss",)}, "'loss'; did you mean test_loss"),
        ({"values": ("xyzzy",)}, "'xyzzy'; the values are test_loss"),
    ],
)
def test_layouts_that_cannot_be(layout, word):
    with pytest.raises(InputError, match=word):
        build_table([summary()], Layout(**layout))


def test_no_runs_and_no_such_format():
    with pytest.raises(InputError, match="no results"):
        build_table([])
    with pytest.raises(InputError, match="latex"):
        build_table([summary()]).render("html")


def two_servers():
    return build_table([*three_seeds(), *three_seeds(server="trusted"), summary(clip_norm=2.5)])


def test_csv_has_full_precision():
    table = two_servers()
    lines = csv_lines(table)
    assert [line["clip_norm"] for line in lines] == ["", "", "2.5"]
    cell = table.sections[0].cells[("untrusted", 4.0), (100, 600)]
    assert float(lines[0]["test_loss_mean"]) == cell.values["test_loss"].mean
    assert float(lines[0]["test_accuracy_sd"]) == cell.values["test_accuracy"].deviation
    assert float(lines[0]["test_accuracy_paper"]) == 0.654


def test_markdown_has_the_same_number_of_cells_in_each_line():
    lines = [line for line in two_servers().render("markdown").splitlines() if line.startswith("|")]
    assert len(lines) == (2 + 4) + (2 + 2)
    assert {line.count("|") for line in lines} == {4}
    assert lines[1] == "| --- | --- | ---: |"


def test_latex_rows_and_escapes():
    text = two_servers().render("latex")
    assert text.count(r"\begin{tabular}{ll l}") == text.count(r"\end{tabular}") == 2
    assert text.count(r"\midrule") == 2
    rows = [line for line in text.splitlines() if line.endswith(r"\\")]
    assert len(rows) == (1 + 4) + (1 + 2)
    assert {row.count(" & ") for row in rows} == {2}
    assert r"accuracy \%" in text
    assert "$C = 2.5$" in text
    assert r"\phantom{6}2.2851 $\pm$ 0.0010 {[}2.285{]}" in text
    assert not any(character in text for character in "±–∞")


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(tmp_path):
    document = r"\documentclass{article}\usepackage{booktabs}\begin{document}" + two_servers().render("latex")
    (tmp_path / "t.tex").write_text(document + r"\end{document}")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)


def test_formats_of_awkward_text():
    header, rows = ["a", "long name"], [["x|y", 'say "1,2"'], ["", "50% of A&B_{2}\\"]]
    assert as_text(header, [rows]).splitlines()[0] == "a    long name"
    assert as_text(header, [rows]).splitlines()[2] == 'x|y  say "1,2"'
    assert as_markdown(header, [rows]).splitlines()[2] == r'| x\|y | say "1,2" |'
    assert list(csv.reader(as_csv(header, rows).splitlines())) == [header, *rows]
    assert escaped(rows[1][1]) == r"50\% of A\&B\_\{2\}\textbackslash{}"


def test_analysis_needs_no_simulation():
    script = (
        "import sys, mu2mpi.analysis.tables, mu2mpi.analysis.show\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('numba', 'mpi4py') or m.startswith("
        "('mu2mpi.federation', 'mu2mpi.execution', 'mu2mpi.data', 'mu2mpi.parallel', 'mu2mpi.problem'))"
        # Names and numbers alone, by which methods and sources are chosen.
        " and m.removeprefix('mu2mpi.') not in "
        "('data', 'data.options', 'federation', 'federation.estimators', 'federation.schedule',"
        " 'federation.servers', *(f'federation.servers.{n}' for n in"
        " ('base', 'untrusted', 'trusted', 'aggregated', 'shuffled')),"
        " 'problem', 'problem.practical', 'problem.scaling')])"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "[]"
