"""Names from data are names in figures, tables and reports, whatever they mean to matplotlib or LaTeX."""

import csv
import html
import re
from dataclasses import replace

import pandas
import pytest
from helpers.figure_cases import each
from markdown_it import MarkdownIt
from matplotlib.figure import Figure as Canvas
from matplotlib.text import Text

import mu2mpi
from mu2mpi.analysis.aggregation import TableLayout
from mu2mpi.analysis.figures import FigureOptions, draw_figure, render_figure
from mu2mpi.analysis.figures.figure import Figure
from mu2mpi.analysis.setting_labels import Labels
from mu2mpi.analysis.tables import TableStyle, build_table, csv_table
from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.core import registry
from mu2mpi.core.errors import InputError
from mu2mpi.results.reader import read_result, read_summary

CLASSES = "$10-$20", "=1+1", "^$20{+$", r"\foo_{1}", "_a"
COLUMNS = r"x$\frac$", "y_{$"
FILES = r"m$\foo$.csv", "{best}.csv", "a%&#~^_b_.csv", "`x`*y*[z](u)<b>|c.csv", "x$_$ and $y{$.csv"


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """Return the result of a run on a file with odd names."""
    folder = tmp_path_factory.mktemp("names")
    # Most rows have the class that spreadsheets would execute, so that it is predicted.
    rows = [[k / 40 - 1, (7 * k % 80) / 80, CLASSES[1 if k % 3 else k % len(CLASSES)]] for k in range(80)]
    with open(folder / FILES[0], "w", newline="") as file:
        csv.writer(file).writerows([[*COLUMNS, "label"], *rows])
    path = folder / "r$x$.h5"
    mu2mpi.run(Experiment(data=str(folder / FILES[0]), machines=4, rounds=9, seed=1), output=path)
    return path


def drawn(canvas):
    """Return the texts of a figure, all of which are drawn as they are."""
    canvas.draw_without_rendering()
    texts = [text for text in canvas.findobj(Text) if text.get_text()]
    assert not any(text.get_parse_math() or text.get_usetex() for text in texts)
    return {text.get_text() for text in texts}


@pytest.mark.parametrize(("kind", "x_axis"), [("tradeoff", "data"), ("history", None)])
def test_names_are_drawn_as_they_are(path, kind, x_axis, tmp_path):
    style = tmp_path / "tex.mplstyle"
    style.write_text("text.usetex: True\ntext.parse_math: True\n")
    runs = [read_summary(path)]
    for options in (FigureOptions(title="$10 to $20{", labels={"data": "^$^$"}), FigureOptions(style=style)):
        figure = draw_figure(kind, runs, x_axis, options)
        assert drawn(figure)
        for suffix in ("svg", "pdf", "png"):
            assert render_figure(figure, suffix, options)
    if x_axis is not None:
        assert FILES[0] in drawn(draw_figure(kind, runs, x_axis))


def test_on_axes_of_the_user_names_with_a_dollar_alone_are_no_formulas(path):
    canvas = Canvas()
    left, right = canvas.subplots(1, 2)
    left.set_xlabel("$x_t$")
    left.text(0, 0, "$y_t$")
    mu2mpi.load(path).plot("tradeoff", x_axis="data", values=["test_loss"], ax=left)
    right.set_title("$z_t$")
    formulas = [text.get_text() for text in canvas.findobj(Text) if text.get_parse_math()]
    assert {"$y_t$", "$z_t$"} <= {*formulas}
    assert not any(FILES[0] in text for text in formulas)
    canvas.draw_without_rendering()


@pytest.mark.parametrize("name", FILES)
def test_tables_show_names_and_nothing_else(name):
    table = build_table(
        each({"data": f"a/{name}", "schema": "s"}, {"data": "digits"}), TableLayout(("data",))
    )
    labels = Labels({"method": name, "server": name})
    page = table.render("markdown", TableStyle(labels=labels, best=True)).split("\n\n**")[0]
    cells = re.findall(r"<td.*?>(.*?)</td>", MarkdownIt().enable("table").render(page))
    assert html.unescape(cells[0]) == name
    assert name in table.render("text")
    latex = table.render("latex", TableStyle(caption="mine"))
    # Every character with a meaning is escaped, or stands in one of our commands.
    (row,) = (line for line in latex.splitlines() if line.endswith(r"\\") and ".csv" in line)
    assert not re.search(r"(?<!\\)[%#_~^]|(?<!\\)&.*\.csv", row)
    assert row.count("{") - row.count(r"\{") == row.count("}") - row.count(r"\}")


def test_a_line_break_in_a_name_ends_no_comment_and_no_row():
    runs = each({"data": "a/two\n\\input{x}.csv", "schema": "s"}, {"data": "digits"})
    runs += [replace(run, path=run.path.with_name("b\n\\input{y}.h5")) for run in runs[:1]]
    for style in (TableStyle(), TableStyle(caption="mine")):
        latex = build_table(runs, TableLayout(("data",))).render("latex", style)
        assert not any(line.startswith(r"\input") for line in latex.splitlines())
    assert Labels().value("data", "a/two\n\x1b[2J.csv") == "two��[2J.csv"


def test_formulas_of_spreadsheets_are_text_in_csv_and_numbers_stay():
    risky = ["=1+1", "@sum", "+1-1", "-1+1", "\t=1", "-x", "+"]
    plain = ["-1", "+1", "-1.5e-7", "-.5", "+inf", "-nan", "a=1", "", "'=1", "10-20"]
    (found,) = csv.reader([csv_table([*risky, *plain], [])])
    assert found == [*(f"'{cell}" for cell in risky), *plain]


def test_predictions_are_names_in_python_and_no_formulas_in_csv(path, tmp_path, capsys):
    output, data = tmp_path / "scores.csv", read_result(path).experiment.data
    assert main(["predict", str(path), data, "-o", str(output)]) == 0
    frame = pandas.read_csv(output)
    assert [*frame] == ["prediction", *(f"score:{name}" for name in sorted(CLASSES))]
    expected = [f"'{name}" if name.startswith("=") else name for name in read_result(path).predict(data)]
    assert frame["prediction"].tolist() == expected
    assert "'=1+1" in expected


class Broken(Figure):
    """Never drawn."""

    name = "broken"

    def draw(self, runs, options, x_axis=None):
        raise ZeroDivisionError("no <runs>\nat all")


def test_a_figure_that_fails_is_a_line_of_the_report(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(registry._components["figures"], "broken", Broken())
    output = tmp_path / "report.html"
    assert main(["report", str(path), "-o", str(output)]) == 0
    assert "figure broken cannot be drawn (ZeroDivisionError: no <runs> at all)" in capsys.readouterr().err
    assert "figure broken cannot be drawn (ZeroDivisionError: no &lt;runs&gt; at all)" in output.read_text()


def test_the_working_directory_is_not_an_empty_path():
    for empty in ("", ["", "a.h5"]):
        with pytest.raises(InputError, match="empty"):
            mu2mpi.load(empty)
