import math
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mu2mpi.analysis.show import describe, describe_privacy, in_brief
from mu2mpi.config.experiment import Experiment
from mu2mpi.privacy.mechanisms.gaussian import GaussianReleases
from mu2mpi.privacy.statement import PrivacyStatement
from mu2mpi.results.schema import Diagnostics, History, Result, Theory, checkpoint_path

STATEMENT = PrivacyStatement(
    mechanism=GaussianReleases(
        rho=4.0,
        clip_norm=11.5,
        sigma=1000.0,
        resolution=2.0**-20,
        rounds=30,
        machines=2,
        parameters=7850,
        samples=30,
        drawn=1.0,
        touched=30,
    ),
    server="untrusted",
    delta=1e-5,
    epsilon=27.19411,
    epsilon_exact=20.12001,
    epsilon_sampler=0.0,
    S=118.5,
)
SILENT = replace(STATEMENT.mechanism, rho=math.inf, sigma=0.0)


def make_result(rows=30, seed=None):
    k = np.arange(1, rows + 1)
    return Result(
        experiment=Experiment(data="mnist", machines=2, rounds=rows, seed=seed),
        x=np.zeros((10, 785)),
        w=np.zeros((10, 785)),
        history=History(
            k,
            2.3 - 0.001 * k,
            0.5 + 0.005 * k,
            k * np.nan,
            100 * k,
            2 * k,
            4 * k,
            0.1 * k,
            0.5 * k,
            1e3 + k,
            1 / k,
        ),
        privacy=replace(STATEMENT, noise_recomputable=seed is not None),
        theory=Theory(0.3, 2.25, 1e-7, 0.02, 1.1, 0.9),
        diagnostics=Diagnostics(16.75, 0.125),
        timing={"compute": np.array([1.0, 3.0]), "noise": np.array([2.0, 0.5])},
        environment={"hosts": "node1 (2)", "mpi_library": "MPICH\nVersion 4.2"},
    )


def paragraph(text, title):
    """Return the lines below a title, without their indent."""
    part = next(p for p in text.split("\n\n") if p.splitlines()[0] == title)
    return [line.strip() for line in part.splitlines()[1:]]


def test_final_numbers_and_settings():
    lines = paragraph(describe(make_result(), Path("runs/a.h5")), "Experiment")
    pairs = dict(line.split("  ", 1) for line in lines)
    pairs = {name: value.strip() for name, value in pairs.items()}
    assert pairs["machines"] == "2"
    assert pairs["rho"] == "4"
    assert pairs["model"] == "10 rows x 785 features (bias included)"
    assert pairs["final test loss"] == "2.2700 nats"
    assert pairs["final test accuracy"] == "65.0%"


@pytest.mark.parametrize(("rows", "shown"), [(1, 1), (3, 3), (8, 8), (30, 8), (1000, 8)])
def test_history_is_short_and_has_both_ends(rows, shown):
    lines = paragraph(describe(make_result(rows), Path("a.h5")), "History")
    assert len(lines) == 2 + shown
    assert lines[2].split()[:3] == ["1", "2", "2.2990"]
    assert lines[-1].split()[0] == f"{rows:,}"


def test_privacy_names_who_sees_what():
    statement = replace(STATEMENT, epsilon_exact=2.0)
    untrusted = " ".join(describe_privacy(statement).split())
    assert "everything that leaves the machines" in untrusted
    trusted = " ".join(describe_privacy(replace(statement, server="trusted")).split())
    assert "everything that leaves the server, which itself sees sums without noise" in trusted
    for text in (untrusted, trusted):
        assert "delta = 1e-05" in text
        assert "replace-one" in text
        assert "WARNING" not in text


def test_epsilon_is_rounded_to_the_private_side():
    text = " ".join(describe_privacy(STATEMENT).split())
    assert "epsilon = 27.2 by the paper's lemma, and epsilon = 20.13 exactly" in text


def test_recomputable_noise_is_a_warning():
    text = describe(make_result(seed=1), Path("a.h5"))
    assert "WARNING: The noise follows from the seed" in text
    assert "without a seed" not in text


def test_a_shortcut_is_called_one():
    assert "aggregate" not in describe_privacy(STATEMENT)
    assert "noise = aggregate" in describe_privacy(replace(STATEMENT, noise="aggregate"))


def test_an_epsilon_that_protects_little_is_a_warning():
    assert "WARNING: epsilon is beyond 10" in describe_privacy(STATEMENT)
    assert "beyond 10" not in describe_privacy(replace(STATEMENT, epsilon_exact=9.99))


