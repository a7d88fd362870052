"""How to cite, and the version: said in several places, and the same everywhere."""

import re
from pathlib import Path

import pytest
import yaml

from mu2mpi import __version__, cli
from mu2mpi.citation import BIBTEX

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def cff():
    return yaml.safe_load((PROJECT / "CITATION.cff").read_text())


def fields(key):
    """Return the fields of an entry without the braces that keep upper case."""
    entry = BIBTEX.partition(f"{{{key},\n")[2].partition("\n}")[0]
    return {name: value.strip("{}") for name, value in re.findall(r"^  (\w+) += \{(.*)\},$", entry, re.M)}


def test_the_paper_and_the_software_are_those_of_the_citation_file(cff):
    paper, said, software = cff["preferred-citation"], fields("reshef2024private"), fields("mu2mpi")
    people = " and ".join(f"{who['family-names']}, {who['given-names']}" for who in paper["authors"])
    assert said["author"] == people
    assert (said["title"], said["booktitle"]) == (paper["title"], paper["collection-title"])
    assert (said["year"], said["volume"]) == (str(paper["year"]), str(paper["volume"]))
    assert (said["url"], said["publisher"]) == (paper["url"], paper["publisher"]["name"])
    assert [f"arXiv:{said['eprint']}"] == [known["value"] for known in paper["identifiers"]]
    assert software["title"] == cff["title"]
    assert [software["author"]] == [who["name"] for who in cff["authors"]]
    assert software["note"].endswith(f"version {cff['version']}")


def test_both_are_printed(capsys):
    assert cli.main(["info", "--cite"]) == 0
    assert capsys.readouterr().out == f"{BIBTEX}\n"


def test_the_version_is_the_same_everywhere(cff):
    newest = re.search(r"^## \[(\d[^\]]*)\]", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert (str(cff["version"]), newest[1]) == (__version__, __version__)
