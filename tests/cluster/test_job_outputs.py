"""Whether a command that was started has got further, by its files, and the word that rank 0 leaves."""

import pytest

from mu2mpi import cli
from mu2mpi.cli.program import parse
from mu2mpi.cluster.launch import Outputs
from mu2mpi.results.schema import checkpoint_path


@pytest.fixture
def paths(tmp_path):
    return [tmp_path / "runs" / name for name in ("a.h5", "b.h5")]


def write(path, text="a result"):
    path.parent.mkdir(exist_ok=True)
    path.with_name("new").write_text(text)
    path.with_name("new").replace(path)


def test_nothing_has_moved_on_at_first_nor_with_files_of_others(paths, tmp_path):
    assert Outputs(paths).folder() == tmp_path
    write(checkpoint_path(paths[0]))
    outputs = Outputs(paths)
    assert outputs.folder() == tmp_path / "runs"
    write(paths[0].with_name("of another.h5"))
    checkpoint_path(paths[0]).unlink()
    assert not outputs.have_moved_on()
    assert not Outputs([]).are_complete()


@pytest.mark.parametrize("was_there", [False, True])
def test_another_checkpoint_is_progress(paths, was_there):
    if was_there:
        write(checkpoint_path(paths[1]))
    outputs = Outputs(paths)
    write(checkpoint_path(paths[1]))
    assert outputs.have_moved_on()
    assert not outputs.are_complete()


def test_all_is_done_with_every_result_and_no_checkpoint(paths):
    outputs = Outputs(paths)
    write(paths[0])
    assert not outputs.are_complete()
    write(checkpoint_path(paths[1]))
    write(paths[1])
    assert not outputs.are_complete()
    checkpoint_path(paths[1]).unlink()
    assert outputs.are_complete()


def test_what_is_to_be_replaced_is_no_result(paths):
    write(paths[0])
    outputs = Outputs(paths[:1], overwrite=True)
    assert not outputs.are_complete()
    write(paths[0])
    assert outputs.are_complete()


SWEEP = 'data = "digits"\nmachines = 2\nrounds = 3\nserver = ["untrusted", "trusted"]\nseed = 1\n'


@pytest.mark.parametrize(
    "words", ["run --rounds 3 --seed 1", "run -o x/a.h5 --rounds 3", "sweep s.toml --index 1"]
)
def test_commands_name_the_files_that_they_write(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.toml").write_text(SWEEP)
    arguments = parse(words.split())
    named = arguments.command.outputs(arguments, 1)
    assert cli.main(words.split()) == 0
    assert {*named} == {path.relative_to(tmp_path) for path in tmp_path.rglob("*.h5")}
