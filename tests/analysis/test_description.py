import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mu2mpi.analysis.description import describe_privacy, describe_result, privacy_summary
from mu2mpi.config.experiment import Experiment
from mu2mpi.privacy.mechanisms.gaussian_mechanism import GaussianMechanism
from mu2mpi.privacy.statement import PrivacyStatement
from mu2mpi.results.records import Diagnostics, History, Theory, checkpoint_path
from mu2mpi.results.result import Result

STATEMENT = PrivacyStatement(
    mechanism=GaussianMechanism(
        **{"rho": 4.0, "clip_norm": 11.5, "sigma": 1000.0, "grid_spacing": 2.0**-20, "rounds": 30},
        **{"machines": 2, "parameters": 7850, "samples": 30, "batch_size": 1.0, "affected_sums": 30},
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
            *(k, 2.3 - 0.001 * k, 0.5 + 0.005 * k, k * np.nan, 100 * k, 2 * k),
            *(4 * k, 0.1 * k, 0.5 * k, 1e3 + k, 1 / k),
        ),
        privacy=replace(STATEMENT, noise_recomputable=seed is not None),
        theory=Theory(0.3, 2.25, 1e-7, 0.02, 1.1, 0.9),
        diagnostics=Diagnostics(16.75, 0.125),
        timing={"compute": np.array([1.0, 3.0]), "noise": np.array([2.0, 0.5])},
        environment={"hosts": "node1 (2)", "mpi_library": "MPICH\nVersion 4.2"},
    )


def plain(text):
    return " ".join(text.split())


def paragraph(text, title):
    """Return the lines below a title, without their indent."""
    part = next(p for p in text.split("\n\n") if p.splitlines()[0] == title)
    return [line.strip() for line in part.splitlines()[1:]]


def test_final_numbers_and_settings():
    lines = paragraph(describe_result(make_result(), Path("runs/a.h5")), "Experiment")
    pairs = dict(line.split("  ", 1) for line in lines)
    found = [pairs[name].strip() for name in ("machines", "rho", "final test loss", "final test accuracy")]
    assert found == ["2", "4", "2.2700 nats", "65.0%"]


@pytest.mark.parametrize(
    ("change", "warned"),
    [
        ({"epsilon_exact": 2.0}, None),
        ({"epsilon_exact": 9.99, "noise_recomputable": True}, "seed"),
        ({"epsilon_exact": 9.99, "noise": "aggregate"}, "noise = aggregate"),
        ({}, "beyond 10"),
    ],
)
def test_what_is_less_than_it_looks_is_a_warning_in_full_and_in_brief(change, warned):
    statement = replace(STATEMENT, **change)
    for text in (plain(describe_privacy(statement).partition("WARNING")[2]), privacy_summary(statement)):
        assert warned in text if warned else "but" not in text
    # Claims are rounded to the private side.
    assert "epsilon = 27.2 by the paper's lemma" in plain(describe_privacy(statement))


def test_no_noise_no_guarantee():
    infinite = {"epsilon": math.inf, "epsilon_exact": math.inf}
    none = replace(STATEMENT, mechanism=SILENT, noise_recomputable=True, **infinite)
    assert "epsilon" not in describe_privacy(none)
    assert privacy_summary(none).startswith("privacy: none")


@pytest.mark.parametrize(
    ("theory", "said"),
    [
        (Theory(0.3, 2.25, 1e-7, 0.02, 1.1, 0.9), "0.02 0.3 Measured"),
        (Theory(math.nan, 2.25, 0.01, 0.02, 1.1, 0.9), "or up to 0.01 less"),
        (Theory(0.3, *[math.nan] * 5), "too large"),
    ],
)
def test_theory_stands_beside_what_was_measured(theory, said):
    shown = describe_result(replace(make_result(), theory=theory), Path("a.h5"))
    assert said in plain(" ".join(paragraph(shown, "Theory")))


def test_a_checkpoint_that_a_kill_left_beside_a_result_is_named(tmp_path):
    output = tmp_path / "a.h5"
    assert ".checkpoint" not in describe_result(make_result(), output)
    checkpoint_path(output).touch()
    assert "a.h5.checkpoint is still there" in " ".join(describe_result(make_result(), output).split())
    assert ".checkpoint" not in describe_result(make_result(seed=1), output)


def test_phases_without_times_are_left_out():
    result = make_result()
    text = describe_result(replace(result, timing={**result.timing, "wait": np.array([])}), Path("a.h5"))
    assert [line.split()[0] for line in paragraph(text, "Time in seconds")[2:]] == ["compute", "noise", "all"]
    none = describe_result(replace(result, timing={"wait": np.array([])}), Path("a.h5"))
    assert "Time in seconds" not in none


def test_diagnostics_are_shown_on_request_alone():
    quiet, asked = (describe_result(make_result(), Path("a.h5"), on_request) for on_request in (False, True))
    for number in ("16.75", "12.500%"):
        assert number in asked
        assert number not in quiet
    bare = replace(make_result(), diagnostics=None, theory=None, timing={})
    for section in ("Diagnostics", "Theory", "Time in seconds"):
        assert section not in describe_result(bare, Path("a.h5"))
