"""Partitions as text, and one of the user's own in a single file."""

import numpy as np
import pytest

from mu2mpi import Experiment, run
from mu2mpi.core.errors import InputError
from mu2mpi.core.registry import known_names
from mu2mpi.data.partition import parse_partition
from mu2mpi.execution.plan import open_source, resolve_plan


@pytest.mark.parametrize("text", ["iid", "dirichlet:0.3", "dirichlet:.3", "dirichlet:1e-9", "labels:2"])
def test_a_text_is_kept_as_it_is_given(text):
    assert Experiment(partition=text).partition == text
    assert parse_partition(text).name == text.partition(":")[0]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("iid:2", "should be iid, without a value"),
        ("owner:", "should be owner, without a value"),
        ("dirichlet", "such as dirichlet:0.3"),
        ("dirichlet:0", "such as dirichlet:0.3"),
        ("dirichlet:-1", "such as dirichlet:0.3"),
        ("dirichlet:1e999", "such as dirichlet:0.3"),
        ("labels:0", "such as labels:2"),
        ("labels:1.5", "such as labels:2"),
        ("sort", "did you mean sorted"),
        ("", "contiguous, dirichlet:A, iid, labels:N, owner, sorted"),
    ],
)
def test_what_is_no_partition_is_answered_with_what_is(text, answer):
    with pytest.raises(InputError, match=f"partition = '{text}' .*{answer}"):
        Experiment(partition=text)


def test_a_partition_of_one_file_deals_samples(extension):
    extension("similarity")
    assert known_names("partitions")[-1] == "similarity"
    settings = {"machines": 10, "rounds": 40, "seed": 1}
    sizes = {}
    for text in ("similarity:0", "similarity:0.5", "similarity:1"):
        result = run(Experiment(partition=text, **settings))
        assert result.experiment.partition == text
        source = open_source(result.experiment)
        labels = source.training_labels()
        rows = parse_partition(text).rows(source, 10, 40, bytes(32), range(10))
        sizes[text] = np.mean([len(np.unique(labels[own])) for own in rows.T])
    assert sizes["similarity:0"] <= 3 < sizes["similarity:0.5"] <= sizes["similarity:1"]
    assert sizes["similarity:1"] > 9
    experiment = Experiment(partition="similarity:0.5", **settings)
    assert list(resolve_plan(experiment, open_source(experiment), 1).input_files) == ["the module similarity"]
    for text in ("similarity", "similarity:2", "similarity:nan"):
        with pytest.raises(InputError, match=r"such as similarity:0\.1"):
            Experiment(partition=text)
