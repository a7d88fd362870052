"""Result files are opened as often as needed, and no more."""

import h5py
import numpy as np
import pytest

from mu2mpi.core.errors import InputError
from mu2mpi.results import opening
from mu2mpi.results.reader import read_result
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


@pytest.mark.parametrize(("kind", "name"), [("method", "snowball-sgd"), ("mechanism", "last-iterate")])
def test_a_file_of_a_component_that_is_not_there_is_named_and_others_are_read(
    build_result, tmp_path, kind, name
):
    """As of a version that had it, or of an extension."""
    for file_name in ("a.h5", "b.h5"):
        write_result(build_result(), tmp_path / file_name)
    with h5py.File(tmp_path / "b.h5", "r+") as file:
        lines = file.attrs["experiment"].decode().splitlines()
        stated = [line for line in lines if line.split()[0] not in (kind, "estimator", "query", "batch")]
        file.attrs["experiment"] = "\n".join([*stated, f'{kind} = "{name}"'])
    with pytest.raises(InputError, match=rf"b\.h5: {kind} = '{name}' should be one of .* not installed here"):
        read_result(tmp_path / "b.h5")
    (run,), (warning,) = load_summaries([tmp_path])
    assert run.path == tmp_path / "a.h5"
    assert str(tmp_path / "b.h5") in warning
    assert name in warning
