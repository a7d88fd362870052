"""A run goes on only with the data with which it began, and finds bad samples before anything is sent."""

import os
import re
import shutil
import signal

import h5py
import numpy as np
import pytest
from helpers.launch import mpirun

from mu2mpi import Experiment, run
from mu2mpi.cli import main
from mu2mpi.config.sweep import Sweep
from mu2mpi.core.errors import InputError, Interrupted
from mu2mpi.core.toml import read_toml
from mu2mpi.data import source as sources
from mu2mpi.data.sources.user_file import HoldoutSplit
from mu2mpi.federation.machine import Machines
from mu2mpi.results.callbacks import Callback
from mu2mpi.results.checkpoint import read_checkpoint
from mu2mpi.results.records import checkpoint_path

ROWS, FEATURES, MACHINES = 300, 3, 3
random = np.random.default_rng(0)
# Numbers that 32 bits hold exactly, so that a file may differ in its type alone.
X = random.integers(-64, 65, (ROWS, FEATURES)) / 64
Y = random.integers(0, 2, ROWS)
OWNERS = np.arange(ROWS) % MACHINES
SPLIT = HoldoutSplit(ROWS, 0.2, 0)
ROW, OTHER_ROW = SPLIT.training_rows(np.array([7, 90]))
(TEST_ROW,) = SPLIT.test_rows(np.array([7]))
SETTINGS = {"machines": MACHINES, "rounds": 60, "rho": 1.0, "partition": "iid"}
ARGUMENTS = ["--machines", "3", "--rounds", "60", "--rho", "1", "--partition", "iid"]


def write(path, features=X, labels=Y, owners=OWNERS):
    if path.suffix == ".npz":
        np.savez(path, features=features, labels=labels, machine=owners)
        return
    with h5py.File(path, "w") as file:
        file["features"], file["labels"], file["machine"] = features, labels, owners


def rewritten(array, row, value):
    changed = array.copy()
    changed[row] = value
    return changed


class Stops(Callback):
    """Ends a run, by an error or by a signal, once it has passed some round."""

    def __init__(self, after, sign=None):
        self.after, self.sign = after, sign

    def on_evaluation(self, evaluation):
        t = evaluation.round
        if t > self.after and self.sign is None:
            raise ZeroDivisionError
        if t > self.after:
            os.kill(os.getpid(), self.sign)


@pytest.fixture
def sent(monkeypatch):
    """Return a list that fills with every message that leaves a machine."""
    messages, noised = [], Machines.noised_message

    def recorded(self, t):
        message = noised(self, t)
        messages.append((t, message.tobytes()))
        return message

    monkeypatch.setattr(Machines, "noised_message", recorded)
    # Of rounds in one call, Python sees no message; they have the same bits (test_round_loop.py).
    monkeypatch.setattr("mu2mpi.execution.simulation.make_round_loop", lambda *_: None)
    return messages


@pytest.fixture
def in_parts(monkeypatch):
    """Let ranks read some rows at a time, as they do of a large file."""
    for name in ("MAX_IN_MEMORY_SAMPLE_BYTES", "SAMPLE_CHUNK_BYTES"):
        monkeypatch.setattr(f"mu2mpi.data.source.{name}", 20 * MACHINES * 50)


def broken_off(path, output, after=20, sign=None, **settings):
    experiment = Experiment(data=str(path), **{**SETTINGS, **settings})
    with pytest.raises(Interrupted if sign else InputError, match="" if sign else "ZeroDivisionError"):
        run(experiment, output=output, callbacks=[Stops(after, sign)], checkpoint_every=1e9)
    assert checkpoint_path(output).exists()
    return experiment


def refused(path, output, capsys, *arguments):
    """Repeat the command, and return what it says."""
    before = checkpoint_path(output).read_bytes()
    assert main(["run", "--data", str(path), *ARGUMENTS, *arguments, "-o", str(output)]) == 2
    assert checkpoint_path(output).read_bytes() == before
    assert not output.exists()
    return capsys.readouterr().err


@pytest.mark.parametrize("what", ["training", "test"])
@pytest.mark.parametrize("with_output", [True, False])
def test_a_bad_sample_is_found_before_anything_is_sent(with_output, what, tmp_path, sent, in_parts):
    path, output = tmp_path / "a.h5", tmp_path / "result.h5"
    last = SPLIT.training_rows(np.array([2 * 80 + 59]))[0] if what == "training" else TEST_ROW
    write(path, rewritten(X, (last, 1), np.nan))
    # So that the last machine comes to the training sample in the last round.
    experiment = Experiment(data=str(path), **{**SETTINGS, "partition": "contiguous"})
    with pytest.raises(InputError, match="feature 1"):
        run(experiment, output=output if with_output else None)
    assert sent == []
    assert list(tmp_path.iterdir()) == [path]
    write(path, *(np.delete(a, last, axis=0) for a in (X, Y, OWNERS)))
    run(experiment, output=output if with_output else None)
    assert len(sent) == 60


