"""Tables for papers: layouts that runs choose, what is best, LaTeX that compiles, labels, and versions."""

import math
import re
import shutil
import subprocess
from dataclasses import replace

import pytest
from made_up import METHODS, comparison_run, rate_run

import mu2mpi
from mu2mpi.analysis.formats import Entry, aligned
from mu2mpi.analysis.labels import read_labels
from mu2mpi.analysis.latex import escaped
from mu2mpi.analysis.layouts import Layout
from mu2mpi.analysis.tables import Dress, build_table
from mu2mpi.analysis.words import Words
from mu2mpi.cli.program import main


def methods(losses=None, spread=0.01, **settings):
    """Return three seeds of each method on one size; the given losses, or all the same."""
    runs = []
    for name, (own, _, _) in METHODS.items():
        for seed in (1, 2, 3):
            made = comparison_run(4000, seed, **own, **settings)
            loss = (losses or {}).get(name, 1.0) + spread * (seed - 2)
            runs.append(replace(made, test_loss=loss, test_accuracy=math.exp(-loss)))
    return runs


def table_of(text):
    """Return the lines of a text table from its header on, without rules."""
    lines = text.split("\n\n")[1].splitlines()
    return [line for line in lines if not line.startswith("--")]


def test_methods_are_rows_of_one_table_and_what_only_some_have_is_said_below():
    runs = [run for epsilon in (1.0, 4.0) for run in methods(epsilon=epsilon)]
    table = build_table(runs)
    (section,) = table.sections
    assert (section.layout.rows[0], section.columns) == ("method", [(1.0,), (4.0,)])
    assert len(section.rows) == len(METHODS)
    text = table.render()
    assert text.startswith("synthetic, n = 4,000, ")
    assert "trusted server, M = 4" in text.splitlines()[0]
    header, *_ = table_of(text)
    assert re.split("  +", header) == ["method", "ε = 1", "ε = 4"]
    assert "STORM with C = 1." in " ".join(text.split())
    assert "0.268" not in text
    assert {line.split(",")[0] for line in table.render("csv").splitlines()[1:]} == {"synthetic"}


def test_points_stand_below_points_and_signs_below_signs():
    lines = table_of(build_table(methods({"STORM": 12.5, "DP-SGD": 0.25}, spread=0.1)).render())[1:]
    losses = [line for line in lines if " loss " in line]
    assert len({line.index(".", 40) for line in lines}) == 1
    assert len({line.index("±") for line in lines}) == 1
    assert len(losses) == len(METHODS)
    column = [Entry("2.25", "0.1", "[2]", is_best=True), Entry("-10.5", "", "[3]"), Entry("–")]
    assert aligned(column) == ["  2.25* ± 0.1 [2]", "-10.5   [3]", "  – "]


def test_the_best_mean_of_those_at_the_same_privacy():
    runs = [
        *methods({"DP-SGD": 0.5, "STORM": 0.5, "μ²-SGD": 0.9}, epsilon=1.0),
        *methods({"STORM": 0.25, "DP-SGD": 0.251}, spread=0.01, epsilon=4.0),
    ]
    text = build_table(runs).render("text", Dress(best=True))
    marked = [re.sub(r"\s+", " ", line) for line in table_of(text) if "*" in line and "loss" in line]
    # A tie at epsilon = 1; at 4 a lead that may be chance.
    assert marked == [
        "DP-SGD loss 0.5000* ± 0.0100 0.2510 ± 0.0100",
        "STORM loss 0.5000* ± 0.0100 0.2500* ± 0.0100",
    ]
    said = " ".join(text.split())
    assert "*: the best mean at the same ε; 4 of 4 lead by less than two standard errors." in said
    clear = build_table(methods({"DP-SGD": 0.5})).render("markdown", Dress(best=True))
    assert clear.count("**0.5000 ± 0.0100**") == 1
    assert "standard errors" not in clear
    assert "|  | accuracy % | **60.7 ± 0.6** |" in clear


def test_what_cannot_be_compared_has_no_best():
    runs = [comparison_run(4000, seed, epsilon=epsilon) for seed in (1, 2) for epsilon in (1.0, 2.0)]
    text = build_table(runs).render("text", Dress(best=True))
    assert "*" not in text
    assert "No two means can be compared." in " ".join(text.split())


def test_one_seed_tells_nothing_about_a_lead():
    runs = [comparison_run(4000, seed, **METHODS[name][0]) for name, seed in (("STORM", 1), ("DP-SGD", 2))]
    said = " ".join(build_table(runs).render("text", Dress(best=True)).split())
    assert "*: the best mean at the same M and ε; one seed tells nothing about the lead." in said
    more = [
        comparison_run(4000, k, epsilon=4.0, **METHODS[n][0]) for n in ("STORM", "DP-SGD") for k in (1, 3)
    ]
    said = " ".join(build_table([*runs, *more]).render("text", Dress(best=True)).split())
    assert (
        "2 of 4 lead by less than two standard errors; one seed tells nothing about the lead of 2 of 4."
        in said
    )


