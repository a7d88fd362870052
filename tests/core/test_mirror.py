"""Every module that computes something has a test file of its name, in the folder of its room."""

import ast
from pathlib import Path

import pytest

from mu2mpi.core import registry

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "mu2mpi"

LISTINGS = {kind: f'names("{kind}")' for kind in registry._registered}
NOUNS = {package.rpartition(".")[2]: noun for package, noun in registry._KINDS.values()}
LISTINGS |= {"attacks": "all_attacks()", "commands": "command_names()"}
"""Folders whose modules are found by listing them, and what a test of all of them goes through."""

ELSEWHERE = {
    "analysis/sweep.py": "a sweep from Python: test_observer.py of tests/results, and test_report.py",
    "audit/verdicts.py": "test_trials.py and test_unequal.py break the code and read the verdicts",
    "audit/adversary_view.py": "the runs of an audit, likewise",
    "cli/common_arguments.py": "arguments that several commands have: test_program.py",
    "data/column_values.py": "cells are encoded as the columns of a schema say: test_schema.py",
    "data/formats": "the same table in every format: test_user_file.py and test_schema.py",
    "federation/run_constants.py": "every test of federation and methods begins with them",
    "federation/task.py": "the task of a run, likewise",
    "federation/trust_mode.py": "facts about trust modes: test_servers.py",
    "results/result.py": "what is made of a result: test_model.py, test_schema.py",
}
"""Modules and folders that are tested under other names, and which."""


def computes(path: Path) -> bool:
    """Whether a module has a function that does more than declare, refuse or keep what it is given."""
    functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
    return any(
        not isinstance(statement, ast.Expr | ast.Pass | ast.Raise)
        for function in functions
        if function.name != "__init__"
        for statement in function.body
    )


def is_tested(module: Path) -> bool:
    """Whether a module has a test file of its own, or its folder one that goes through all of its modules."""
    room, name, folder = module.parts[0], module.stem.lstrip("_"), module.parent.name
    # What only several ranks show is tested on all of them. Modules of a room may share a name.
    own = [TESTS / of / f"test_{words}.py" for of in (room, "mpi") for words in (name, f"{folder}_{name}")]
    of_all = [TESTS / room / f"test_{words}.py" for words in (folder, NOUNS.get(folder, folder))]
    listing = LISTINGS.get(folder)
    return any(path.exists() for path in own) or any(
        listing is not None and path.exists() and listing in path.read_text() for path in of_all
    )


MODULES = [path.relative_to(PACKAGE) for path in sorted(PACKAGE.glob("*/**/[!_]*.py")) if computes(path)]


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_every_module_that_computes_something_is_tested_under_its_name(module):
    assert is_tested(module) != any(str(module).startswith(known) for known in ELSEWHERE)
