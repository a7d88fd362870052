"""Malformed schemas and tables: a message, code 2, and nothing of what private data hold."""

import re

import h5py
import numpy as np
import pytest
from helpers.schema_tables import SCHEMA, fixed, table, written

from mu2mpi.cli import main
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.execution.plan import open_source

SECRET, NUMBER = "Quixotic", 7319.5137
"""What no message may hold: a text and a number that occur in private data alone."""

LABEL = '[columns.b]\ntype = "label"\nclasses = ["no", "yes"]\n'
AGE = '[columns.a]\ntype = "numeric"\nlow = 0\nhigh = 9\n'

SCHEMAS = {
    "not TOML": "age: numeric",
    "no columns": "test = 0.2",
    "another key": f"tests = 0.2\n{AGE}{LABEL}",
    "a column that is a text": 'columns.a = "numeric"',
    "no label": AGE,
    "two owners": AGE + LABEL + '[columns.c]\ntype = "owner"\n[columns.d]\ntype = "owner"\n',
    "no feature": LABEL + '[columns.a]\ntype = "ignored"\n',
    "a name that a terminal obeys": AGE.replace("columns.a", r'columns."a\u001B[2J"') + LABEL,
    **{f"test = {value}": f"test = {value}\n{AGE}{LABEL}" for value in ("1", "nan", "true", '"other"')},
    "no type": "[columns.a]\nlow = 0\nhigh = 1\n" + LABEL,
    "one too few": LABEL + '[columns.c]\ntype = "boolean"\n',
    "one too many": AGE + LABEL + '[columns.c]\ntype = "boolean"\n',
    **{
        column: f"[columns.a]\ntype = {column}\n{LABEL}"
        for column in (
            '"number"', "[]", '"numeric"\nlow = 0', '"numeric"\nlow = 1\nhigh = 1',
            '"numeric"\nlow = nan\nhigh = 1', '"numeric"\nlow = 0\nhigh = 1e101',
            '"ordinal"\ncategories = [1]', '"boolean"\ntrue = 1\nfalse = 1',
            '"categorical"\ncategories = []', '"categorical"\ncategories = ["1", 1]',
            r'"categorical"\ncategories = ["a\nb", "c"]'.replace(r'"\n', '"\n'),
        )
    },
    **{
        f"label {rest}": f'{AGE}[columns.b]\ntype = "label"\n{rest}'
        for rest in ("", "classes = [1]", "low = 1\nhigh = 0", "classes = [0, 1]\nlow = 0\nhigh = 1")
    },
}  # fmt: skip


def refused(capsys, *arguments):
    """Return what a command says that is to end with code 2."""
    code = main([*map(str, arguments)])
    said = capsys.readouterr()
    assert (code, said.out) == (2, "")
    assert said.err.startswith("mu2mpi: error: ")
    assert "Traceback" not in said.err
    assert said.err.replace("\n", "").isprintable()
    return said.err


def check_private(message):
    """Fail if a message tells of private values, or of a row."""
    assert SECRET.lower() not in message.lower()
    assert "7319" not in message
    assert "5137" not in message
    assert not re.search(r"\b(row|line|sample)s? \d", message)


@pytest.mark.parametrize("name", SCHEMAS)
def test_malformed_schemas_are_explained(name, tmp_path, capsys):
    path, schema = tmp_path / "a.csv", tmp_path / "s.toml"
    path.write_text("a,b\n" + f"{NUMBER},yes\n3,no\n" * 5)
    schema.write_text(SCHEMAS[name])
    message = refused(capsys, "data", path, "--schema", schema)
    assert str(NUMBER) not in message
    named = str(path) if name in ("one too few", "one too many") else str(schema)
    assert all(named in line for line in message.splitlines())
    assert len(message) < 1500


def damaged(column, value, row=33):
    """Return a table in which one value is replaced."""
    frame = table(60, flawed=False).astype({"age": object, "stage": object, "clinic": object})
    frame["note"] = SECRET
    frame.loc[row, column] = value
    return frame


def text_in(column, value):
    return lambda folder: written(folder, "a.csv", damaged(column, value))


def arrays(suffix, **changed):
    """Write columns, of which some are replaced by others."""

    def write(folder):
        array = fixed(table(60, flawed=False).assign(note=SECRET))
        columns = {name: array[name] for name in array.dtype.names} | changed
        if suffix == "npz":
            np.savez(folder / "a.npz", **columns)
        else:
            with h5py.File(folder / "a.h5", "w") as file:
                for name, values in columns.items():
                    file[name] = values
        return folder / f"a.{suffix}"

    return write


def raw(name, content):
    def write(folder):
        (folder / name).write_bytes(content)
        return folder / name

    return write


def cut(name, share):
    """Write the beginning of a file."""

    def write(folder):
        path = written(folder, name, table(60, flawed=False).assign(note=SECRET))
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])
        return path

    return write


HEAD = b"age,sex,stage,smoker,note,outcome,clinic\n"
LINE = b"20,f,1,yes,Quixotic,yes,3\n"
SECRETS = np.array([SECRET] * 60, "S9")
NUMBERS = np.full(60, NUMBER)

