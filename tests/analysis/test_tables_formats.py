"""Tables as text, markdown and CSV, and numbers that are rounded up."""

import csv
from fractions import Fraction

from helpers.property_tests import given
from hypothesis import strategies as st

from mu2mpi.analysis.pivot import PivotRow, PivotTable, TableEntry
from mu2mpi.analysis.tables import TableStyle, _render_markdown, csv_table
from mu2mpi.core.text import rounded_up


def test_every_format_has_the_cells_as_they_are():
    header, rows = ["a", "long name"], [["x|y", 'say "1,2"'], ["", "50% of A&B_{2}\\"]]
    pivot_rows = [PivotRow(0, [label], [TableEntry(entry)]) for label, entry in rows]
    table = PivotTable("", header[:1], header[1:], pivot_rows, "")
    assert _render_markdown(table, TableStyle(), 0).splitlines()[4] == r'| x\|y | say "1,2" |'
    assert list(csv.reader(csv_table(header, rows).splitlines())) == [header, *rows]


@given(st.floats(1e-30, 1e30))
def test_four_digits_on_the_safe_side(value):
    up, exact = Fraction(rounded_up(value)), Fraction(repr(value))
    assert exact <= up <= exact * Fraction(1001, 1000)
