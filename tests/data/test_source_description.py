"""Descriptions of data, and templates of schemas."""

import tomllib

import pytest
from helpers.schema_tables import FEATURES, FORMATS, SCHEMA, opened, table, written

from mu2mpi.cli import main
from mu2mpi.core.errors import InputError
from mu2mpi.data.source_description import schema_template

ROWS = 60


@pytest.mark.parametrize("name", FORMATS)
def test_a_template_has_the_columns_and_no_values(tmp_path, schema, capsys, name):
    path = written(tmp_path, name, table(ROWS))
    text = schema_template(str(path))
    assert {*tomllib.loads(text)["columns"]} == {*tomllib.loads(SCHEMA)["columns"]}
    schema.write_text(text)
    with pytest.raises(InputError) as caught:
        opened(path, schema)
    assert len(str(caught.value).splitlines()) == 1
    # One that is filled in by half names what is left.
    schema.write_text(text.replace('type = ""', 'type = "boolean"', 2))
    with pytest.raises(InputError, match="have no type yet") as other:
        opened(path, schema)
    assert len(str(other.value)) < len(str(caught.value))


def test_what_a_schema_makes_of_a_file(tmp_path, schema, capsys):
    path = str(written(tmp_path, "a.csv", table(ROWS)))
    assert main(["data", path, "--schema", str(schema)]) == 0
    said = capsys.readouterr().out
    assert f"features, of norm at most 2: {', '.join(FEATURES)}" in said
    assert "classes in the model's order: no, yes" in said
    assert "missing" not in said
    assert main(["data", path, "--schema", str(schema), "--data-is-public"]) == 0
    ages = table(ROWS).age
    counts = f"{ages.isna().sum()} values missing, {((ages < 18) | (ages > 90.5)).sum()} outside"
    assert counts in capsys.readouterr().out
