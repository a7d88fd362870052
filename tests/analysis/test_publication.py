"""Published files: readable by all commands, without a byte that the guarantee does not cover."""

import math
import platform
import socket
import struct
import tomllib

import h5py
import numpy as np
import pytest
import xarray

import mu2mpi
from mu2mpi.analysis.description import PRIVATE_TEST_WARNING, describe_result
from mu2mpi.analysis.privacy_reports import check_privacy_claims
from mu2mpi.analysis.publication import publish
from mu2mpi.analysis.report import build_report
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.hdf5 import read_attributes
from mu2mpi.execution.environment import processor_name
from mu2mpi.execution.job import run
from mu2mpi.results.reader import read_result

SMALL = {"machines": 2, "rounds": 20, "rho": 1.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with private data, and results of them in a folder below."""
    folder = tmp_path_factory.mktemp("secret-study")
    draw = np.random.default_rng(0)
    for name in ("patients", "public"):
        data = {"X": draw.uniform(-1, 1, (200, 4)), "y": draw.integers(0, 3, 200)}
        np.savez(folder / f"{name}.npz", **data)
    runs = {
        "digits": {},
        "share": {"data": str(folder / "patients.npz")},
        "apart": {"data": str(folder / "patients.npz"), "test": str(folder / "public.npz")},
    }
    for name, settings in runs.items():
        run(Experiment(**SMALL, **settings), output=folder / "runs" / f"{name}.h5")
    return folder


@pytest.fixture
def source(folder):
    return folder / "runs" / "share.h5"


def secrets(result):
    """Return every number of a result that must not get out, and every text."""
    diagnostics = vars(result.diagnostics).values()
    times = [*result.history.elapsed_seconds, *np.concatenate(list(result.timing.values()))]
    losses = [*result.history.test_loss, *result.history.test_accuracy]
    theory = [value for value in vars(result.theory).values() if not math.isnan(value)]
    # A round number, such as an accuracy of 0.5, may well stand in a file for something else.
    found = map(float, [*diagnostics, *times, *losses, *theory])
    numbers = [value for value in found if round(value, 3) != value]
    return numbers, [f"{socket.gethostname()} (1)", platform.platform(), "secret-study", processor_name()]


def everything(path):
    """Return all numbers and all texts of a file, arrays unpacked."""
    numbers, texts = set(), []

    def note(value):
        if isinstance(value, str | bytes):
            texts.append(value if isinstance(value, str) else value.decode())
        elif np.asarray(value).dtype.kind in "iuf":
            numbers.update(np.asarray(value, float).ravel().tolist())

    def visit(name, item):
        texts.append(name)
        for value in item.attrs.values():
            note(value)
        if isinstance(item, h5py.Dataset):
            note(item[()])

    with h5py.File(path) as file:
        visit("/", file)
        file.visititems(visit)
    return numbers, "\n".join(texts)


def hits(path, numbers, texts):
    """Return what of some numbers and texts is in a file: in its raw bytes, or in what they unpack to."""
    raw, (held, said) = path.read_bytes(), everything(path)
    found = [n for n in numbers if n in held or struct.pack("<d", n) in raw or struct.pack(">d", n) in raw]
    return found, [text for text in texts if text in said or text.encode() in raw]


def test_not_a_byte_of_what_is_not_covered(source, tmp_path):
    numbers, texts = secrets(read_result(source))
    # All of it is in the result, and some of it stays there where h5py deletes it.
    found, said = hits(source, numbers, texts)
    assert found == numbers
    assert said == texts
    (tmp_path / "deleted.h5").write_bytes(source.read_bytes())
    with h5py.File(tmp_path / "deleted.h5", "r+") as file:
        del file["diagnostics"]
    assert struct.pack("<d", numbers[0]) in (tmp_path / "deleted.h5").read_bytes()
    publish([source], tmp_path / "public.h5")
    assert hits(tmp_path / "public.h5", numbers, texts) == ([], [])
    with h5py.File(tmp_path / "public.h5") as file:
        assert list(file) == ["experiment", "model", "history", "privacy"]
        assert b"loss and scores" in file.attrs["published"]


def test_what_is_covered_is_all_there(source, tmp_path):
    for said in (describe_result(read_result(source), source), check_privacy_claims([source])[0]):
        assert PRIVATE_TEST_WARNING in " ".join(said.split())
    publish([source], tmp_path / "public.h5")
    ours, theirs = read_result(source), read_result(tmp_path / "public.h5")
    np.testing.assert_array_equal(ours.x, theirs.x)
    np.testing.assert_array_equal(ours.w, theirs.w)
    assert ours.privacy == theirs.privacy
    assert ours.class_names == theirs.class_names
    for name in ("round", "samples", "gradient_evaluations", "rho_spent", "message_norm"):
        np.testing.assert_array_equal(getattr(ours.history, name), getattr(theirs.history, name))
    assert theirs.experiment == ours.experiment.model_copy(update={"data": "patients.npz"})
    publish([tmp_path / "public.h5"], tmp_path / "again.h5")
    assert read_result(tmp_path / "again.h5").environment == theirs.environment


def test_what_names_the_run_stays_and_what_names_the_computer_does_not(folder, tmp_path, monkeypatch):
    computer = {
        "APPTAINER_CONTAINER": "/scratch/me/image.sif",
        "LOADEDMODULES": "compiler/12:secret-site/1",
        "SLURM_JOB_ID": "8315347",
    }
    for name, value in {**computer, "MU2MPI_CREATOR": "Ada", "MU2MPI_LICENSE": "all rights reserved"}.items():
        monkeypatch.setenv(name, value)
    settings = {"data": str(folder / "patients.npz"), "budgets": str(folder / "budgets.csv")}
    (folder / "budgets.csv").write_text("machine,epsilon\n1,0.5\n")
    source, public = tmp_path / "a.h5", tmp_path / "public.h5"
    run(Experiment(**SMALL | settings, method="anytime-sgd"), output=source)
    assert hits(source, [], [*computer.values(), "secret-study"])[1] == [*computer.values(), "secret-study"]
    monkeypatch.delenv("MU2MPI_CREATOR")
    monkeypatch.setenv("MU2MPI_LICENSE", "CC-BY-4.0")
    publish([source], public)
    assert hits(public, [], [*computer.values(), "secret-study", str(tmp_path)]) == ([], [])
    ours, theirs = (read_result(path).environment for path in (source, public))
    assert theirs["run_id"] == ours["run_id"]
    assert theirs.get("git_commit") == ours.get("git_commit")
    assert (theirs["creator_name"], ours["license"]) == ("Ada", "all rights reserved")
    assert theirs["license"] == "CC-BY-4.0"
    with h5py.File(public) as file:
        attributes, typed = read_attributes(file), read_attributes(file["experiment"])
        assert typed == tomllib.loads(attributes["experiment"])
        assert (typed["data"], typed["budgets"]) == ("patients.npz", "budgets.csv")
        assert attributes["history"] == f"{attributes['created']}: published with mu2mpi {mu2mpi.__version__}"
        assert attributes["title"].startswith("anytime-sgd on patients.npz, M = 2")


def test_losses_stay_where_the_test_set_is_another(folder, tmp_path):
    publish([folder / "runs"], tmp_path)
    for name in ("digits", "apart"):
        ours, theirs = (read_result(parent / f"{name}.h5") for parent in (folder / "runs", tmp_path))
        np.testing.assert_array_equal(ours.history.test_loss, theirs.history.test_loss)
        np.testing.assert_array_equal(ours.confusion, theirs.confusion)
        assert theirs.theory == ours.theory
    assert theirs.experiment.test == "public.npz"
    share = read_result(tmp_path / "share.h5")
    assert not share.history.has_losses
    assert (share.metrics, share.confusion, share.test_rows) == ({}, None, None)
    publish([folder / "runs" / "share.h5"], tmp_path, overwrite=True, with_test_results=True)
    ours, back = read_result(folder / "runs/share.h5"), read_result(tmp_path / "share.h5")
    np.testing.assert_array_equal(ours.history.test_loss, back.history.test_loss)
    np.testing.assert_array_equal(ours.test_rows, back.test_rows)
    assert (back.metrics, back.theory) == (ours.metrics, ours.theory)


@pytest.mark.slow
def test_everything_reads_published_files(folder, tmp_path):
    publish([folder / "runs"], tmp_path)
    runs = mu2mpi.load(tmp_path, strict=True)
    frame = runs.to_dataframe().set_index("data")
    assert math.isnan(frame.loc["patients.npz"].iloc[0].elapsed_seconds)
    assert frame.loc["digits"].test_loss > 0
    assert "–" in runs.table()
    assert [run.diagnostics for run in runs] == [None] * 3
    assert len(runs[0].timing) == 0
    for one in runs:
        text = describe_result(one, one.path)
        assert not [
            word for word in ("nan", "Diagnostics", "Time in seconds", PRIVATE_TEST_WARNING) if word in text
        ]
    text, problems = check_privacy_claims([tmp_path])
    assert problems == []
    assert "/diagnostics" not in text
    assert build_report(runs.summaries)
    mu2mpi.load(tmp_path / "share.h5").plot("tradeoff-curve")
    with xarray.open_dataset(tmp_path / "share.h5", engine="h5netcdf", group="history") as history:
        assert history.test_loss.isnull().all()
        assert list(history.coords) == ["round"]


@pytest.mark.parametrize("kind", ["history", "scaling"])
def test_figures_of_what_is_not_there_say_so(source, tmp_path, kind):
    publish([source], tmp_path / "public.h5")
    with pytest.raises(InputError):
        mu2mpi.load(tmp_path / "public.h5").plot(kind)


@pytest.mark.parametrize("settings", [{"seed": 1}, {"rho": math.inf}])
def test_what_protects_nobody_is_refused(tmp_path, settings):
    path = tmp_path / "runs" / "a.h5"
    run(Experiment(**{**SMALL, **settings}), output=path)
    run(Experiment(**SMALL, noise="aggregate"), output=tmp_path / "runs" / "good.h5")
    with pytest.raises(InputError, match=r"a\.h5"):
        publish([tmp_path / "runs"], tmp_path / "public")
    assert not (tmp_path / "public").exists()
    _, shortcut = publish([tmp_path / "runs"], tmp_path / "public", even_if_unprotected=True)
    assert "but noise = aggregate" in shortcut
    assert read_result(tmp_path / "public" / "a.h5").experiment == read_result(path).experiment


def test_a_claim_that_does_not_hold_is_refused(source, tmp_path):
    path = tmp_path / "a.h5"
    path.write_bytes(source.read_bytes())
    with h5py.File(path, "r+") as file:
        file["privacy"].attrs.modify("rho", 0.5)
    with pytest.raises(InputError, match="rho"):
        publish([path], tmp_path / "public.h5", even_if_unprotected=True)


def test_nothing_is_overwritten_or_mixed_up(folder, source, tmp_path):
    publish([source], tmp_path / "public.h5")
    before = (tmp_path / "public.h5").read_bytes()
    for name in ("other", "new"):
        (tmp_path / name).mkdir()
    (tmp_path / "other" / source.name).write_bytes(source.read_bytes())
    # A file that is in the way is found before the first is written.
    (tmp_path / "new" / "share.h5").write_text("mine")
    refused = [
        ([source], tmp_path / "public.h5", False),
        ([folder / "runs"], tmp_path / "public.h5", True),
        ([source], source, True),
        ([folder / "runs"], folder / "runs" / "public", False),
        ([source, tmp_path / "other" / source.name], tmp_path / "both", False),
        ([folder / "runs"], tmp_path / "new", False),
    ]
    for paths, output, overwrite in refused:
        with pytest.raises(InputError):
            publish(paths, output, overwrite=overwrite)
    assert (tmp_path / "public.h5").read_bytes() == before
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["share.h5"]
    assert not (tmp_path / "both").exists()
