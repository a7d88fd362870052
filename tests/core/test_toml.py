"""Messages about TOML files that cannot be read."""

import resource

import pytest

from mu2mpi.cli import main
from mu2mpi.core.errors import InputError
from mu2mpi.core.toml import MAX_TOML_DEPTH, parse_toml, read_toml
from mu2mpi.data.table_schema import parse_schema, read_schema


def test_unreadable_configurations(tmp_path):
    texts = {
        "bad": "rho = = 3",
        "long": f"rho = {5000 * '9'}",
        "deep": f"rho = {5000 * '['}",
        "binary": "\udcff",
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.toml").write_text(text, errors="surrogateescape")
    for name in ("absent", *texts):
        with pytest.raises(InputError, match=rf"{name}\.toml"):
            read_toml(tmp_path / f"{name}.toml")


QUOTED = ".'a'"
NESTED = {
    "dots": f"a{20_000 * '.a'} = 1",
    "dots and spaces": f"a{20_000 * ' . a'} = 1",
    "a header": f"[a{20_000 * '.a'}]",
    "a quoted header": f"[a{20_000 * QUOTED}]",
    "lists": f"a = {20_000 * '['}",
    "closed lists": f"a = {40 * '['}{40 * ']'}",
    "tables": 5_000 * "a={",
    "dots in tables": 60 * f"{20 * 'a.'}a = {{" + 60 * "}",
    "a header and dots": f"[a{20 * '.a'}]\na{20 * '.a'} = 1",
}


@pytest.mark.parametrize("kind", NESTED)
def test_deep_nesting_is_refused_before_it_takes_memory(tmp_path, kind):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    (tmp_path / "a.toml").write_text(NESTED[kind])
    for read in (read_toml, read_schema):
        with pytest.raises(InputError, match=r"a\.toml is nested too deeply\."):
            read(tmp_path / "a.toml")
    with pytest.raises(InputError, match="the schema is nested too deeply"):
        parse_schema(NESTED[kind])
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000, "kibibytes"


def test_dots_that_nest_nothing():
    """Values, paths and comments may have many."""
    comment = f"# {80 * '.'} {80 * 'a. '}"
    text = f"{comment}\na = '{'../' * 40}b'\nc = [{'0.5, ' * 200}]\n{'.'.join('d' * MAX_TOML_DEPTH)} = 1"
    assert parse_toml(text, "it")["c"] == [0.5] * 200
    with pytest.raises(InputError, match="it is nested"):
        parse_toml(f"{text}\n{'.'.join('e' * (MAX_TOML_DEPTH + 1))} = 1", "it")


@pytest.mark.parametrize("command", ["run --config", "sweep", "run --data a.csv --schema", "job"])
def test_every_command_refuses_it(tmp_path, monkeypatch, capsys, command):
    (tmp_path / "deep.toml").write_text(NESTED["dots"])
    (tmp_path / "a.csv").write_text("a,label\n1,0\n0,1\n")
    monkeypatch.chdir(tmp_path)
    assert main([*command.split(), "deep.toml"]) == 2
    assert "mu2mpi: error: deep.toml is nested too deeply." in capsys.readouterr().err
