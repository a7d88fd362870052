"""Tests of the file of canary scores."""

import stat
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.results.canary_scores import CanaryScores, read_canary_scores, write_canary_scores
from mu2mpi.results.records import canary_scores_path


def run_of(canaries: int | None = 5, model_digest: bytes = b"ab") -> SimpleNamespace:
    experiment = Experiment(machines=2, rounds=3, canaries=canaries)
    return SimpleNamespace(experiment=experiment, model_digest=model_digest)


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Return the path of a result beside which scores were written."""
    included = np.arange(5) % 2 == 0
    write_canary_scores(CanaryScores(np.linspace(-3, 3, 5), included, 4.0), run_of(), tmp_path / "a.h5")
    return tmp_path / "a.h5"


def test_round_trip_and_mode(output: Path) -> None:
    path = canary_scores_path(output)
    assert path == output.with_name("a.canaries.h5")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    read = read_canary_scores(output, run_of())
    np.testing.assert_array_equal(read.score, np.linspace(-3, 3, 5))
    np.testing.assert_array_equal(read.included, np.array([1, 0, 1, 0, 1], bool))
    assert read.separation == 4.0


def test_file_that_others_can_read_is_refused(output: Path) -> None:
    canary_scores_path(output).chmod(0o644)
    with pytest.raises(InputError, match="0644"):
        read_canary_scores(output, run_of())


@pytest.mark.parametrize("other", [{"canaries": 6}, {"model_digest": b"other"}])
def test_scores_of_another_run_are_refused(output: Path, other) -> None:
    with pytest.raises(InputError, match=r"a\.canaries\.h5 is of another run than .*a\.h5"):
        read_canary_scores(output, run_of(**other))


def test_run_without_canaries_is_refused(output: Path) -> None:
    with pytest.raises(InputError, match="without canaries"):
        read_canary_scores(output, run_of(canaries=None))


@pytest.mark.parametrize("score", [np.zeros(4), np.zeros((5, 1)), np.full(5, np.nan)])
def test_impossible_scores_are_refused(output: Path, score) -> None:
    write_canary_scores(CanaryScores(score, np.zeros(5, bool), 4.0), run_of(), output)
    with pytest.raises(InputError, match="do not fit"):
        read_canary_scores(output, run_of())


def test_damaged_and_missing_files_are_refused(output: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_canary_scores(output.with_name("b.h5"), run_of())
    content = bytearray((path := canary_scores_path(output)).read_bytes())
    content[len(content) // 2 :] = b""
    path.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        read_canary_scores(output, run_of())
