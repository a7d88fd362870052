"""Labels of settings and values."""

import pytest
from helpers.summaries import cells_of, methods

from mu2mpi.analysis.tables import Dress, build_table
from mu2mpi.analysis.words import Words, read_labels
from mu2mpi.core.errors import InputError


def test_own_labels(tmp_path):
    (tmp_path / "labels.toml").write_text('method = "algorithm"\n[epsilon]\n1 = "strict"\n')
    words = Words(read_labels([str(tmp_path / "labels.toml"), "epsilon=4:loose"]))
    runs = [run for epsilon in (1.0, 4.0) for run in methods(epsilon=epsilon)]
    text = build_table(runs).render("text", Dress(words=words))
    assert cells_of(text, "algorithm") == [["algorithm", "strict", "loose"]]
    with pytest.raises(InputError):
        read_labels(["epsilom=4:loose"])