def row_removed(x, y, owners):
    return np.delete(x, ROW, axis=0), np.delete(y, ROW), np.delete(owners, ROW)


def label_corrected(x, y, owners):
    return x, rewritten(y, ROW, 1 - y[ROW]), owners


def bit_flipped(x, y, owners):
    return rewritten(x, (ROW, 1), np.nextafter(x[ROW, 1], 1)), y, owners


def type_changed(x, y, owners):
    return x.astype(np.float32), y, owners


def rows_swapped(x, y, owners):
    return tuple(rewritten(a, [ROW, OTHER_ROW], a[[OTHER_ROW, ROW]]) for a in (x, y, owners))


def owner_changed(x, y, owners):
    return x, y, rewritten(owners, ROW, (owners[ROW] + 1) % MACHINES)


def owners_by_name(x, y, owners):
    return x, y, owners.astype("S")


def feature_added(x, y, owners):
    return np.hstack([x, x[:, :1]]), y, owners


def class_added(x, y, owners):
    return x, rewritten(y, ROW, 2), owners


CHANGES = [
    row_removed, label_corrected, bit_flipped, type_changed, rows_swapped, owner_changed, owners_by_name,
    feature_added, class_added,
]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "suffix"),
    [*((change, "npz") for change in CHANGES), (bit_flipped, "h5"), (rows_swapped, "h5")],
)
def test_a_run_refuses_to_go_on_with_other_data(change, suffix, tmp_path, sent, capsys):
    path, output = tmp_path / f"a.{suffix}", tmp_path / "result.h5"
    write(path)
    broken_off(path, output)
    sent.clear()
    write(path, *change(X, Y, OWNERS))
    said = refused(path, output, capsys)
    assert "0 of 60 rounds had been sent (rho = 0, epsilon = 0 at delta = 1e-05)" in said
    assert "all of them spend rho = 1, epsilon = 4.37" in said
    assert sent == []


def test_methods_that_are_not_accounted_for_by_rho_say_epsilon(tmp_path):
    path, output = tmp_path / "a.npz", tmp_path / "result.h5"
    write(path)
    experiment = Experiment(
        data=str(path), method="noisy-minibatch-sgd", machines=3, rounds=60, epsilon=2.0, partition="iid"
    )
    with pytest.raises(Interrupted):
        run(experiment, output=output, callbacks=[Stops(5, signal.SIGUSR1)])
    checkpoint = read_checkpoint(checkpoint_path(output))
    write(path, labels=1 - Y)
    words = r"\d of 60 rounds had been sent \(epsilon = (\S+) at .* spend epsilon = (\S+) at delta = 1e-05"
    with pytest.raises(InputError, match=words) as caught:
        run(experiment, output=output)
    some, everything = map(float, re.search(words, str(caught.value)).groups())
    assert 0 < some < 0.9 * everything
    assert everything == pytest.approx(checkpoint.privacy.epsilon_exact, rel=1e-3)
    assert 1.9 < everything <= 2


def test_the_same_data_go_on_to_the_same_messages(tmp_path, sent):
    """Written anew, as chunks, with another test sample: nothing of this decides what is sent."""
    path, output = tmp_path / "a.h5", tmp_path / "result.h5"
    write(path)
    experiment = broken_off(path, output)
    first = dict(sent)
    sent.clear()
    with h5py.File(path, "w") as file:
        features = rewritten(X, TEST_ROW, 0.5)
        file.create_dataset("features", data=features, chunks=(7, 2), compression="gzip")
        file["labels"], file["machine"] = Y, OWNERS
    run(experiment, output=output)
    assert len(sent) == 60
    assert len(first) > 20
    assert first.items() <= dict(sent).items()


class Puts(Callback):
    """Puts a file in the place of another once a run has passed some round."""

    def __init__(self, new, old):
        self.new, self.old = new, old

    def on_evaluation(self, evaluation):
        if evaluation.round > 20 and self.new.exists():
            shutil.copy(self.old, f"{self.old}.kept")
            self.new.rename(self.old)


