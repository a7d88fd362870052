"""Contents of result files: names of rows and columns, and paths of checkpoints."""

from dataclasses import replace
from pathlib import Path

from mu2mpi.results.records import History, checkpoint_path, previous_checkpoint_path


def test_rows_are_named_by_what_they_speak_for(build_result):
    result = build_result(classes=3)
    assert (result.label_kind, result.class_count, result.model_row_names) == (
        "classes",
        3,
        result.class_names,
    )
    assert replace(result, class_names=None).model_row_names == ("0", "1", "2")
    assert replace(build_result(classes=1), class_names=("no", "yes")).model_row_names == ("yes",)
    numbers = replace(build_result(classes=1), label_range=(0.0, 6000.0), class_names=None)
    assert (numbers.label_kind, numbers.class_count, numbers.model_row_names) == ("numbers", 2, ("label",))


def test_every_column_of_a_history_has_a_name_and_a_unit(result):
    for labels in ("classes", "numbers"):
        column_metadata = History.column_attributes(labels, "nat")
        assert set(column_metadata) <= set(History.column_names())
        assert all(public_facts["long_name"] for public_facts in column_metadata.values())
    assert len(result.history) == len(result.history.round)


def test_checkpoints_lie_beside_their_result():
    checkpoint = checkpoint_path(Path("runs/a.h5"))
    assert [path.parent for path in (checkpoint, previous_checkpoint_path(checkpoint))] == [Path("runs")] * 2
    assert len({"a.h5", checkpoint.name, previous_checkpoint_path(checkpoint).name}) == 3
