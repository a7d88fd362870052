"""The word that rank 0 leaves of how a command ended."""

import pytest

from mu2mpi.cluster.exit_report import VARIABLE, leave_word, place_for_word, read_word


def test_a_word_is_read_as_it_was_left_and_its_file_is_removed(tmp_path, monkeypatch):
    with place_for_word(tmp_path, "7", 0) as place:
        monkeypatch.setenv(VARIABLE, str(place))
        assert place.parent == tmp_path
        assert read_word(place) is None
        assert leave_word(75)
        assert read_word(place) == 75
    # A late rank of an earlier start leaves none.
    assert not leave_word(0)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("start", "remains"), [(0, True), (2, True), (3, False)])
def test_what_a_killed_start_of_the_same_job_left_is_removed(start, remains, tmp_path):
    left, of_another = (tmp_path / f".mu2mpi-launch-{job}-abc-2.word" for job in (7, 77))
    left.touch()
    of_another.touch()
    with place_for_word(tmp_path, "7", start) as place:
        assert (place.exists(), left.exists(), of_another.exists()) == (True, remains, True)
