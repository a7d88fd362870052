"""The table of policies names each one once, and every file that it or a community page refers to exists."""

import re
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PAGE = PROJECT / "docs/develop/policies.md"
STATES = {"met", "in part", "not met", "does not apply"}
NUMBERS = {
    "xSDK, mandatory": [f"M{k}" for k in range(1, 18)],
    "xSDK, recommended": [f"R{k}" for k in range(1, 9)],
    "E4S": [f"P{k}" for k in range(1, 10)],
}
CHECKS = {"JOSS": 17, "pyOpenSci": 16}  # items of each list
COMMUNITY_FILES = ("CODE_OF_CONDUCT", "CONTRIBUTING", "SECURITY", "SUPPORT")


def tables() -> dict[str, list[list[str]]]:
    """Return the rows of each table of the page, as cells, by heading."""
    sections = re.split("^## (.*)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return {
        title: [
            [cell.strip() for cell in line.strip("|").split(" | ")]
            for line in text.splitlines()
            if line.startswith("| ")
        ][2:]
        for title, text in zip(sections[::2], sections[1::2], strict=True)
    }


def test_every_policy_has_one_row():
    names = {title: [row[0] for row in rows] for title, rows in tables().items()}
    assert {title: names[title] for title in NUMBERS} == NUMBERS
    assert {title: len(set(names[title])) for title in CHECKS} == CHECKS
    assert names.keys() == NUMBERS.keys() | CHECKS.keys()


def test_every_row_has_a_state_and_a_reason():
    rows = [row for of_section in tables().values() for row in of_section]
    assert [row for row in rows if len(row) != 4 or row[2] not in STATES or len(row[3]) < 7] == []


@pytest.mark.parametrize("file", [PAGE, *(PROJECT / f"{name}.md" for name in COMMUNITY_FILES)])
def test_files_that_are_referred_to_exist(file):
    text = file.read_text()
    links = [link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    named = re.findall(
        r"`((?:scripts|tests|mu2mpi|docs|\.ci)/[\w./]*|[A-Z_]+\.\w+|LICENSE|setup\.cfg)`", text
    )
    paths = [*(file.parent / link for link in links), *(PROJECT / name for name in named)]
    assert [path for path in paths if not path.exists()] == []


@pytest.mark.parametrize("name", COMMUNITY_FILES)
def test_community_files_are_pages_of_the_site(name):
    pages = (PROJECT / "docs/develop").glob("*.md")
    index = (PROJECT / "docs/develop/index.md").read_text()
    (page,) = (page for page in pages if f"{{include}} ../../{name}.md" in page.read_text())
    assert re.search(rf"^{page.stem}$", index, re.MULTILINE)
    assert f"]({page.name})" in index
