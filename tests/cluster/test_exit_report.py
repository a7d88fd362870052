"""Exit report of rank 0."""

import pytest

from mu2mpi.cluster.exit_report import EXIT_REPORT_VARIABLE, exit_report_file, read_exit_code, write_exit_code


def test_exit_code_is_read_as_written_and_the_file_is_removed(tmp_path, monkeypatch):
    with exit_report_file(tmp_path, "7", 0) as path:
        monkeypatch.setenv(EXIT_REPORT_VARIABLE, str(path))
        assert path.parent == tmp_path
        assert read_exit_code(path) is None
        assert write_exit_code(75)
        assert read_exit_code(path) == 75
    # A rank that survives from an earlier start writes no report.
    assert not write_exit_code(0)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("start", "remains"), [(0, True), (2, True), (3, False)])
def test_exit_reports_of_earlier_starts_of_the_job_are_removed(start, remains, tmp_path):
    earlier, of_another_job = (tmp_path / f".mu2mpi-launch-{job}-abc-2.exit" for job in (7, 77))
    earlier.touch()
    of_another_job.touch()
    with exit_report_file(tmp_path, "7", start) as path:
        assert (path.exists(), earlier.exists(), of_another_job.exists()) == (True, remains, True)
