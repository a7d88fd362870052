"""Pages can be read in one go: no sentence is long, and no paragraph."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
DOCS = PROJECT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("[!_]*/*.md")])
PAGES += [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md"]
LONGEST_SENTENCE, LONGEST_PARAGRAPH = 40, 140
"""In words."""


def paragraphs(page: str) -> list[str]:
    """Return the running text of a page: no code, tables, headings, directives or displayed formulas."""
    text = re.sub(r"^(```|:::).*?^\1[ ]*$", "", page, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^:::.*$|^---$|^\|.*$|^#.*$|^> .*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^([-*]|\d+\.) ", r"\n", text, flags=re.MULTILINE)
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def sentences(paragraph: str) -> list[str]:
    """Return the sentences of a paragraph."""
    return re.split(r"(?<=[.!?])[*_)`\"]*\s+(?=\S)", paragraph)


def words(text: str) -> int:
    """Return how many words there are: names and numbers of a formula count, its signs do not."""
    return sum(any(sign.isalnum() for sign in word) for word in text.split())


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.relative_to(PROJECT).as_posix())
def test_a_reader_takes_it_in_one_go(path):
    text = paragraphs(path.read_text())
    long = [s for part in text for s in sentences(part) if words(s) > LONGEST_SENTENCE]
    assert long == []
    assert [part for part in text if words(part) > LONGEST_PARAGRAPH] == []


def test_what_is_long_is_found():
    page = "# A heading\n\nShort one. " + "word " * 37 + "\n\n```sh\n" + "word " * 99 + "\n```\n"
    (part,) = paragraphs(page)
    assert [words(sentence) for sentence in sentences(part)] == [2, 37]
