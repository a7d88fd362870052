"""How to cite, and the version: said in several places, and the same everywhere."""

import re
from pathlib import Path

import pytest
import yaml

from mu2mpi import __version__, cli

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def cff():
    return yaml.safe_load((PROJECT / "CITATION.cff").read_text())


def test_both_are_printed(capsys):
    assert cli.main(["info", "--cite"]) == 0
    entries = (PROJECT / "mu2mpi" / "citation.bib").read_text()
    assert capsys.readouterr().out == entries.replace("VERSION", __version__)


def test_the_version_is_the_same_everywhere(cff):
    newest = re.search(r"^## \[(\d[^\]]*)\]", (PROJECT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert (str(cff["version"]), newest[1]) == (__version__, __version__)
