"""Tables as spreadsheets write them: separators, decimal commas, accents, and columns without a name."""

import gzip
from types import SimpleNamespace
from unicodedata import normalize

import h5py
import numpy as np
import pandas as pd
import pytest

from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.data.formats.format import open_data_file
from mu2mpi.data.memory import MemoryData
from mu2mpi.data.table_schema import EncodedTable, InvalidValues, validate_schema
from mu2mpi.execution.plan import open_source
from mu2mpi.results.coefficients import encode_features, feature_matrix

HEADER = "größe,b,label\n"
ROWS = "".join(f"0.{k % 9 + 1},0.{k % 7 + 1},{'jä' if k % 2 else 'nein'}\n" for k in range(40))
TEXT = HEADER + ROWS
SEMICOLONS = TEXT.replace(",", ";")
DECIMAL_COMMAS = SEMICOLONS.replace(".", ",")
SCHEMA = {
    "columns": {
        "größe": {"type": "numeric", "low": 0, "high": 1},
        "b": {"type": "numeric", "low": 0, "high": 1},
        "label": {"type": "label", "classes": ["nein", "jä"]},
    }
}


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def everything(path, **settings):
    source = open_source(Experiment(data=str(path), **settings))
    assert source.digest
    samples = source.read_training(np.arange(source.training_samples))
    return source.feature_names, source.class_names, samples.features.tolist(), samples.labels.tolist()


def message(path, **settings):
    with pytest.raises(InputError) as caught:
        everything(path, **settings)
    text = str(caught.value)
    assert text.startswith(str(path)) or f"cannot read {path}" in text
    return text.removeprefix(str(path))


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("sep.csv", "sep=;\r\n" + SEMICOLONS.replace("\n", "\r\n")),
        ("quoted.csv", '\n"sep=;"\n' + SEMICOLONS),
        ("bars.csv", "SEP=|\n" + TEXT.replace(",", "|")),
        ("a.tsv", TEXT.replace(",", "\t")),
        ("a.TSV.gz", gzip.compress(TEXT.replace(",", "\t").encode())),
        ("bom.csv", TEXT.encode("utf-8-sig")),
        ("decomposed.csv", normalize("NFD", TEXT)),
        ("a.tsv.csv", TEXT),
        ("tie.csv", SEMICOLONS.replace("b;", '"b";')),
    ],
)
def test_the_same_table_however_it_is_written(tmp_path, name, content):
    want = everything(written(tmp_path, "plain.csv", TEXT))
    assert everything(written(tmp_path, name, content)) == want
    assert want[0] == ("größe", "b")


def test_a_table_of_tabs_may_have_commas_in_its_header(tmp_path):
    path = written(tmp_path, "a.tsv", "a, b, c\tlabel\n1\t0\n0\t1\n1\t1\n")
    assert everything(path)[0] == ("a, b, c",)
    assert everything(written(tmp_path, "a.csv", 'a,"b;c;d;e",label\n1,1,0\n0,1,1\n0,0,0\n'))[0] == (
        "a",
        "b;c;d;e",
    )


