"""Tests of the file of canary scores."""

import stat
from pathlib import Path

import numpy as np
import pytest

from mu2mpi.core.errors import InputError
from mu2mpi.results.canary_scores import CanaryScores, read_canary_scores, write_canary_scores
from mu2mpi.results.records import canary_scores_path


def scores(m: int = 5) -> CanaryScores:
    included = np.arange(m) % 2 == 0
    return CanaryScores(np.linspace(-3, 3, m), included, 2.0, 4.0, "replace", "ab" * 32)


def test_round_trip_and_mode(tmp_path: Path) -> None:
    written, path = scores(), canary_scores_path(tmp_path / "a.h5")
    write_canary_scores(written, tmp_path / "a.h5")
    assert path == tmp_path / "a.canaries.h5"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    read = read_canary_scores(path)
    np.testing.assert_array_equal(read.score, written.score)
    np.testing.assert_array_equal(read.included, written.included)
    names = ("sigma_score", "separation", "relation", "run_digest")
    assert [getattr(read, name) for name in names] == [getattr(written, name) for name in names]


def test_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    write_canary_scores(scores(), tmp_path / "a.h5")
    (path := canary_scores_path(tmp_path / "a.h5")).chmod(0o644)
    with pytest.raises(InputError, match="0644"):
        read_canary_scores(path)


def test_damaged_and_missing_files_are_refused(tmp_path: Path) -> None:
    path = canary_scores_path(tmp_path / "a.h5")
    with pytest.raises(InputError, match="No such file"):
        read_canary_scores(path)
    write_canary_scores(scores(), tmp_path / "a.h5")
    content = bytearray(path.read_bytes())
    content[len(content) // 2 :] = b""
    path.write_bytes(content)
    with pytest.raises(InputError, match="damaged"):
        read_canary_scores(path)
