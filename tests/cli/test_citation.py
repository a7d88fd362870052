"""How to cite, and the version: said in several places, and the same everywhere."""

import re
from pathlib import Path

import pytest
import yaml

from mu2mpi import __version__, cli
from mu2mpi.citation import PAPER, SOFTWARE

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def cff():
    return yaml.safe_load((PROJECT / "CITATION.cff").read_text())


def fields(entry):
    """Return the fields of an entry without the braces that keep upper case."""
    return {name: value.strip("{}") for name, value in entry[2].items()}


def test_the_paper_is_that_of_the_citation_file(cff):
    paper, said = cff["preferred-citation"], fields(PAPER)
    people = " and ".join(f"{who['family-names']}, {who['given-names']}" for who in paper["authors"])
    assert said["author"] == people
    assert (said["title"], said["booktitle"]) == (paper["title"], paper["collection-title"])
    assert (said["year"], said["volume"]) == (str(paper["year"]), str(paper["volume"]))
    assert (said["url"], said["publisher"]) == (paper["url"], paper["publisher"]["name"])
    assert [f"arXiv:{said['eprint']}"] == [known["value"] for known in paper["identifiers"]]
    assert paper["url"].endswith(said["eprint"])


def test_the_software_is_that_of_the_citation_file(cff):
    said = fields(SOFTWARE)
    assert said["title"] == cff["title"]
    assert [said["author"]] == [who["name"] for who in cff["authors"]]
    assert said["note"].endswith(f"version {cff['version']}")


def test_both_are_printed(capsys):
    assert cli.main(["info", "--cite"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^@(\w+)\{", out, re.MULTILINE) == ["inproceedings", "misc"]
    assert out.count("{") == out.count("}")
    for _, key, content in (PAPER, SOFTWARE):
        assert key in out
        for name, value in content.items():
            assert re.search(rf"^  {name} += \{{{re.escape(value)}\}},$", out, re.MULTILINE)


def test_the_version_is_the_same_everywhere(cff):
    newest = re.search(r"^## \[(\d[^\]]*)\]", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert (str(cff["version"]), newest[1]) == (__version__, __version__)
