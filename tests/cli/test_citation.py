"""How to cite, and the version: said in several places, and the same everywhere."""

import re
from pathlib import Path

import yaml

from mu2mpi import __version__, cli
from mu2mpi.citation import PAPER, SOFTWARE

PROJECT = Path(__file__).parents[2]
CFF = yaml.safe_load((PROJECT / "CITATION.cff").read_text())


def fields(entry):
    """Return the fields of an entry without the braces that keep upper case."""
    return {name: value.strip("{}") for name, value in entry[2].items()}


def test_paper_and_software_are_those_of_the_citation_file():
    paper, said, software = CFF["preferred-citation"], fields(PAPER), fields(SOFTWARE)
    people = " and ".join(f"{who['family-names']}, {who['given-names']}" for who in paper["authors"])
    assert said["author"] == people
    assert (said["title"], said["booktitle"]) == (paper["title"], paper["collection-title"])
    assert (said["year"], said["volume"]) == (str(paper["year"]), str(paper["volume"]))
    assert (said["url"], said["publisher"]) == (paper["url"], paper["publisher"]["name"])
    assert [f"arXiv:{said['eprint']}"] == [known["value"] for known in paper["identifiers"]]
    assert software["title"] == CFF["title"]
    assert [software["author"]] == [who["name"] for who in CFF["authors"]]
    assert software["note"].endswith(f"version {CFF['version']}")


def test_both_are_printed(capsys):
    assert cli.main(["info", "--cite"]) == 0
    out = capsys.readouterr().out
    assert re.findall(r"^@(\w+)\{", out, re.MULTILINE) == ["inproceedings", "misc"]
    assert out.count("{") == out.count("}")
    assert all(text in out for _, key, content in (PAPER, SOFTWARE) for text in (key, *content.values()))


def test_the_version_is_the_same_everywhere():
    newest = re.search(r"^## \[(\d[^\]]*)\]", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert (str(CFF["version"]), newest[1]) == (__version__, __version__)
