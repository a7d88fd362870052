"""Tables: what is averaged, what stands where, what is best, and every format."""

import csv
import math
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from made_up import METHODS, comparison_run, rate_run

import mu2mpi
from mu2mpi.analysis.cells import Estimate, Layout
from mu2mpi.analysis.formats import as_csv, as_markdown
from mu2mpi.analysis.settings import varying, without_repeats
from mu2mpi.analysis.tables import Dress, build_table, escaped
from mu2mpi.analysis.words import Words, read_labels
from mu2mpi.cli.program import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.text import as_text
from mu2mpi.results.reader import Summary


def summary(loss=2.25, accuracy=0.7, name="a.h5", created="2030-01-01T00:00:00+00:00", **settings):
    paper = {"data": "mnist", "server": "untrusted", "machines": 100, "rounds": 600, "rho": 4.0, "seed": 1}
    return Summary(Path(name), Experiment.make({**paper, **settings}), created, loss, accuracy)


def three_seeds(**settings):
    values = [(2.2841, 0.652), (2.2851, 0.662), (2.2861, 0.648)]
    return [summary(*pair, seed=seed, **settings) for seed, pair in enumerate(values)]


def methods(losses=None, spread=0.01, **settings):
    """Return three seeds of each method on one size; the given losses, or all the same."""
    runs = []
    for name, (own, _, _) in METHODS.items():
        for seed in (1, 2, 3):
            made = comparison_run(4000, seed, **own, **settings)
            loss = (losses or {}).get(name, 1.0) + spread * (seed - 2)
            runs.append(replace(made, test_loss=loss, test_accuracy=math.exp(-loss)))
    return runs


def drawn(loss=1.0, **settings):
    """Return a run on digits whose rounds a seed may draw."""
    base = {"data": "digits", "server": "trusted", "machines": 5, "rounds": 100}
    return Summary(Path(f"{loss}-{settings}.h5"), Experiment(**{**base, **settings}), "", loss, 0.5)


def csv_lines(table):
    return list(csv.DictReader(table.render("csv").splitlines()))


def cells_of(text, word):
    """Return the cells of each line of a text table that has `word` for one of its cells."""
    lines = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    return [line for line in lines if word in line]


def seeds_of(runs):
    sections = build_table(runs).sections
    return sorted(cell.seeds for section in sections for cell in section.cells.values() if cell.seeds)


def plain(text):
    return " ".join(text.split())


def test_mean_and_deviation_by_hand_with_the_papers_value_beside_it():
    table = build_table(three_seeds())
    cell = table.sections[0].cells[("untrusted", 4.0), (100, 600)]
    assert cell.seeds == 3
    # Losses 1 apart in the third decimal: sd = 0.001; accuracies 0.652, 0.662, 0.648 about 0.654:
    # squares 4e-6 + 64e-6 + 36e-6 = 104e-6, halved 52e-6.
    assert cell.values["test_loss"] == pytest.approx((2.2851, 0.001))
    assert cell.values["test_accuracy"] == pytest.approx((0.654, math.sqrt(52e-6)))
    assert cells_of(table.render(), "loss") == [["loss", "2.2851 ± 0.0010 [2.285]"]]
    one = build_table([summary(2.2849, 0.654)])
    assert cells_of(one.render(), "loss") == [["loss", "2.2849 [2.285]"]]
    (line,) = csv_lines(one)
    assert (line["seeds"], line["test_loss_mean"], line["test_loss_sd"]) == ("1", "2.2849", "")


@pytest.mark.parametrize("settings", [{"data": "digits"}, {"rounds": 599}, {"rho": 5.0}, {"diameter": 0.2}])
def test_papers_value_only_beside_the_papers_experiment(settings):
    assert csv_lines(build_table([summary(**settings)]))[0]["test_loss_paper"] == ""