def test_a_file_that_is_replaced_while_it_is_read(tmp_path, sent, in_parts):
    path, output, new = tmp_path / "a.h5", tmp_path / "result.h5", tmp_path / "new.h5"
    write(path)
    write(new, -X, 1 - Y)
    experiment = Experiment(data=str(path), **{**SETTINGS, "rounds": 80})
    with pytest.raises(InputError, match=r"a\.h5 has changed while it was in use"):
        run(experiment, output=output, callbacks=[Puts(new, path)])
    first = list(sent)
    assert 20 < len(first) < 80
    with pytest.raises(InputError, match="have changed since the run"):
        run(experiment, output=output)
    assert len(sent) == len(first)
    shutil.copy(f"{path}.kept", path)
    run(experiment, output=output)
    assert sent[len(first) :][: len(first)] == first
    assert len(sent) == len(first) + 80


ON_TWO_NODES = """
import os, sys
from mu2mpi.cli import main
from mu2mpi.data import source as sources
from mu2mpi.data.sources.user_file import HoldoutSplit
from mu2mpi.core.parallel import world
os.chdir(str(world().rank))
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.mpi
def test_nodes_with_different_data_are_refused(tmp_path):
    """Ranks that MPICH takes to be on two nodes, each with a file of its own."""
    (tmp_path / "two.py").write_text(ON_TWO_NODES)
    for node in ("0", "1"):
        (tmp_path / node).mkdir()
        write(tmp_path / node / "a.npz")
    output = tmp_path / "result.h5"
    command = [tmp_path / "two.py", "run", "--data", "a.npz", *ARGUMENTS, "-o", output]
    os.chdir(tmp_path)
    job = mpirun(2, *command, MPIR_CVAR_NUM_CLIQUES="2")
    assert job.returncode == 0, job.stderr
    output.unlink()
    write(tmp_path / "1" / "a.npz", labels=1 - Y)
    job = mpirun(2, *command, MPIR_CVAR_NUM_CLIQUES="2")
    assert job.returncode == 2, job.stderr
    assert job.stderr.count("the training data of a.npz is not the same on all ranks") == 1
    assert not output.exists()
    assert not checkpoint_path(output).exists()


SWEEP = """
data = "{path}"
rounds = 60
rho = 1.0
partition = "iid"
machines = [1, 3]
server = ["untrusted", "trusted"]
"""


def test_a_sweep_reads_its_data_once_and_goes_on_with_the_same_alone(tmp_path, monkeypatch, capsys):
    path, folder, config, read = tmp_path / "a.npz", tmp_path / "runs", tmp_path / "sweep.toml", []
    write(path)
    config.write_text(SWEEP.format(path=path))
    column_digest = sources.column_digest

    def counted(*arguments):
        read.append(arguments)
        return column_digest(*arguments)

    monkeypatch.setattr(sources, "column_digest", counted)
    assert main(["sweep", str(config), "-o", str(folder)]) == 0
    assert len(read) == 1
    sweep = Sweep(read_toml(config))
    output = folder / sweep.file_name(sweep.experiments[-1])
    output.unlink()
    with pytest.raises(InputError, match="ZeroDivisionError"):
        run(sweep.experiments[-1], output=output, callbacks=[Stops(20)])
    write(path, *label_corrected(X, Y, OWNERS))
    assert main(["sweep", str(config), "-o", str(folder)]) == 2
    assert f"have changed since the run of {output} began" in capsys.readouterr().err
    write(path)
    assert main(["sweep", str(config), "-o", str(folder)]) == 0
    assert output.exists()


def test_no_result_holds_the_digest(tmp_path, capsys):
    """Whoever had it could test a guess at the data."""
    path, output = tmp_path / "a.npz", tmp_path / "result.h5"
    write(path)
    experiment = broken_off(path, output)
    digest = read_checkpoint(checkpoint_path(output)).data_digest
    forms = (digest, digest.hex().encode(), digest.hex().upper().encode())
    assert any(option_syntax in checkpoint_path(output).read_bytes() for option_syntax in forms)
    assert checkpoint_path(output).stat().st_mode & 0o777 == 0o600
    assert main(["show", str(output)]) == 0
    shown = capsys.readouterr()
    run(experiment, output=output)
    assert main(["show", str(output)]) == 0
    shown_later = capsys.readouterr()
    for text in (*shown, *shown_later):
        assert digest.hex()[:8] not in text
    assert len(digest) == 32
    assert not any(option_syntax in output.read_bytes() for option_syntax in forms)
