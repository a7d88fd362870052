"""Comparison of two sets of results: settings, environments and bits."""

import re
from dataclasses import replace
from uuid import uuid4

import mu2mpi
from mu2mpi.analysis.differences import compare
from mu2mpi.cli.program import main
from mu2mpi.config.experiment import Experiment, complete_experiment
from mu2mpi.data.source import PublicFacts
from mu2mpi.results.reader import read_result
from mu2mpi.results.writer import write_result


def runs_of(folder, **settings):
    return mu2mpi.load(folder).select(**settings).summaries


def test_runs_are_matched_by_what_varies_within_a_side(folder):
    untrusted, trusted = (runs_of(folder, server=server) for server in ("untrusted", "trusted"))
    text = compare(untrusted, trusted)
    assert re.search(r"^server +untrusted +trusted$", text, re.MULTILINE)
    assert "seed" not in text.split("\n\n")[0]
    assert "0 of 12 models of the same seed are equal to the last bit" in text


def test_copies_are_the_same_to_the_bit(folder):
    runs = runs_of(folder, server="trusted", rho=4.0)
    text = compare(runs, runs)
    assert "6 of 6 models of the same seed are equal" in text


def test_what_names_a_run_or_its_owner_is_no_difference(folder, tmp_path):
    paths = [tmp_path / f"{name}.h5" for name in "ab"]
    result = read_result(runs_of(folder, server="trusted")[0].path)
    for path, owner in zip(paths, ("Ada", "Bob"), strict=True):
        own = {"run_id": str(uuid4()), "creator_name": owner, "license": owner, "git_commit": "1"}
        write_result(replace(result, environment={**result.environment, **own}), path)
    text = compare(*(mu2mpi.load([path]).summaries for path in paths))
    assert "Versions and machines: the same." in text
    own["git_commit"] = "2"
    write_result(replace(result, environment={**result.environment, **own}), path, overwrite=True)
    text = compare(*(mu2mpi.load([path]).summaries for path in paths))
    assert re.search(r"^git_commit +1 +2$", text, re.MULTILINE)
    assert "run_id" not in text


def test_what_a_preset_chose_has_its_value(folder):
    (run,) = runs_of(folder, server="trusted", rho=4.0, machines=10, seed=1)
    public_facts = PublicFacts(10, 64.0, 1430)
    sides = []
    for asked in ({"rho": 0.5}, {"preset": "practical", "epsilon": 2.0}):
        made = complete_experiment(
            Experiment(data="digits", server="trusted", machines=10, seed=1, **asked), public_facts
        )
        sides.append(
            [replace(run, experiment=made.replace(rounds=made.rounds or 143), public_facts=public_facts)]
        )
    text = compare(*sides)
    assert "preset     unset    practical" in text
    assert "diameter   0.1      200" in text
    assert re.search(r"^rho +0.5 +0.50\d*$", text, re.MULTILINE)
    # Nothing is told of what follows on both sides.
    both = compare(sides[1], [replace(sides[1][0], experiment=sides[1][0].experiment.replace(seed=2))])
    assert both.splitlines()[2:4] == ["seed     1  2", ""]


def test_the_command(folder, capsys):
    first, second = (str(run.path) for run in runs_of(folder, rho=4.0, machines=10)[:2])
    assert main(["compare", first, second]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"A: {first}\nB: {second}\n\n")
    assert re.search(r"^seed +\d +\d$", said, re.MULTILINE)
    assert main(["compare", first, "nowhere"]) == 2