def test_excess_losses_are_compared_in_the_same_ball_alone():
    def best_of(*diameters):
        chosen = zip(("mu2-sgd", "anytime-sgd", "parallel-sgd"), (1.0, 2.0, 3.0), diameters, strict=True)
        runs = [
            rate_run(loss + seed / 10, seed, method=method, server="trusted", diameter=D)
            for method, loss, D in chosen
            for seed in (1, 2)
        ]
        return build_table(runs, Layout(("method",), (), ("excess_loss",))).render("text", Dress(best=True))

    assert re.search(r"μ²-SGD +1.150\*", best_of(1.0, 1.0, 1.0))
    apart = best_of(4.0, 1.0, 1.0)
    assert re.search(r"μ²-SGD +1.150 ", apart)
    assert re.search(r"Anytime-SGD +2.150\*", apart)
    assert "the best mean at the same M and D (of the excess loss)." in " ".join(apart.split())
    assert "No two means can be compared." in best_of(4.0, 2.0, 1.0)


def test_epsilon_where_it_was_set_and_rho_where_rho_was():
    set_by_rho = comparison_run(4000, rho=0.5, epsilon=None)
    text = build_table([comparison_run(4000), set_by_rho]).render()
    lines = [re.split("  +", line.strip()) for line in table_of(text) if "loss" in line]
    assert [line[:2] for line in lines] == [["–", "0.5"], ["2", "–"]]
    assert re.split("  +", table_of(text)[0])[:2] == ["ε", "ρ"]


def test_sections_of_one_row_become_rows():
    runs = [comparison_run(4000, seed, diameter=D) for seed in (1, 2) for D in (1.0, 2.0, 4.0)]
    (section,) = build_table(runs).sections
    assert [row[-1] for row in section.rows] == [1.0, 2.0, 4.0]
    # Named rows are kept as they are named.
    assert len(build_table(runs, Layout(rows=("server",))).sections) == 3
    only = build_table(methods(), Layout(rows=("method",)))
    assert len(only.sections[0].rows) == len(METHODS)


def test_own_labels(tmp_path):
    (tmp_path / "labels.toml").write_text('method = "algorithm"\n[epsilon]\n1 = "strict"\n')
    words = Words(read_labels([str(tmp_path / "labels.toml"), "epsilon=4:loose"]))
    runs = [run for epsilon in (1.0, 4.0) for run in methods(epsilon=epsilon)]
    header, *_ = table_of(build_table(runs).render("text", Dress(words=words)))
    assert re.split("  +", header) == ["algorithm", "strict", "loose"]


def test_small_numbers_have_a_power_of_ten_in_common():
    runs = [replace(run, figures={"excess_loss": 2e-5 * run.test_loss}) for run in methods({"STORM": 2.5})]
    text = build_table(runs, Layout(values=("excess_loss",))).render()
    assert "Excess loss (10⁻⁵): mean" in text
    assert [line.split()[-3:] for line in table_of(text) if "STORM" in line] == [["5.000", "±", "0.020"]]
    assert "$10^{-5}$" in build_table(runs, Layout(values=("excess_loss",))).render("latex")


def test_versions_that_differ_are_named():
    runs = methods()
    assert build_table([replace(run, version="0.1.0") for run in runs]).notes == []
    mixed = [replace(run, version=f"0.{k % 2}.0") for k, run in enumerate(runs)]
    note = "these results were made by versions 0.0.0 and 0.1.0 of mu2mpi"
    assert f"Note: {note}" in build_table(mixed).render()
    assert f"% {note}" in build_table(mixed).render("latex")


def test_files_say_which_version_made_them(folder):
    assert {run.version for run in mu2mpi.load(folder).summaries} == {mu2mpi.__version__}


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("M = 1, T = 60,000", "$M = 1$, $T = 60{,}000$"),
        ("ρ", r"$\rho$"),
        ("ε = 0.5, δ = 1e-05.", r"$\varepsilon = 0.5$, $\delta = 10^{-5}$."),
        ("μ²-SGD with C = S", r"$\mu^2$-SGD with $C = S$"),
        ("rho_file & 50 %", r"rho\_file \& 50 \%"),
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
    ]


def test_latex_is_balanced_with_as_many_cells_in_each_row(folder):
    plain, siunitx, _ = latex_of(folder)
    for text in (plain, siunitx):
        body = re.sub(r"(?m)^%.*$", "", text)
        assert re.findall(r"\\begin\{(\w+)\}", body) == re.findall(r"\\end\{(\w+)\}", body)[::-1]
        bare = re.sub(r"\\[{}%&$]", "", body)
        assert bare.count("{") == bare.count("}")
        assert bare.count("$") % 2 == 0
        assert {row.count(" & ") for row in bare.splitlines() if row.endswith(r"\\")} == {4}
        assert body.isascii()
    assert r"\label{tab:a}" in plain
    assert r"\textbf{" in plain
    assert r"\caption{At $\rho$}" in siunitx
    number = r"(?:\\bfseries )?\d+\.\d+\(\d+\)"
    assert re.search(rf"accuracy \\% & {number} & {number} \\\\", siunitx)


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
    assert "did you mean" in capsys.readouterr().err
