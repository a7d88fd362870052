"""Report of rank 0 to `mu2mpi launch`."""

import pytest

from mu2mpi.core.rank_report import (
    RANK_REPORT_VARIABLE,
    RankReport,
    rank_report_file,
    read_rank_report,
    write_exit_code,
    write_progress,
)


def test_a_report_is_read_as_written_and_the_file_is_removed(tmp_path, monkeypatch):
    with rank_report_file(tmp_path, "7", 0) as path:
        monkeypatch.setenv(RANK_REPORT_VARIABLE, str(path))
        assert path.parent == tmp_path
        assert read_rank_report(path) == RankReport()
        write_progress(20, 0.5, has_new_rounds=True)
        write_progress(30, 0.25)
        assert read_rank_report(path) == (None, 30, 0.25, True)
        assert write_exit_code(75)
        assert read_rank_report(path) == (75, 30, 0.25, True)
    # A rank that survives from an earlier start writes no report.
    assert not write_exit_code(0)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("start", "remains"), [(0, True), (2, True), (3, False)])
def test_reports_of_earlier_starts_of_the_job_are_removed(start, remains, tmp_path):
    earlier, of_another_job = (tmp_path / f".mu2mpi-launch-{job}-abc-2.report" for job in (7, 77))
    earlier.touch()
    of_another_job.touch()
    with rank_report_file(tmp_path, "7", start) as path:
        assert (path.exists(), earlier.exists(), of_another_job.exists()) == (True, remains, True)


def test_a_link_in_place_of_the_report_is_not_followed(tmp_path, monkeypatch, capsys):
    (tmp_path / "keys").write_text("secret")
    with rank_report_file(tmp_path, "7", 0) as path:
        monkeypatch.setenv(RANK_REPORT_VARIABLE, str(path))
        path.unlink()
        path.symlink_to(tmp_path / "keys")
        write_progress(20, 0.5)
        assert not write_exit_code(0)
    assert "cannot write the report" in capsys.readouterr().err
    assert (tmp_path / "keys").read_text() == "secret"
