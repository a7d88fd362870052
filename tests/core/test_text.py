"""Text for a terminal: tables, paragraphs and lists."""

from mu2mpi.core.text import as_bullets, as_paragraph, as_text


def test_columns_are_aligned_below_a_rule_for_each_block():
    lines = as_text(["a", "long name"], [[["x|y", "1"]], [["", "2"]]]).splitlines()
    assert lines == ["a    long name", "---  ---------", "x|y  1", "---  ---------", "     2"]


def test_paragraphs_and_lists_fit_a_terminal_and_keep_words_whole():
    words = ["ab-cd"] * 40 + ["x" * 120]
    assert as_paragraph(" ".join(words)).split() == words
    assert max(map(len, as_paragraph(" ".join(words[:40])).splitlines())) <= 96
    first, second, *rest = as_bullets(["one", " ".join(words[:40])]).splitlines()
    assert (first, second[:7], {line[:2] for line in rest}) == ("- one", "- ab-cd", {"  "})
