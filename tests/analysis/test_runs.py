"""Results as a sequence and as data frames, against the files and the table."""

import csv
import io
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

import mu2mpi
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.text import rounded_up
from mu2mpi.results.reader import read_result


@pytest.fixture(scope="module")
def runs(folder):
    return mu2mpi.load(folder)


def test_the_table_follows_to_the_digit(runs):
    groups = runs.to_dataframe().groupby(["server", "rho", "machines"])
    lines = list(csv.DictReader(io.StringIO(runs.table(format="csv"))))
    assert len(lines) == 8
    for line in lines:
        frame = groups.get_group((line["server"], float(line["rho"]), int(line["machines"])))
        for name in ("test_loss", "test_accuracy"):
            assert len(frame) == int(line["seeds"])
            assert frame[name].mean() == pytest.approx(float(line[f"{name}_mean"]), rel=1e-14)
            assert frame[name].std() == pytest.approx(float(line[f"{name}_sd"]), rel=1e-9)


def test_a_frame_of_histories_has_every_evaluation_of_every_run(runs):
    histories = runs.to_dataframe(history=True)
    assert list(histories.index) == list(range(len(histories)))
    final = runs.to_dataframe()
    assert histories.file.unique().tolist() == final.file.tolist()
    for result, (_, rows) in zip(runs, histories.groupby("file", sort=False), strict=True):
        assert [Path(name) for name in rows.file.unique()] == [result.path]
        for name in ("round", "test_loss", "test_accuracy", "rho_spent", "elapsed_seconds"):
            np.testing.assert_array_equal(rows[name], getattr(result.history, name))
        np.testing.assert_array_equal(rows.samples_used, result.history.samples)
        assert {*rows.machines} == {result.experiment.machines}
        assert {*rows.epsilon_exact} == {result.privacy.epsilon_exact}
    # `samples` stays the setting of the data.
    assert histories.samples.isna().all()
    assert histories.machines.dtype == final.machines.dtype
    assert not [name for name in histories if "clipped" in name or "increment" in name]
    none = runs[:0].to_dataframe(history=True)
    assert none.empty
    assert {"round", "message_norm", "rho"} <= {*none}


def test_a_result_is_the_same_from_a_run_and_from_its_file(tmp_path):
    settings = {"data": "digits", "server": "trusted", "machines": 2, "rounds": 5, "seed": 1}
    # A method is selected by its name however it was chosen.
    experiment = Experiment(**settings, estimator="gradient", query="iterate")
    made = mu2mpi.run(experiment, output=tmp_path / "a.h5")
    (found,) = mu2mpi.load(tmp_path).select(method="parallel-sgd", partition="iid")
    assert type(found) is type(made) is mu2mpi.Result
    assert found.path == made.path == tmp_path / "a.h5"
    assert found.x.tobytes() == made.x.tobytes()
    assert str(found.history.rows()) == str(made.history.rows())
    assert mu2mpi.run(experiment).path is None


def test_all_runs_are_one_tidy_frame(runs):
    frame = runs.to_dataframe()
    run = frame.query("server == 'untrusted' and rho == 16 and machines == 2 and seed == 3").iloc[0]
    result = read_result(run.file)
    assert run.test_loss == result.history.test_loss[-1]
    assert run.test_accuracy == result.history.test_accuracy[-1]
    assert run.epsilon_exact == result.privacy.epsilon_exact
    assert run.excess_loss == result.theory.excess_loss
    assert frame.groupby(["server", "rho", "machines"]).size().tolist() == [3] * 8
    # Nothing that the guarantee does not cover but times.
    assert not [name for name in frame if "clipped" in name or "increment" in name]
    assert frame.seed.dtype == "Int64"
    assert frame.created.dt.tz is not None
    none = runs[:0].to_dataframe()
    assert set(none) <= set(frame)
    assert none.groupby(["server", "rho"]).test_loss.mean().empty


def test_a_notebook_shows_tables(runs):
    def cells(html):
        rows = ElementTree.fromstring(f"<div>{html}</div>").iter("tr")
        return [["".join(cell.itertext()) for cell in row] for row in rows]

    assert runs._repr_markdown_() == f"{len(runs)} runs\n\n{runs.table(format='markdown')}"
    assert runs[:0]._repr_markdown_() == "0 runs"
    result = runs[0]
    of_result, of_privacy = cells(result._repr_html_()), cells(result.privacy._repr_html_())
    assert of_result[-len(of_privacy) :] == of_privacy
    assert dict(of_result)["test loss"] == f"{result.history.test_loss[-1]:.4f}"
    assert dict(of_privacy)["epsilon"] == f"{rounded_up(result.privacy.epsilon_exact)} at delta = 1e-05"
    assert [text for name, text in of_privacy if name == "but"] == [c.full for c in result.privacy.concerns()]


def test_a_list_selects_runs_with_any_of_its_values(runs):
    some = runs.select(rho=[4, 16.0], server=("trusted",), method=["mu2-sgd"])
    chosen = [r for r in runs.summaries if r.experiment.rho in (4, 16) and r.experiment.server == "trusted"]
    assert some.summaries == chosen != []
    assert runs.select(clip_norm=[None]).summaries == runs.summaries
    for values in ([], [4, 5]):
        with pytest.raises(InputError, match="rho is "):
            runs.select(rho=values)


def test_what_cannot_be_used_is_named_and_skipped(folder, tmp_path):
    content = next(folder.glob("*.h5")).read_bytes()
    (tmp_path / "good.h5").write_bytes(content)
    (tmp_path / "half.h5").write_bytes(content[: len(content) // 2])
    with pytest.warns(UserWarning, match=r"half\.h5") as caught:
        assert len(mu2mpi.load(tmp_path)) == 1
    assert caught[0].filename == __file__
    with pytest.raises(InputError):
        mu2mpi.load(tmp_path, strict=True)


def test_loading_imports_neither_the_simulation_nor_the_extra(folder):
    script = (
        "import sys, mu2mpi\n"
        f"mu2mpi.load({str(folder)!r})[0].x\n"
        "print([m for m in ('numba', 'mpi4py', 'pandas', 'matplotlib') if m in sys.modules])"
    )
    child = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert child.stdout == "[]\n"


SETTINGS = {"data": "synthetic", "samples": 60, "features": 2, "machines": 2, "rounds": 20, "seed": 1}
