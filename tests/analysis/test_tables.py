"""Tables in every format: means, standard deviations and the paper's values."""

import math
import re
import shutil
import subprocess
import sys

import pytest
from helpers.summaries import (
    cells_of,
    csv_lines,
    methods,
    summary,
    three_seeds,
)

import mu2mpi
from mu2mpi.analysis.aggregation import TableLayout
from mu2mpi.analysis.tables import TableStyle, build_table, escape_latex
from mu2mpi.cli.program import main


def test_mean_and_deviation_by_hand_with_the_papers_value_beside_it():
    table = build_table(three_seeds())
    cell = table.sections[0].aggregates[("untrusted", 4.0), (100, 600)]
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
    lines = csv_lines(build_table(runs, TableLayout(rows=("machines",), columns=("server", "rho"))))
    values = ("test_loss_paper", "test_accuracy_paper")
    found = {(s["server"], s["machines"], s["rho"]): tuple(s[v] for v in values) for s in lines}
    assert len(found) == 18
    assert found["untrusted", "100", "4"] == ("2.285", "0.654")
    assert found["trusted", "100", "8"] == ("2.257", "0.696")
    assert all(loss and accuracy for loss, accuracy in found.values())


def two_sections():
    return build_table([*three_seeds(), *three_seeds(server="trusted"), summary(clip_norm=2.5)])


def test_csv_has_full_precision_and_lines_of_every_format_have_equal_lengths():
    table = two_sections()
    lines = csv_lines(table)
    assert [line["clip_norm"] for line in lines] == ["", "", "2.5"]
    cell = table.sections[0].aggregates[("untrusted", 4.0), (100, 600)]
    assert float(lines[0]["test_loss_mean"]) == cell.values["test_loss"].mean
    assert float(lines[0]["test_accuracy_sd"]) == cell.values["test_accuracy"].std
    markdown = [line for line in table.render("markdown").splitlines() if line.startswith("|")]
    assert len(markdown) == (2 + 4) + (2 + 2)
    assert {line.count("|") for line in markdown} == {4}


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("M = 1, T = 60,000", "M = 1, T = 60,000"),
        ("ε = 0.5, δ = 1e-05.", r"$\varepsilon$ = 0.5, $\delta$ = 1e-05."),
        ("ρ = ∞", r"$\rho$ = $\infty$"),
        ("μ²-SGD with C = S", r"$\mu$$^2$-SGD with C = S"),
        ("rho_file & 50 % of A{2}\\", r"rho\_file \& 50 \% of A\{2\}\textbackslash{}"),
        ("loss (10⁻⁵)", "loss (10$^-$$^5$)"),
        ("DP-SGD, STORM", "DP-SGD, STORM"),
    ],
)
def test_text_is_escaped_for_latex(text, latex):
    assert escape_latex(text) == latex


def latex_of(folder):
    runs = mu2mpi.load(folder)
    return [
        runs.table(format="latex", best=True, label="tab:a"),
        runs.table(format="latex", best=True, caption=r"At $\rho$", label="tab:b"),
        build_table(methods()).render("latex"),
        two_sections().render("latex", TableStyle(label="tab:c")),
    ]


def test_latex_is_balanced_with_as_many_cells_in_each_row(folder):
    plainly, captioned, _, sections = latex_of(folder)
    for text in (plainly, captioned):
        body = re.sub(r"(?m)^%.*$", "", text)
        assert re.findall(r"\\begin\{(\w+)\}", body) == re.findall(r"\\end\{(\w+)\}", body)[::-1]
        bare = re.sub(r"\\[{}%&$]", "", body)
        assert bare.count("{") == bare.count("}")
        assert bare.count("$") % 2 == 0
        assert {row.count(" & ") for row in bare.splitlines() if row.endswith(r"\\")} == {4}
        assert body.isascii()
    assert r"\textbf{" in plainly
    assert r"\begin{tabular}{lll rr}" in plainly
    assert r"\caption{At $\rho$}" in captioned
    assert re.findall(r"\\label\{(.*)\}", sections) == ["tab:c", "tab:c-2"]
    assert r"2.2851 $\pm$ 0.0010 {[}2.285{]}" in sections


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_latex_compiles(folder, tmp_path):
    packages = r"\usepackage{booktabs}\begin{document}"
    document = [r"\documentclass{article}", packages, *latex_of(folder), r"\end{document}"]
    (tmp_path / "t.tex").write_text("\n".join(document))
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)


def test_the_command_takes_what_python_takes(folder, capsys):
    options = ["--format", "latex", "--best", "--label", "t"]
    assert main(["table", str(folder), *options]) == 0
    runs = mu2mpi.load(folder)
    made = runs.table(format="latex", best=True, label="t")
    assert capsys.readouterr().out == f"{made}\n"
    assert "strong" in runs.table(labels={"rho=4": "strong"})
    assert main(["table", str(folder), "--values", "acuracy"]) == 2


def test_tables_need_neither_the_simulation_nor_the_extra():
    script = (
        "import sys, mu2mpi.analysis.tables, mu2mpi.analysis.description\n"
        "print([m for m in sys.modules if m.split('.')[0] in ('numba', 'mpi4py', 'pandas', 'scipy') or "
        "m.startswith(('mu2mpi.execution', 'mu2mpi.core.parallel', 'mu2mpi.federation.increments'))])"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout.strip() == "[]"
