"""File formats: one of the user's own in a single file, wherever a file may be given."""

import gzip
import json

import numpy as np
import pytest

from mu2mpi import Experiment, read_result
from mu2mpi.cli import main
from mu2mpi.core.errors import InputError
from mu2mpi.data.formats.format import is_data_file, open_data_file
from mu2mpi.execution.plan import open_source

ROWS = [
    {"age": 20 + 7 * k % 60, "sex": "fm"[k % 2], "machine": k % 3, "label": ["no", "yes"][k % 4 > 1]}
    for k in range(60)
]
SCHEMA = """
[columns.age]
type = "numeric"
low = 0
high = 100

[columns.sex]
type = "categorical"
categories = ["f", "m"]

[columns.machine]
type = "owner"

[columns.label]
type = "label"
classes = ["no", "yes"]
"""


@pytest.fixture
def rows(extension, tmp_path):
    """Register the format, and return a function that writes a file of it."""
    extension("jsonl")

    def written(name, content=ROWS):
        path = tmp_path / name
        text = "".join(json.dumps(row) + "\n" for row in content)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        return path

    return written


def everything(source):
    samples = source.read_training(np.arange(source.training_samples))
    return samples.features, samples.labels, source.training_owners()


def test_without_the_format_its_suffix_is_unknown(tmp_path):
    assert not is_data_file("a.jsonl")
    path = tmp_path / "a.jsonl"
    path.write_text("{}")
    with pytest.raises(InputError, match=r"has an unknown suffix.*\.csv"):
        open_data_file(path)


@pytest.mark.parametrize("name", ["a.jsonl", "A.JSONL", "a.jsonl.gz"])
def test_samples_are_those_of_a_csv_file(rows, tmp_path, name):
    path = rows(name)
    assert is_data_file(str(path))
    lines = [",".join(map(str, row.values())) for row in [dict.fromkeys(ROWS[0]), *ROWS]]
    lines[0] = ",".join(ROWS[0])
    (tmp_path / "a.csv").write_text("\n".join(lines))
    (tmp_path / "schema.toml").write_text(SCHEMA)
    for settings in ({"features": "age", "normalize": "unit"}, {"schema": str(tmp_path / "schema.toml")}):
        found, expected = (
            open_source(Experiment(data=str(file), **settings)) for file in (path, tmp_path / "a.csv")
        )
        for one, other in zip(everything(found), everything(expected), strict=True):
            np.testing.assert_array_equal(one, other)
        assert found.class_names == expected.class_names == ("no", "yes")
        assert found.feature_names == expected.feature_names


def test_it_is_run_with_budgets_and_a_trace_and_predicted(rows, tmp_path, capsys):
    path, model = rows("a.jsonl"), tmp_path / "a.h5"
    budgets = rows("budgets.jsonl", [{"machine": k, "rho": 2.0 + k} for k in range(3)])
    present = [{"round": t, "machine": k} for t in range(1, 11) for k in range(3) if (t + k) % 3]
    trace = rows("trace.jsonl", present)
    settings = ["--features", "age", "--normalize", "unit", "--rounds", "10", "--seed", "1"]
    unequal_machines = ["--budgets", str(budgets), "--participation", f"trace:{trace}"]
    assert main(["run", "--data", str(path), *settings, *unequal_machines, "-o", str(model)]) == 0
    result = read_result(model)
    assert result.experiment.machines == 3
    assert result.feature_names == ("age",)
    assert main(["init", str(path), "--output", str(tmp_path / "new")]) == 0
    assert "[columns.sex]" in (tmp_path / "new" / "a.toml").read_text()
    assert main(["predict", str(model), str(path), "-o", str(tmp_path / "out.csv")]) == 0


def test_what_is_damaged_repeats_nothing(rows):
    path = rows("a.jsonl", [{"age": "secret", "label": 1}, {"age": 2, "label": 0}])
    with pytest.raises(InputError, match="damaged or another kind of file") as caught:
        open_source(Experiment(data=str(path), normalize="unit"))
    assert "secret" not in str(caught.value)
