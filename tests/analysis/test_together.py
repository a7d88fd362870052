"""Composition of runs on data of the same people, and repeats that count once."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mu2mpi.analysis.privacy_reports import check_privacy_claims, describe_composition
from mu2mpi.config.experiment import Experiment
from mu2mpi.execution.job import run
from mu2mpi.results.reader import read_result
from mu2mpi.results.writer import write_result

SMALL = {"machines": 2, "rounds": 10, "rho": 1.0}


def save(path, seed):
    draw = np.random.default_rng(seed)
    path.parent.mkdir(exist_ok=True)
    np.savez(path, X=draw.uniform(-1, 1, (100, 4)), y=draw.integers(0, 2, 100))
    return str(path)


@pytest.fixture
def release(tmp_path, monkeypatch):
    """Return what runs an experiment and returns what counts of it, each under a name of its own."""
    monkeypatch.chdir(tmp_path)
    names = iter("abcdef")

    def make(**settings):
        path = Path(f"{next(names)}.h5")
        return run(Experiment(**{**SMALL, **settings}), output=path)

    return make


def compose_rho(sentences):
    (sentence,) = sentences
    return float(sentence.partition("rho = ")[2].partition(";")[0])


def test_what_is_certainly_of_others_is_not_added(release, tmp_path):
    save(tmp_path / "p.npz", 1)
    made_up = {"data": "synthetic", "samples": 50, "features": 3}
    runs = [
        release(data="p.npz"),
        release(data="digits"),
        release(**made_up),
        release(**made_up, data_seed=1),
        release(data="population", features=3),
    ]
    assert describe_composition(runs) == []
    # The first samples are the same, however many there are.
    more = release(**{**made_up, "samples": 60})
    assert len(describe_composition([*runs, more])) == 1


def test_what_was_sent_once_counts_once(release):
    first = release(seed=1)
    again = [release(seed=1, delta=1e-6), release(seed=1, evaluations=2)]
    assert describe_composition([first, *again]) == []
    (sentence,) = describe_composition([first, *again, release(seed=2)])
    assert compose_rho([sentence]) == pytest.approx(math.sqrt(2), rel=1e-3)
    secret = release()
    assert describe_composition([secret, replace(secret, path=Path("copy.h5"))]) == []
    assert describe_composition([secret, release()]) != []


def test_delta_makes_other_noise_where_samples_are_drawn(release):
    drawn = {"method": "noisy-minibatch-sgd", "batch": 60, "seed": 1}
    runs = [release(**drawn), release(**drawn, delta=1e-6)]
    (sentence,) = describe_composition(runs)
    total = sum(run.privacy.epsilon_exact for run in runs)
    stated = float(sentence.partition("epsilon = ")[2].partition(" ")[0])
    assert 0 <= stated - total < 1e-3 * total
    assert "at delta = 1.1e-05" in sentence


def test_one_noise_for_two_versions_of_a_file_has_no_bound(release, tmp_path):
    save(tmp_path / "p.npz", 1)
    first = release(data="p.npz", seed=1)
    save(tmp_path / "p.npz", 2)
    changed = release(data="p.npz", seed=1)
    (sentence,) = describe_composition([first, changed])
    assert sentence.startswith("no guarantee holds")
    # Another name is in the key, and so is another seed.
    for other in ({"data": "./p.npz", "seed": 1}, {"data": "p.npz", "seed": 2}):
        assert compose_rho(describe_composition([first, release(**other)])) == pytest.approx(
            math.sqrt(2), rel=1e-3
        )


def test_a_run_without_noise_has_no_bound_with_others(release):
    silent = release(rho=math.inf, seed=1)
    assert describe_composition([silent, release(rho=math.inf, seed=2)]) == []
    (sentence,) = describe_composition([silent, release(seed=1)])
    assert sentence.startswith("no guarantee holds")


def test_runs_of_one_round_leave_nothing_to_compare(release):
    (sentence,) = describe_composition([release(rounds=1, seed=1), release(rounds=1, seed=1)])
    assert sentence.startswith("no guarantee holds")
    others = [release(rounds=1, seed=2), release(rounds=1, seed=3)]
    assert compose_rho(describe_composition(others)) == pytest.approx(math.sqrt(2), rel=1e-3)


def test_the_files_of_a_ledger(release, tmp_path):
    save(tmp_path / "p.npz", 1)
    for data in ("p.npz", "./p.npz"):
        release(data=data)
    write_result(replace(read_result(Path("a.h5")), diagnostics=None, timing={}), Path("public.h5"))
    text = " ".join(check_privacy_claims([Path("a.h5"), Path("b.h5"), Path("public.h5")])[0].split())
    assert "Composition: whoever sees what these 2 runs on p.npz and ./p.npz (in 3 files" in text
    assert "a.h5, b.h5: The guarantee does not cover /diagnostics" in text
