"""The file in which rank 0 leaves word."""

import pytest

from mu2mpi.cluster.word import VARIABLE, leave_word, place_for_word, read_word


def test_a_word_is_read_as_it_was_left_and_its_file_is_removed(tmp_path, monkeypatch):
    with place_for_word([tmp_path / "nowhere", tmp_path], "7", 0) as place:
        monkeypatch.setenv(VARIABLE, str(place))
        assert place.parent == tmp_path
        assert read_word(place) is None
        assert leave_word(75)
        assert read_word(place) == 75
    assert not [*tmp_path.iterdir()]


def test_a_late_rank_of_an_earlier_start_leaves_none(tmp_path, monkeypatch, capfd):
    with place_for_word([tmp_path], "7", 0) as place:
        monkeypatch.setenv(VARIABLE, str(place))
    assert not leave_word(0)
    assert f"cannot leave word of the end of this run in {place}" in capfd.readouterr().err
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(("start", "remains"), [(0, True), (2, True), (3, False)])
def test_what_a_killed_start_of_the_same_job_left_is_removed(start, remains, tmp_path):
    left = tmp_path / ".mu2mpi-launch-7-abc-2.word"
    of_another = tmp_path / ".mu2mpi-launch-77-abc-2.word"
    for path in (left, of_another):
        path.touch()
    with place_for_word([tmp_path], "7", start) as place:
        assert place.exists()
        assert left.exists() is remains
    assert of_another.exists()