def test_every_value_of_the_paper_is_shipped_and_found_in_any_layout():
    runs = [
        summary(server=server, machines=machines, rounds=60_000 // machines, rho=rho)
        for server in ("trusted", "untrusted")
        for machines in (1, 10, 100)
        for rho in (4, 8, 16)
    ]
    lines = csv_lines(build_table(runs, Layout(rows=("machines",), columns=("server", "rho"))))
    values = ("test_loss_paper", "test_accuracy_paper")
    found = {(s["server"], s["machines"], s["rho"]): tuple(s[v] for v in values) for s in lines}
    assert len(found) == 18
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
    text = table.render()
    columns = ["M = 1, T = 60,000", "M = 10, T = 6,000", "M = 100, T = 600"]
    assert cells_of(text, "ρ") == [["server", "ρ", *columns]]
    assert cells_of(text, "loss") == [
        ["untrusted", "0.5", "loss", "–", "–", "2.2500"],
        ["untrusted", "∞", "loss", "–", "–", "2.2500"],
        ["trusted", "8", "loss", "–", "2.2500 [2.253]", "–"],
        ["trusted", "16", "loss", "2.2500 [2.252]", "–", "–"],
    ]
    assert [line["test_loss_mean"] for line in csv_lines(table) if line["seeds"] == "0"] == [""] * 8
    mixed = [*three_seeds(), summary(machines=10, rounds=6000)]
    assert cells_of(build_table(mixed).render(), "seeds")[0] == ["seeds", "1", "3"]


@pytest.mark.parametrize(
    "setting",
    [
        {"diameter": 0.2},
        {"clip_norm": 3.0},
        {"data": "digits"},
        {"estimator": "gradient"},
        {"rounds": 500},
        {"data": "synthetic", "data_seed": 5, "rounds": 50},
        {"diameter": 0.2, "machines": 10},
    ],
)
def test_other_settings_are_never_averaged(setting):
    table = build_table([summary(2.0, seed=1), summary(3.0, seed=2, **setting)])
    means = [cell.values["test_loss"].mean for section in table.sections for cell in section.cells.values()]
    assert sorted(mean for mean in means if mean == mean) == [2.0, 3.0]


@pytest.mark.parametrize("setting", [{"participation": "bernoulli:0.5"}, {"partition": "labels:2"}, {}])
def test_rounds_that_seeds_draw_belong_together_and_others_do_not(setting):
    near = [drawn(seed=k, rounds=100 + 3 * k, **setting) for k in range(3)]
    assert varying(near) == ([] if setting else ["rounds"])
    assert seeds_of(near) == ([3] if setting else [1, 1, 1])
    # Of one seed they are no draws, but wishes; nor are they if they are far apart.
    asked = [drawn(seed=1, rounds=100 + 3 * k, evaluations=12 + k, **setting) for k in range(2)]
    far = [drawn(seed=k, rounds=100 * 2**k, **setting) for k in range(3)]
    assert varying(asked) == varying(far) == ["rounds"]
    assert seeds_of([*far, drawn(seed=1, participation="uniform:3")]) == [1, 1, 1, 1]


def test_delta_parts_runs_where_it_changes_the_noise_and_is_told():
    (section,) = build_table([summary(2.0, seed=1), summary(3.0, seed=2, delta=1e-6, evaluations=5)]).sections
    assert [cell.seeds for cell in section.cells.values()] == [2]
    minibatch = {"method": "noisy-minibatch-sgd", "batch": 9}
    runs = [summary(**minibatch), summary(**minibatch, delta=1e-6)]
    assert without_repeats(runs) == (runs, [])
    dp = {"method": "dp-sgd", "epsilon": 2.0, "seed": 1}
    runs = [drawn(1.0, mechanism="poisson", **dp), drawn(2.0, mechanism="gaussian", delta=1e-2, **dp)]
    assert all("delta" in {*s.layout.rows, *s.settings} for s in build_table(runs).sections)


def test_a_run_that_is_there_twice_counts_once():
    runs = [summary(2.0, seed=1), summary(3.0, seed=2), summary(3.0, seed=2, name="copy.h5", evaluations=3)]
    table = build_table(runs)
    (cell,) = table.sections[0].cells.values()
    assert cell.values["test_loss"] == Estimate(2.5, pytest.approx(math.sqrt(0.5)))
    assert len(table.notes) == 1
    assert f"% {table.notes[0]}" in table.render("latex")
    unseeded = [summary(loss, seed=None, name=name) for loss, name in ((2.0, "a"), (3.0, "b"), (3.0, "c"))]
    assert seeds_of(unseeded) == [2]


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
    table = build_table(runs, Layout(("diameter",), ("rho", "server"), ("elapsed_seconds",)))
    (section,) = table.sections
    assert section.columns == [(4.0, "untrusted"), (4.0, "trusted"), (8.0, "untrusted"), (8.0, "trusted")]
    assert section.settings == {
        "data": "mnist", "machines": 100, "rounds": 600, "loss": "softmax", "method": "mu2-sgd",
        "normalize": "none", "partition": "iid",
    }  # fmt: skip
    assert cells_of(table.render(), "1") == [["1", *["5 ± 1"] * 2, *["9 ± 1"] * 2]]
    ranks = [measured(summary(2.0, seed=k), ranks=r, noise_seconds=1 / r) for k in (1, 2) for r in (1, 2)]
    text = build_table(ranks, Layout(("seed",), ("ranks",), ("noise_seconds",))).render()
    assert cells_of(text, "0.5000") == [["1", "1.0000", "0.5000"], ["2", "1.0000", "0.5000"]]


@pytest.mark.parametrize(
    ("rows", "columns", "other", "found"),
    [
        ("rho", "machines", {"machines": 10, "rounds": 6000}, ("machines", "rounds")),
        ("rounds", "machines", {"machines": 10, "rounds": 6000}, ("machines",)),
        # Rounds that follow from rho tell nothing of M.
        ("rho", "machines", {"rho": 8.0, "rounds": 500}, ("machines",)),
    ],
)
def test_rounds_go_with_machines_unless_they_are_named(rows, columns, other, found):
    table = build_table([summary(), summary(**other)], Layout((rows,), (columns,)))
    assert table.sections[0].layout.columns == found


def test_methods_are_rows_of_one_table_and_what_only_some_have_is_said_below():
    runs = [run for epsilon in (1.0, 4.0) for run in methods(epsilon=epsilon)]
    table = build_table(runs)
    (section,) = table.sections
    assert (section.layout.rows[0], section.columns) == ("method", [(1.0,), (4.0,)])
    assert len(section.rows) == len(METHODS)
    assert cells_of(table.render(), "method") == [["method", "ε = 1", "ε = 4"]]
    assert "STORM with C = 1." in plain(table.render())


def test_sections_of_one_row_become_rows_unless_rows_are_named():
    runs = [comparison_run(4000, seed, diameter=D) for seed in (1, 2) for D in (1.0, 2.0, 4.0)]
    (section,) = build_table(runs).sections
    assert [row[-1] for row in section.rows] == [1.0, 2.0, 4.0]
    assert len(build_table(runs, Layout(rows=("server",))).sections) == 3
    by_rho = comparison_run(4000, rho=0.5, epsilon=None)
    lines = cells_of(build_table([comparison_run(4000), by_rho]).render(), "loss")
    assert [line[:2] for line in lines] == [["–", "0.5"], ["2", "–"]]


@pytest.mark.parametrize("layout", [(("server", "roh"),), (("server",), ("server",)), ((), (), ("loss",))])
def test_layouts_that_cannot_be(layout):
    with pytest.raises(InputError):
        build_table([summary()], Layout(*layout))
    with pytest.raises(InputError):
        build_table([])
    with pytest.raises(InputError):
        build_table([summary()]).render("html")


def best(runs, *layout):
    return build_table(runs, Layout(*layout)).render("text", Dress(best=True))


def test_the_best_mean_of_those_at_the_same_privacy():
    runs = [
        *methods({"DP-SGD": 0.5, "STORM": 0.5, "μ²-SGD": 0.9}, epsilon=1.0),
        *methods({"STORM": 0.25, "DP-SGD": 0.251}, spread=0.01, epsilon=4.0),
    ]
    text = best(runs)
    marked = [plain(line) for line in text.splitlines() if "*" in line and " loss " in line]
    # A tie at epsilon = 1; at 4 a lead that may be chance.
    assert marked == [
        "DP-SGD loss 0.5000* ± 0.0100 0.2510 ± 0.0100",
        "STORM loss 0.5000* ± 0.0100 0.2500* ± 0.0100",
    ]
    assert "the best mean at the same ε; 4 of 4 lead by less than two standard errors." in plain(text)
    clear = build_table(methods({"DP-SGD": 0.5})).render("markdown", Dress(best=True))
    assert "standard errors" not in clear
    assert "| DP-SGD | loss | **0.5000 ± 0.0100** |" in clear
    assert "|  | accuracy % | **60.7 ± 0.6** |" in clear


def test_what_cannot_be_compared_has_no_best():
    assert "*" not in best([comparison_run(4000, s, epsilon=e) for s in (1, 2) for e in (1.0, 2.0)])
    single = [comparison_run(4000, seed, **METHODS[name][0]) for name, seed in (("STORM", 1), ("DP-SGD", 2))]
    two = [comparison_run(4000, k, epsilon=4.0, **METHODS[n][0]) for n in ("STORM", "DP-SGD") for k in (1, 3)]
    said = plain(best([*single, *two]))
    assert "2 of 4 lead by less than two standard errors; one seed tells nothing about the lead of 2" in said

    def best_of(*diameters):
        chosen = zip(("mu2-sgd", "anytime-sgd", "parallel-sgd"), (1.0, 2.0, 3.0), diameters, strict=True)
        runs = [
            rate_run(loss + seed / 10, seed, method=method, server="trusted", diameter=D)
            for method, loss, D in chosen
            for seed in (1, 2)
        ]
        return re.findall(r"(\d\.\d+)\*", best(runs, ("method",), (), ("excess_loss",)))

    # Excess losses are compared in the same ball alone.
    assert best_of(1.0, 1.0, 1.0) == ["1.150"]
    assert best_of(4.0, 1.0, 1.0) == ["2.150"]
    assert best_of(4.0, 2.0, 1.0) == []


def test_own_labels(tmp_path):
    (tmp_path / "labels.toml").write_text('method = "algorithm"\n[epsilon]\n1 = "strict"\n')
    words = Words(read_labels([str(tmp_path / "labels.toml"), "epsilon=4:loose"]))
    runs = [run for epsilon in (1.0, 4.0) for run in methods(epsilon=epsilon)]
    text = build_table(runs).render("text", Dress(words=words))
    assert cells_of(text, "algorithm") == [["algorithm", "strict", "loose"]]
    with pytest.raises(InputError):
        read_labels(["epsilom=4:loose"])


def two_sections():
    return build_table([*three_seeds(), *three_seeds(server="trusted"), summary(clip_norm=2.5)])


def test_csv_has_full_precision_and_every_format_as_many_cells_in_each_line():
    table = two_sections()
    lines = csv_lines(table)
    assert [line["clip_norm"] for line in lines] == ["", "", "2.5"]
    cell = table.sections[0].cells[("untrusted", 4.0), (100, 600)]
    assert float(lines[0]["test_loss_mean"]) == cell.values["test_loss"].mean
    assert float(lines[0]["test_accuracy_sd"]) == cell.values["test_accuracy"].deviation
    markdown = [line for line in table.render("markdown").splitlines() if line.startswith("|")]
    assert len(markdown) == (2 + 4) + (2 + 2)
    assert {line.count("|") for line in markdown} == {4}
    header, rows = ["a", "long name"], [["x|y", 'say "1,2"'], ["", "50% of A&B_{2}\\"]]
    assert as_text(header, [rows]).splitlines()[2] == 'x|y  say "1,2"'
    assert as_markdown(header, [rows]).splitlines()[2] == r'| x\|y | say "1,2" |'
    assert list(csv.reader(as_csv(header, rows).splitlines())) == [header, *rows]


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("M = 1, T = 60,000", "$M = 1$, $T = 60{,}000$"),
        ("ε = 0.5, δ = 1e-05.", r"$\varepsilon = 0.5$, $\delta = 10^{-5}$."),
        ("δ = 2.5e-05", r"$\delta = 2.5 \cdot 10^{-5}$"),
        ("μ²-SGD with C = S", r"$\mu^2$-SGD with $C = S$"),
        ("rho_file & 50 % of A{2}\\", r"rho\_file \& 50 \% of A\{2\}\textbackslash{}"),
        ("loss (10⁻⁵)", "loss ($10^{-5}$)"),
        ("DP-SGD, STORM", "DP-SGD, STORM"),
    ],
)
def test_words_as_latex(text, latex):
    assert escaped(text) == latex


