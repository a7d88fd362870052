"""Result files are opened as often as needed, and no more."""

import numpy as np

from mu2mpi.results import opening
from mu2mpi.results.result_files import load_summaries
from mu2mpi.results.writer import write_result


def test_details_are_read_at_their_first_access_alone(build_result, tmp_path, monkeypatch):
    write_result(result := build_result(), tmp_path / "a.h5")
    opened, open_file = [], opening.open_for_reading

    def count(*of, **how):
        opened.append(of)
        return open_file(*of, **how)

    monkeypatch.setattr(opening, "open_for_reading", count)
    (run,), _ = load_summaries([tmp_path])
    for _ in range(2):
        np.testing.assert_equal(run.history.rows(), result.history.rows())
        assert run.contents.model_digest == result.model_digest
    assert len(opened) == 3
