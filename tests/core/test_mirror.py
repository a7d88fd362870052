"""Every module that computes something has a test file of its name, in the test folder of its package."""

import ast
from pathlib import Path

import pytest

from mu2mpi.core import registry

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "mu2mpi"

LISTINGS = {kind: f'known_names("{kind}")' for kind in registry._components}
NOUNS = {package.rpartition(".")[2]: noun for package, noun in registry._COMPONENT_PACKAGES.values()}
LISTINGS |= {"attacks": "all_attacks()", "commands": "command_names()"}
"""Folders whose modules are found by listing them, and the listing that a test of all modules iterates."""

ELSEWHERE = {
    "analysis/sweep.py": "a sweep from Python: test_observer.py of tests/results, and test_report.py",
    "audit/verdicts.py": "test_trials.py and test_unequal.py break the code and read the verdicts",
    "audit/adversary_view.py": "the runs of an audit, likewise",
    "cli/common_arguments.py": "arguments that several commands have: test_program.py",
    "data/column_values.py": "cells are encoded as the columns of a schema say: test_schema.py",
    "data/formats": "the same table in every format: test_user_file.py and test_schema.py",
    "federation/run_constants.py": "every test of federation and methods begins with them",
    "federation/problem.py": "the problem of a run, likewise",
    "federation/trust_mode.py": "facts about trust modes: test_servers.py",
    "privacy/released_sums.py": "the sensitivity that mechanisms are calibrated to: test_mechanisms.py",
    "results/result.py": "what is made of a result: test_model.py, test_schema.py",
}
"""Modules and folders that are tested in files of other names, with these files."""


def computes(path: Path) -> bool:
    """Whether a module has a function other than constructors, declarations and functions that only raise."""
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    return any(
        not isinstance(statement, ast.Expr | ast.Pass | ast.Raise)
        for function in functions
        if function.name != "__init__"
        for statement in function.body
    )


def is_tested(module: Path) -> bool:
    """Whether a module has a test file, or its folder has one that iterates over all of its modules."""
    room, name, folder = module.parts[0], module.stem.lstrip("_"), module.parent.name
    # Tests of behaviour on several ranks are in tests/mpi. Modules of a package may share a name.
    own = [TESTS / at / f"test_{stem}.py" for at in (room, "mpi") for stem in (name, f"{folder}_{name}")]
    of_all = [TESTS / room / f"test_{stem}.py" for stem in (folder, NOUNS.get(folder, folder))]
    listing = LISTINGS.get(folder)
    return any(path.exists() for path in own) or any(
        listing is not None and path.exists() and listing in path.read_text() for path in of_all
    )


MODULES = [path.relative_to(PACKAGE) for path in sorted(PACKAGE.glob("*/**/[!_]*.py")) if computes(path)]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_every_module_that_computes_something_is_tested_under_its_name(module):
    assert is_tested(module) != any(str(module).startswith(known) for known in ELSEWHERE)