def latex_of(folder):
    runs = mu2mpi.load(folder)
    return [
        runs.table(format="latex", best=True, label="tab:a"),
        runs.table(format="latex", best=True, siunitx=True, caption=r"At $\rho$", label="tab:b"),
        build_table(methods()).render("latex", Dress(siunitx=True)),
        two_sections().render("latex", Dress(siunitx=True, label="tab:c")),
    ]


def test_latex_is_balanced_with_as_many_cells_in_each_row(folder):
    plainly, siunitx, _, sections = latex_of(folder)
    for text in (plainly, siunitx):
        body = re.sub(r"(?m)^%.*$", "", text)
        assert re.findall(r"\\begin\{(\w+)\}", body) == re.findall(r"\\end\{(\w+)\}", body)[::-1]
        bare = re.sub(r"\\[{}%&$]", "", body)
        assert bare.count("{") == bare.count("}")
        assert bare.count("$") % 2 == 0
        assert {row.count(" & ") for row in bare.splitlines() if row.endswith(r"\\")} == {4}
        assert body.isascii()
    assert r"\textbf{" in plainly
    assert r"\caption{At $\rho$}" in siunitx
    number = r"(?:\\bfseries )?\d+\.\d+\(\d+\)"
    assert re.search(rf"accuracy \\% & {number} & {number} \\\\", siunitx)
    assert re.findall(r"\\label\{(.*)\}", sections) == ["tab:c", "tab:c-2"]
    assert r"2.2851(10) {~{[}2.285{]}}" in sections


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(folder, tmp_path):
    packages = r"\usepackage{booktabs,siunitx}\begin{document}"
    document = [r"\documentclass{article}", packages, *latex_of(folder), r"\end{document}"]
    (tmp_path / "t.tex").write_text("\n".join(document))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)


def test_the_command_takes_what_python_takes(folder, capsys):
    options = ["--format", "latex", "--best", "--siunitx", "--label", "t", "--labels", "rho=4:strong"]
    assert main(["table", str(folder), *options]) == 0
    runs = mu2mpi.load(folder)
    made = runs.table(format="latex", best=True, siunitx=True, label="t", labels={"rho=4": "strong"})
    assert capsys.readouterr().out == f"{made}\n"
    assert "strong" in made
    assert main(["table", str(folder), "--values", "acuracy"]) == 2


def test_tables_need_neither_the_simulation_nor_the_extra():
    script = (
        "import sys, mu2mpi.analysis.tables, mu2mpi.analysis.show, mu2mpi.analysis.differences\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('numba', 'mpi4py', 'pandas', 'scipy') or "
        "m.startswith(('mu2mpi.execution', 'mu2mpi.core.parallel', 'mu2mpi.federation.increments'))])"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "[]"