COLUMNS = {
    "a separator at the end": (TEXT.replace("\n", ",\n"), "column 4 has no name.", "separator at the end"),
    "an index": (
        "".join(f"{k},{line}\n" for k, line in enumerate(TEXT.splitlines()))[1:],
        "column 1 has no name.",
    ),
    "in the rows alone": (HEADER + ROWS.replace("\n", ",\n"), "4 values, and the first 3", "separator"),
    "in the header alone": (TEXT.replace("label", "label,"), "column 4 has no name."),
    "twice": (TEXT.replace("b,", "größe,"), "columns 1 and 2 have the same name, of größe, größe, label."),
    "in two forms": (
        TEXT.replace("b,", normalize("NFD", "größe,")),
        "columns 1 and 2 have the same name, of größe, größe, label.",
    ),
    "without names": (TEXT.replace("größe,b", ","), "columns 1 and 2 have no name, of "),
    "a label alone": ("label\n" + "0\n1\n" * 20, "has no features"),
    "a label and an owner": ("label,machine\n" + "0,1\n1,2\n" * 20, "has no features"),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_that_cannot_be_used_are_named_by_number(tmp_path, name):
    content, *words = COLUMNS[name]
    text = message(written(tmp_path, "a.csv", content))
    assert all(word in text for word in words), text
    assert "empty" not in text


def test_a_column_without_a_name_may_be_left_out(tmp_path):
    path = written(tmp_path, "a.csv", TEXT.replace("\n", ",\n"))
    assert everything(path, features="größe") == everything(
        written(tmp_path, "b.csv", TEXT), features="größe"
    )
    with pytest.raises(InputError, match=r"has the columns 4 \(without a name\), which the schema does not"):
        validate_schema(SCHEMA, "s").check_column_names(path, open_data_file(path).column_names)


@pytest.mark.parametrize("cell", ["7.5", "77%", "1.234.567", "77,25"])
def test_a_first_row_without_a_header_is_not_listed(tmp_path, cell):
    text = message(written(tmp_path, "a.csv", f"{cell};SECRET;x\n" + "0;ANOTHER;y\n" * 20))
    assert "3 names that may be values of a row" in text
    assert "SECRET" not in text


def test_packed_text_must_fit_into_memory(tmp_path, monkeypatch):
    path = written(tmp_path, "a.csv.gz", gzip.compress(TEXT.encode() + b" " * 2**20))
    asked = []
    monkeypatch.setattr("mu2mpi.data.formats.format.check_fits_in_memory", lambda _, size: asked.append(size))
    open_data_file(path)
    assert asked == [len(TEXT.encode()) + 2**20]


NUMBERS = {
    "a decimal comma": (["0,5", "0,25", "-1,5", ",5", "1,0e-3"], 'decimal = ","'),
    "a decimal comma ": (["1,250", "12,125"], "unless it marks thousands"),
    "thousands marks": (["1,250,000", "1,250"], "remove the marks"),
    "thousands marks ": (["1 250", "12\u00a0250"], "remove the marks"),
    "thousands marks  ": (["1.250.000", "1.250,5"], "remove the marks"),
    "a percent sign": (["5%", "12.5 %"], "remove the signs"),
    "a value that is not a number": (["5 EUR", "5%"], "correct it"),
}


@pytest.mark.parametrize("kind", NUMBERS)
def test_the_notation_of_numbers_is_said_and_not_their_values(tmp_path, kind):
    texts, fix = NUMBERS[kind]
    rows = "".join(f"{texts[k % len(texts)]};{k % 2}\n" for k in range(20))
    path = written(tmp_path, "a.csv", "a;label\n" + rows)
    text = message(path, normalize="unit")
    assert f"column a has {'a number with ' * ('value' not in kind)}{kind.strip()};" in text
    assert fix in text
    assert not any(value in text for value in texts)
    assert f"'{texts[0]}'" in message(path, data_is_public=True)


def with_schema(folder, **changes):
    import tomli_w

    path = folder / "schema.toml"
    path.write_text(tomli_w.dumps(changes | SCHEMA))
    return str(path)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_decimal_commas_that_a_schema_declares(tmp_path, separator):
    path = written(tmp_path, "a.csv", DECIMAL_COMMAS.replace(";", separator))
    want = everything(written(tmp_path, "b.csv", TEXT), schema=with_schema(tmp_path))
    assert "decimal comma" in message(path, schema=with_schema(tmp_path))
    schema = with_schema(tmp_path, decimal=",")
    assert everything(path, schema=schema) == want
    for value, fault in (("0.5", "a decimal point"), ("0.500", "a decimal point"), ("1.000,5", "thousands")):
        bad = path.read_text().replace("\n0,1", f"\n{value}", 1)
        assert fault in message(written(tmp_path, "c.csv", bad), schema=schema)
    points = written(tmp_path, "c.csv", TEXT.replace(",", separator))
    assert "a decimal point" in message(points, schema=schema)
    for value in ("", ".", "NA"):
        missing = path.read_text().replace("\n0,1", f"\n{value}", 1)
        everything(written(tmp_path, "c.csv", missing), schema=schema)


def test_decimal_commas_of_whole_numbers_and_without_a_header(tmp_path):
    rows = "".join(f"0,{k % 9};{k % 3},0;{k % 2}\n" for k in range(30))
    path = written(tmp_path, "a.csv", rows)
    file = open_data_file(path)
    assert (file.has_header, file.column_names) == (False, ["0", "1", "2"])
    columns = {
        "0": {"type": "numeric", "low": 0, "high": 1},
        "1": {"type": "categorical", "categories": [0, 1, 2]},
    }
    declared = {"decimal": ",", "columns": columns | {"2": {"type": "label", "classes": [0, 1]}}}
    schema = validate_schema(declared, "s")
    invalid = InvalidValues()
    features = EncodedTable(file, schema, invalid, schema.value_types).features(np.arange(30))
    assert not any(map(np.any, invalid.values()))
    np.testing.assert_allclose(features[:, 0], [2 * (k % 9) / 10 - 1 for k in range(30)], atol=1e-6)
    np.testing.assert_array_equal(features[:, 1:].argmax(axis=1), np.arange(30) % 3)


def test_predictions_read_decimal_commas_too(tmp_path):
    plain, commas = written(tmp_path, "a.csv", TEXT), written(tmp_path, "b.csv", DECIMAL_COMMAS)
    schemas = [validate_schema({**SCHEMA, **changed}, "s") for changed in ({}, {"decimal": ","})]
    want, found = map(encode_features, schemas, (plain, commas))
    np.testing.assert_array_equal(found, want)
    frame = pd.read_csv(commas, sep=";")
    np.testing.assert_array_equal(encode_features(schemas[1], frame), want)


def decomposed(text):
    return normalize("NFD", text)


@pytest.mark.parametrize("name", ["a.csv", "a.npz", "a.h5", "a.parquet"])
@pytest.mark.parametrize("typed", [str, decomposed])
def test_names_are_the_same_in_both_forms_of_unicode(tmp_path, name, typed):
    names, classes = [decomposed(n) for n in ("größe", "zähl", "jé")], [decomposed("jä"), "nein"]
    values = [np.arange(12) % 3 / 4, np.arange(12) % 2 / 2, np.array([classes[k % 2] for k in range(12)])]
    frame, path = pd.DataFrame(dict(zip(names, values, strict=True))), tmp_path / name
    if name == "a.csv":
        frame.to_csv(path, index=False)
    elif name == "a.parquet":
        frame.to_parquet(path)
    elif name.endswith("npz"):
        np.savez(path, **dict(zip(names, values, strict=True)))
    else:
        with h5py.File(path, "w") as file:
            for n, v in zip(names, values, strict=True):
                file.create_dataset(n, data=[*v.tolist()])
    columns = {typed(n): {"type": "numeric", "low": 0, "high": 1} for n in ("größe", "zähl")}
    columns[typed("jé")] = {"type": "label", "classes": ["nein", typed("jä")]}
    schema = validate_schema({"columns": columns}, "s")
    file = open_data_file(path)
    schema.check_column_names(path, file.column_names)
    table = EncodedTable(file, schema, InvalidValues(), schema.value_types)
    assert table.feature_names == ("größe", "zähl")
    np.testing.assert_allclose(table.features(np.arange(12)), np.column_stack(values[:2]) * 2 - 1)
    labels = schema.label[1].encode_labels(table.column("label", np.arange(12)), InvalidValues())
    np.testing.assert_array_equal(labels, 1 - np.arange(12) % 2)
    if name == "a.csv":
        found = everything(path, labels=typed("jé"), features=typed("größe"))
        assert found[:2] == (("größe",), ("jä", "nein"))
        memory = MemoryData._from_arguments(frame, typed("jé"), None, None)
        assert memory.settings["labels"] == typed("jé")
        assert memory.files["training"].table(None, "jé").feature_names == ("größe", "zähl")


def test_predictions_find_the_names_of_features_in_either_form(tmp_path):
    path = written(tmp_path, "a.csv", decomposed(TEXT))
    for names in (("größe", "b"), (decomposed("größe"), "b")):
        model = {"experiment": Experiment(data="a.csv"), "feature_names": names, "feature_scale": 1.0}
        features = feature_matrix(path, SimpleNamespace(**model, x=np.zeros((2, 3))))
        assert features[:2].tolist() == [[0.1, 0.1], [0.2, 0.2]]


SPARSE = {
    "several labels": "1,2 2:0.5\n",
    "the same feature twice": "1 2:0.5 2:0.25\n",
    "features in another order": "1 2:0.5 1:0.25\n",
    "a feature number above 64 bits": "1 2:0.5 99999999999999999999:0.25\n",
    "a feature number above 10000000": "1 3000000000:0.25\n",
    "a label with a fraction": "1.5 2:0.5\n",
}


@pytest.mark.parametrize("fault", SPARSE)
@pytest.mark.parametrize("suffix", ["svm", "svm.gz"])
def test_what_is_wrong_with_a_sparse_file(tmp_path, fault, suffix):
    content = ("0 1:0.125\n" * 6 + SPARSE[fault] + "1 2:0.5 # several, labels\n").encode()
    path = written(tmp_path, f"a.{suffix}", gzip.compress(content) if suffix.endswith("gz") else content)
    text, known = message(path), {"a feature": "numbered 1 to 10000000", "a label": "--label-range"}
    rule = "each line needs one label, and features in the order of their numbers"
    print(fault, text, message(path, data_is_public=True))
    assert rule in text or any(fault.startswith(start) and words in text for start, words in known.items())
    assert "7" not in text
    assert "0.25" not in text


def test_fractions_are_not_silently_classes(tmp_path):
    rows = [f"0.{k % 9},{k / 7}" for k in range(50)]
    path = written(tmp_path, "a.csv", "a,label\n" + "\n".join(rows * 4))
    assert "too many different labels with fractions for classes; give numbers a --label-range" in message(
        path
    )
    assert "50 different labels with fractions" in message(path, data_is_public=True)
    assert everything(path, loss="squared", label_range="0:7.5")[1] is None
    for few in ([f"0.{k % 9},{k % 9 / 2}" for k in range(50)], [f"0.{k % 9},{k % 30}" for k in range(90)]):
        assert len(everything(written(tmp_path, "b.csv", "a,label\n" + "\n".join(few)))[1]) in (9, 30)


@pytest.mark.parametrize("first", ["7319.5,Quixotic,7319.5,no", "7319.5,Quixotic,0,no"])
def test_a_first_row_that_is_no_header_is_not_repeated(tmp_path, first):
    path = written(tmp_path, "a.csv", f"{first}\n" + "1,x,2,yes\n" * 9)
    for settings in ({}, {"labels": "outcome"}, {"schema": with_schema(tmp_path)}):
        text = message(path, **settings)
        assert "7319" not in text
        assert "Quixotic" not in text
    assert "0, 1, 2" in message(written(tmp_path, "b.csv", "1,2,0\n" * 9), labels="outcome")
