"""Names that mean something to matplotlib, LaTeX, markdown, HTML or spreadsheets: only names are shown."""

import csv
import html
import re

import pytest
from helpers.figure_cases import each
from helpers.slow import slow
from markdown_it import MarkdownIt
from matplotlib.text import Text

from mu2mpi.analysis.aggregation import TableLayout
from mu2mpi.analysis.figures import FigureOptions, draw_figure, render_figure
from mu2mpi.analysis.tables import TableStyle, build_table, csv_table

PIECES = (
    "$", "$", "$10", "^", "_", "{", "}", "\\", r"\frac", r"\foo", "%", "&", "&amp;", "#", "~", "=", "+", "-",
    "@", "|", "<b>", "`", "*", "[x](y)", "ä", "μ²", "10", "x", "{best}", "<!--", "M = 1", "'", '"', ",",
)  # fmt: skip


def odd_name(chance):
    """Return a name that need be no formula, tag or pattern."""
    return "".join(chance.choices(PIECES, k=chance.choice((1, 2, 3, 6))))


@pytest.mark.parametrize("count", [10, *slow(300)])
def test_any_name_is_shown_as_it_is(chance, count):
    for _ in range(count):
        name, other = odd_name(chance), odd_name(chance)
        runs = each({"data": f"a/{name}.csv", "schema": "s.toml"}, {"data": "digits"})
        options = FigureOptions(title=other, labels={"data=digits": other, "server": name})
        figure = draw_figure(chance.choice(("history", "tradeoff")), runs, options=options)
        assert render_figure(figure, chance.choice(("svg", "pdf", "png")), options)
        assert not any(text.get_parse_math() for text in figure.findobj(Text))
        table = build_table(runs, TableLayout(("data",)))
        page = table.render("markdown", TableStyle(labels=options.labels, best=True)).split("\n\n**")[0]
        cells = re.findall(r"<td.*?>(.*?)</td>", MarkdownIt().enable("table").render(page))
        assert html.unescape(cells[0]) == f"{name}.csv"
        latex = table.render("latex", TableStyle(labels=options.labels, best=True))
        bare = re.sub(r"\\(textbackslash|[{}%&$#_])|(?m:^%.*$)", "", latex)
        assert (bare.count("{"), bare.count("$") % 2) == (bare.count("}"), 0)
        ((cell,),) = csv.reader([csv_table([name], [])])
        assert cell in (name, f"'{name}")
