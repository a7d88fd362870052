"""The reference has all that there is: options, commands, figures, and names of which the examples work."""

import argparse
import doctest
import re
from pathlib import Path

import pytest
from from_help import commands_page, options_page

import mu2mpi
from mu2mpi.cli.commands import command_names
from mu2mpi.cli.program import build_parser
from mu2mpi.config.experiment_options import option_fields
from mu2mpi.core import registry

DOCS = Path(__file__).parents[2] / "docs"


def test_every_option_is_on_its_page_with_what_the_help_says_of_it():
    page = options_page()
    assert sorted(re.findall("^### (.*)$", page, re.MULTILINE)) == sorted(option_fields())
    (momentum,) = re.findall(r"^### momentum\n(.*?)^#", page, re.MULTILINE | re.DOTALL)
    assert "flag: `--momentum`, values: a number at least 0 and below 1" in momentum
    assert "default: none" in momentum
    assert "only with `method` `dp-gd`" in momentum


def test_every_command_is_on_its_page_with_all_of_its_own_options():
    page, names = commands_page(), command_names()
    assert re.findall("^## mu2mpi (.*)$", page, re.MULTILINE) == names
    parts = dict(zip(names, re.split("^## .*$", page, flags=re.MULTILINE)[1:], strict=True))
    (commands,) = (
        a for a in build_parser(names, names)._actions if isinstance(a, argparse._SubParsersAction)
    )
    for name, parser in commands.choices.items():
        own = [a for a in parser._actions if a.dest != "help" and a.dest not in option_fields()]
        assert [
            flag for a in own for flag in a.option_strings if not re.search(rf"{flag}\b", parts[name])
        ] == []


def test_every_figure_is_in_the_gallery_with_a_command_that_draws_it():
    page = (DOCS / "reference" / "gallery.md").read_text()
    assert sorted(re.findall("^### (.*)$", page, re.MULTILINE)) == sorted(registry.known_names("figures"))
    drawn = re.findall(r"^mu2mpi plot ([\w-]+) .* -o (\S+)$", page, re.MULTILINE)
    assert {kind for kind, _ in drawn} == {*registry.known_names("figures")}
    assert [file for _, file in drawn if f"]({file})" not in page] == []


def test_every_public_name_is_in_the_api():
    page = (DOCS / "reference" / "api.md").read_text()
    named = re.findall(r"^   (\w+)$", page, re.MULTILINE)
    assert sorted([*named, "__version__"]) == sorted(mu2mpi.__all__)


@pytest.mark.slow
@pytest.mark.usefixtures("restored_registry")
def test_examples_of_public_names_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finder, runner = doctest.DocTestFinder(), doctest.DocTestRunner()
    # Others read what these two write.
    names = ["run", "sweep", *(n for n in mu2mpi.__all__ if n not in ("run", "sweep", "__version__"))]
    found = [test for n in names for test in finder.find(getattr(mu2mpi, n), n, globs={"mu2mpi": mu2mpi})]
    for test in [*found, *finder.find(mu2mpi, "mu2mpi", globs={"mu2mpi": mu2mpi})]:
        runner.run(test)
    assert {test.name for test in found if test.examples} >= {"run", "sweep", "load", "Runs", "Experiment"}
    assert runner.summarize(verbose=False).failed == 0