def test_a_line_on_privacy_at_the_end_of_a_run():
    seeded = replace(STATEMENT, noise_recomputable=True)
    begin = f"privacy of one sample of one machine (replace-one), {STATEMENT.server} server: epsilon ="
    why = "its seed is written down; epsilon is beyond 10"
    assert in_brief(seeded) == f"{begin} 20.13 at delta = 1e-05, rho = 4; but {why}"
    half = replace(STATEMENT.mechanism, rho=0.5)
    calm = replace(STATEMENT, mechanism=half, epsilon_exact=1.845)
    assert in_brief(calm) == f"{begin} 1.845 at delta = 1e-05, rho = 0.5"
    assert in_brief(replace(calm, mechanism=SILENT)) == "privacy: none (no noise)"


def test_no_noise_no_guarantee():
    infinite = {"epsilon": math.inf, "epsilon_exact": math.inf}
    none = replace(STATEMENT, mechanism=SILENT, noise_recomputable=True, **infinite)
    assert describe_privacy(none) == "No noise was added: there is no privacy guarantee at all."


def test_theory_stands_beside_what_was_measured():
    lines = paragraph(describe(make_result(), Path("a.h5")), "Theory")
    assert lines[0].split("  ")[-1] == "theorem: at most"
    assert lines[2].split()[-2:] == ["0.02", "0.3"]
    assert "2.250000 (within 1e-6)" in " ".join(lines)
    exact = replace(make_result(), theory=Theory(0.3, 2.25, 4e-13, 0.02, 1.1, 0.9))
    assert "2.250000 (within 1e-12)" in " ".join(paragraph(describe(exact, Path("a.h5")), "Theory"))
    clipped = replace(make_result(), theory=Theory(math.nan, 2.25, 0.01, 0.02, 1.1, 0.9))
    text = " ".join(paragraph(describe(clipped, Path("a.h5")), "Theory"))
    assert "0.02 none Measured" in " ".join(text.split())
    assert "the learning rate of the theorem" in text
    assert "or up to 0.01 less" in text
    large = replace(make_result(), theory=Theory(0.3, *[math.nan] * 5))
    assert "too large to search" in describe(large, Path("a.h5"))
    assert "Theory" not in describe(replace(make_result(), theory=None), Path("a.h5"))


def test_a_checkpoint_that_a_kill_left_beside_a_result_is_named(tmp_path):
    output = tmp_path / "a.h5"
    assert ".checkpoint" not in describe(make_result(), output)
    checkpoint_path(output).touch()
    assert "a.h5.checkpoint is still there" in " ".join(describe(make_result(), output).split())
    assert ".checkpoint" not in describe(make_result(seed=1), output)


def test_diagnostics_are_shown_on_request_alone():
    quiet = describe(make_result(), Path("a.h5"))
    assert "mu2mpi show --diagnostics a.h5" in " ".join(paragraph(quiet, "Diagnostics"))
    assert "16.75" not in quiet
    assert "12.5" not in quiet
    bare = replace(make_result(), diagnostics=None)
    assert "Diagnostics" not in describe(bare, Path("a.h5"))
    assert paragraph(describe(bare, Path("a.h5"), True), "Diagnostics") == ["This file holds none."]
    lines = " ".join(paragraph(describe(make_result(), Path("a.h5"), True), "Diagnostics"))
    assert "16.75" in lines
    assert "12.500%" in lines
    assert "not covered by the guarantee" in lines


def test_timing_by_phase():
    lines = paragraph(describe(make_result(), Path("a.h5")), "Time in seconds")
    assert lines[2].split() == ["compute", "2.000", "3.000"]
    assert lines[3].split() == ["noise", "1.250", "2.000"]
    # Rank 0 took 1 + 2 seconds, rank 1 took 3 + 0.5.
    assert lines[5].split() == ["all", "phases", "3.250", "3.500"]
    untimed = replace(make_result(), timing={})
    assert "Time in seconds" not in describe(untimed, Path("a.h5"))


def test_environment_and_toml_that_repeats_it():
    result = make_result(seed=None)
    text = describe(result, Path("runs/a.h5"))
    assert text.splitlines()[0] == "runs/a.h5"
    assert "mpi_library  MPICH Version 4.2" in text
    assert "without a seed" in text
    toml = text.split("\n\n")[-1]
    assert Experiment.make(tomllib.loads(toml)) == result.experiment