TABLES = {
    "a word as a number": text_in("age", SECRET),
    "an undeclared class": text_in("outcome", SECRET),
    "a missing class": text_in("outcome", ""),
    "an owner that says that it is missing": text_in("clinic", "None"),
    "a short line": raw("a.csv", HEAD + LINE * 40 + b"Quixotic,7319.5137\n" + LINE),
    "an open quote": raw("a.csv", HEAD + LINE * 40 + b'"Quixotic' + LINE),
    "no UTF-8": raw("a.csv", HEAD + LINE * 40 + b"Quixotic\xff7319.5137" + LINE),
    "a field of two megabytes": raw("a.csv", HEAD + LINE + b"Quixotic" * (1 << 18) + LINE),
    "names that occur twice": raw("a.csv", HEAD.replace(b"sex", b"age") + LINE * 9),
    "a column more": raw("a.csv", HEAD[:-1] + b",more\n" + LINE[:-1] + b",Quixotic\n"),
    "packed, and cut off": cut("packed.csv.gz", 0.6),
    "no archive": raw("a.npz", HEAD + LINE * 9),
    "no Parquet": raw("a.parquet", b"PAR1" + HEAD + LINE * 9 + b"PAR1"),
    "neither are these": raw("a.svm", b"1 1:Quixotic\n0 2:7319.5137\n"),
    **{
        f"{share:.0%} of {name}": cut(name, share)
        for share, name in ((0.6, "columns.npz"), (0.02, "a.parquet"), (0.6, "columns.h5"))
    },
}  # fmt: skip
TABLES |= {
    "words as numbers in npz": arrays("npz", age=SECRETS),
    "unknown classes in h5": arrays("h5", outcome=SECRETS),
    "owners that are no names in npz": arrays("npz", clinic=NUMBERS),
    "a column too short in h5": arrays("h5", age=NUMBERS[:59]),
    "a column of two axes in npz": arrays("npz", age=np.full((60, 2), NUMBER)),
}


@pytest.mark.parametrize("name", TABLES)
def test_malformed_tables_are_explained_without_their_values(name, tmp_path, capsys):
    schema = tmp_path / "s.toml"
    schema.write_text(SCHEMA)
    path = TABLES[name](tmp_path)
    message = refused(capsys, "data", path, "--schema", schema, "--test", "0.3")
    assert str(path) in message
    # The number of the folder may be anything.
    check_private(message.replace(str(path), ""))
    assert len(message) < 1000


@pytest.mark.parametrize("name", ["a word as a number", "an undeclared class", "a short line"])
def test_public_data_are_told_of(name, tmp_path, capsys):
    schema = tmp_path / "s.toml"
    schema.write_text(SCHEMA)
    command = "data", TABLES[name](tmp_path), "--schema", schema
    assert "--data-is-public" in refused(capsys, *command)
    assert re.search(r"row (35|42) ", refused(capsys, *command, "--data-is-public"))


PLAIN = {
    "a word as a feature": ("a.csv", f"a,label\n1,2\n{SECRET},3\n"),
    "a large feature": ("a.csv", f"a,label\n1,2\n1,2\n{NUMBER},3\n"),
    "a short line": ("a.csv", f"a,label\n1,2\n{NUMBER}\n"),
    "a label that is missing": ("a.csv", f"a,label\n1,{SECRET}\n1,NA\n0,x\n"),
    "one label": ("a.csv", f"a,label\n1,{SECRET}\n1,{SECRET}\n0,{SECRET}\n"),
    "labels that are no classes": ("a.csv", "a,label\n" + "".join(f"1,{NUMBER + k}\n" for k in range(1500))),
    "an owner that is missing": ("a.csv", f"a,label,machine\n1,2,{SECRET}\n1,3,?\n1,3,{SECRET}\n"),
    "a label of LIBSVM that is not whole": ("a.svm", f"{NUMBER} 1:1\n1 1:0\n"),
    "a large feature of LIBSVM": ("a.svm", f"0 1:{NUMBER}\n1 1:0\n1 1:1\n"),
}


@pytest.mark.parametrize("name", PLAIN)
def test_nothing_is_told_of_files_without_a_schema_either(name, tmp_path):
    file, content = PLAIN[name]
    (tmp_path / file).write_text(content, newline="")

    def message(**settings):
        with pytest.raises(InputError) as caught:
            assert open_source(Experiment(data=str(tmp_path / file), **settings)).digest
        assert caught.value.__cause__ is None
        return str(caught.value)

    check_private(message().replace(str(tmp_path), ""))
    assert message(data_is_public=True) != message()


def test_owners_with_groups_of_their_own_are_not_named(tmp_path):
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        for owner in ("a", SECRET):
            file[f"machine/{owner}/X"], file[f"machine/{owner}/y"] = np.zeros((4, 2)), np.array([0, 1, 0, 1])
    with pytest.raises(InputError, match="a dataset with the owner of each row") as caught:
        assert open_source(Experiment(data=str(path))).digest
    check_private(str(caught.value).replace(str(tmp_path), ""))
