"""Result files are opened as often as needed, and no more."""

import numpy as np

from mu2mpi.results import opening
from mu2mpi.results.result_files import load_summaries
from mu2mpi.results.writer import write_result


def test_details_are_read_in_one_pass(build_result, tmp_path, monkeypatch):
    write_result(build_result(), tmp_path / "a.h5")
    opened, open_file = [], opening.open_for_reading

    def count(*of, **how):
        opened.append(of)
        return open_file(*of, **how)

    monkeypatch.setattr(opening, "open_for_reading", count)
    (run,), _ = load_summaries([tmp_path], prefetch=("contents", "history"))
    details = run.contents, run.history
    assert len(opened) == 1
    (lazy,), _ = load_summaries([tmp_path])
    assert str(lazy.contents) == str(details[0])
    np.testing.assert_equal(lazy.history.rows(), details[1].rows())
    assert len(opened) == 4  # the summary, and each detail at its first access
