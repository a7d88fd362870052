"""Tables, paragraphs and bullet lists for a terminal."""

import html

from mu2mpi.core.text import bullet_list, html_table, text_table, wrap_paragraph


def test_columns_are_aligned_below_a_rule_for_each_block():
    lines = text_table(["a", "long name"], [[["x|y", "1"]], [["", "2"]]]).splitlines()
    assert lines == ["a    long name", "---  ---------", "x|y  1", "---  ---------", "     2"]


def test_paragraphs_and_lists_fit_a_terminal_and_keep_words_whole():
    words = ["ab-cd"] * 40 + ["x" * 120]
    assert wrap_paragraph(" ".join(words)).split() == words
    assert max(map(len, wrap_paragraph(" ".join(words[:40])).splitlines())) <= 96
    first, second, *rest = bullet_list(["one", " ".join(words[:40])]).splitlines()
    assert (first, second[:7], {line[:2] for line in rest}) == ("- one", "- ab-cd", {"  "})


def test_no_cell_of_a_table_for_notebooks_is_taken_for_html():
    text = html_table([["<a&b>", "1"], ["<c>", ""]])
    assert html.unescape(text).count("<") == html.unescape(text).count(">") == text.count("<") + 2
    assert [line.count("</t") for line in text.splitlines()] == [0, 3, 3, 1]
