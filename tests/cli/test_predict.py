"""`mu2mpi predict` and `show --coefficients`: from a result and a file to lines."""

import csv
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.patients import FEATURES, learn, table, write

from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.results.coefficients import feature_matrix
from mu2mpi.results.reader import read_result


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("predict")
    learn(folder, output=folder / "classes.h5")
    learn(folder, "numbers", output=folder / "numbers.h5")
    columns = table(n=40, seed=5)
    write(folder / "new.csv", {name: columns[name] for name in FEATURES})
    return folder


def lines(text):
    return list(csv.reader(text.splitlines()))


def test_lines_are_predictions_and_scores_in_the_order_of_the_rows(folder, tmp_path, capsys):
    assert main(["predict", str(folder / "classes.h5"), str(folder / "new.csv")]) == 0
    header, *rows = lines(capsys.readouterr().out)
    assert header == ["prediction", "score:well", "score:ill"]
    result, columns = read_result(folder / "classes.h5"), table(n=40, seed=5)
    assert [row[0] for row in rows] == result.predict(columns).tolist()
    np.testing.assert_array_equal(np.array(rows)[:, 1:].astype(float), result.scores(columns))
    output = tmp_path / "scores.csv"
    words = ["predict", str(folder / "classes.h5"), str(folder / "new.csv"), "-o", str(output)]
    assert main(words) == 0
    assert lines(output.read_text()) == [header, *rows]
    output.write_text("mine")
    assert main(words) == 2
    assert output.read_text() == "mine"
    assert main([*words, "--overwrite"]) == 0
    assert lines(output.read_text()) == [header, *rows]


def test_numbers_have_no_scores(folder, capsys):
    assert main(["predict", str(folder / "numbers.h5"), str(folder / "new.csv")]) == 0
    header, *rows = lines(capsys.readouterr().out)
    assert header == ["prediction"]
    expected = read_result(folder / "numbers.h5").predict(folder / "new.csv")
    np.testing.assert_array_equal(np.array(rows)[:, 0].astype(float), expected)


def test_what_is_missing_or_no_number_ends_with_code_2(folder, tmp_path, capsys):
    columns = table(n=40, seed=5)
    short = write(tmp_path / "short.csv", {"age": columns["age"]})
    columns["dose"] = np.array(["secret", *["0"] * 39])
    bad = write(tmp_path / "bad.csv", columns)
    for data, words, told in (
        (tmp_path / "absent.csv", [], "absent.csv"),
        (short, [], "dose"),
        (bad, [], "dose"),
        (bad, ["--data-is-public"], "secret"),
    ):
        assert main(["predict", str(folder / "classes.h5"), str(data), *words]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert told in err
        assert ("secret" in err) == bool(words)


def test_coefficients_are_printed_with_their_names(folder, capsys):
    assert main(["show", "--coefficients", str(folder / "numbers.h5")]) == 0
    lines = capsys.readouterr().out.splitlines()
    found = read_result(folder / "numbers.h5").coefficients()
    for term, value in zip(found.terms, found.values[0], strict=True):
        [line] = [line for line in lines if line.startswith(f"{term}  ")]
        assert line.removeprefix(term).split() == [f"{value:.4g}"]


def test_a_file_with_nothing_but_a_label_is_refused(tmp_path):
    """Of a model whose features have no names."""
    path = tmp_path / "label.csv"
    path.write_text("label\n1\n0\n")
    model = SimpleNamespace(experiment=Experiment(data="digits"), feature_names=None, x=np.zeros((2, 4)))
    with pytest.raises(InputError, match=r"label\.csv has no features; the model needs 3"):
        feature_matrix(path, model)
