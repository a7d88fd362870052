"""The loss, method, mechanism and trust mode of docs/study/extending.md, as a package of their own."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from launch import mpirun, mu2mpi, start_ranks
from slowly import slow
from test_checkpoints import wait_for

from mu2mpi.errors import InputError
from mu2mpi.registry import find, names, register

PAGE = Path(__file__).parents[2] / "docs" / "study" / "extending.md"
MODULES = "smoothed_quantile", "heavy_ball", "decaying_noise", "over_the_air"
FILES = "pyproject.toml", *(f"extras/{module}.py" for module in MODULES)
CASES = {
    "loss": ["--loss", "smoothed-quantile"],
    "method": ["--method", "heavy-ball-sgd", "--momentum", "0.8"],
    "mechanism": ["--mechanism", "decaying-noise"],
    "server": ["--server", "over-the-air", "--colluders", "1"],
}
LONG = ["--data", "synthetic", "--samples", "120000", "--machines", "3", "--seed", "4", "--evaluations", "5"]
LONG.append("--all-ranks")


@pytest.fixture(scope="module")
def extras(tmp_path_factory):
    """Install what the page says, and return the variables that make it known."""
    folder = tmp_path_factory.mktemp("extending")
    blocks = re.findall(r"```(?:toml|python)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for name, block in zip(FILES, blocks, strict=True):
        assert len(block.splitlines()) <= 80
        file = folder / "source" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(block, encoding="utf-8")
    (folder / "source/extras/__init__.py").touch()
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--target"]
    subprocess.run([*pip, folder / "installed", folder / "source"], check=True)
    return {"PYTHONPATH": os.pathsep.join([str(folder / "installed"), os.environ.get("PYTHONPATH", "")])}


def arrays(path):
    with h5py.File(path) as file:
        columns = [file["history"][name][()] for name in ("test_loss", "rho_spent", "message_norm")]
        return [file["model/x"][()], file["model/w"][()], *columns]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("case", "server"),
    [("mechanism", "untrusted"), *slow(("loss", "trusted"), ("method", "untrusted"), ("server", None))],
)
def test_a_run_on_two_ranks_is_what_one_rank_computes(case, server, extras, tmp_path):
    settings = [*CASES[case], "--machines", "5", "--seed", "3", "--all-ranks"]
    settings += ["--server", server] if server else []
    alone = mu2mpi("run", *settings, "-o", tmp_path / "a.h5", **extras)
    assert alone.returncode == 0, alone.stderr
    both = mpirun(2, "-m", "mu2mpi", "run", *settings, "-o", tmp_path / "b.h5", **extras)
    assert both.returncode == 0, both.stderr
    for one, other in zip(arrays(tmp_path / "a.h5"), arrays(tmp_path / "b.h5"), strict=True):
        np.testing.assert_array_equal(one, other)


def rounds_in(checkpoint):
    with h5py.File(checkpoint) as file:
        return file.attrs["rounds_done"]


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "server"), [("loss", "untrusted"), ("method", "trusted"), ("mechanism", "untrusted")]
)
def test_a_killed_run_goes_on_to_the_same_bits(case, server, extras, tmp_path):
    settings = ["run", *LONG, *CASES[case], "--server", server]
    unbroken = mu2mpi(*settings, "-o", tmp_path / "a.h5", **extras)
    assert unbroken.returncode == 0, unbroken.stderr
    path, kept = tmp_path / "b.h5", tmp_path / "b.h5.checkpoint"
    command = ["-m", "mu2mpi", *settings, "--checkpoint-every", "0.05", "-o", path]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", extras["PYTHONPATH"])
        job = start_ranks(2, *command, stderr=subprocess.DEVNULL, start_new_session=True)
    # The first is of no round yet.
    wait_for(lambda: kept.exists() and rounds_in(kept) > 0, 60)
    assert job.poll() is None
    os.killpg(job.pid, signal.SIGKILL)
    subprocess.run(["pkill", "-KILL", "-f", str(path)], check=False)
    job.wait(timeout=20)
    assert not path.exists()
    resumed = mpirun(2, *command, **extras)
    assert resumed.returncode == 0, resumed.stderr
    assert "going on after round" in resumed.stderr
    for one, other in zip(arrays(tmp_path / "a.h5"), arrays(path), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.fixture(scope="module")
def results(extras, tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    for case, settings in CASES.items():
        done = mu2mpi("run", *settings, "--machines", "4", "-o", folder / f"{case}.h5", **extras)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("case", CASES)
def test_its_result_is_shown_and_its_claim_computed_again(case, results, extras):
    shown = mu2mpi("show", results / f"{case}.h5", **extras)
    assert shown.returncode == 0, shown.stderr
    assert re.search(rf"{case} +{CASES[case][1]}\n", shown.stdout)
    checked = mu2mpi("privacy", results / f"{case}.h5", **extras)
    assert checked.returncode == 0, checked.stderr
    assert "agrees" in checked.stdout


def test_tables_and_figures_know_it(results, extras, tmp_path):
    table = mu2mpi("table", results, "--rows", "loss,method,mechanism", **extras)
    assert all(name in table.stdout for name in ("smoothed-quantile", "heavy ball", "decaying-noise"))
    chosen = mu2mpi("table", results, "--where", "momentum=0.8", "--rows", "method,momentum", **extras)
    assert "heavy ball" in chosen.stdout
    assert "smoothed-quantile" not in chosen.stdout
    for loss in ("smoothed-quantile", "softmax"):
        where = "--where", f"loss={loss}"
        drawn = mu2mpi("plot", "history", results, *where, "-o", tmp_path / f"{loss}.png", **extras)
        assert drawn.returncode == 0, drawn.stderr


def test_the_help_and_a_sweep_know_it(extras, tmp_path):
    text = mu2mpi("run", "--help", **extras).stdout
    assert all(
        name in text for name in ("smoothed-quantile", "heavy-ball-sgd", "decaying-noise", "--momentum")
    )
    (tmp_path / "sweep.toml").write_text(
        'method = ["heavy-ball-sgd", "parallel-sgd"]\nmachines = 4\nrounds = 20\nseed = 1\n'
    )
    swept = mu2mpi("sweep", tmp_path / "sweep.toml", "-o", tmp_path / "runs", **extras)
    assert swept.returncode == 0, swept.stderr
    assert len(list((tmp_path / "runs").glob("*.h5"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_an_audit_finds_nothing(case, extras):
    audit = ["audit", *CASES[case], "--rounds", "3", "--trials", "72", "--seed", "5"]
    done = mu2mpi(*audit, **extras)
    assert done.returncode == 0, done.stdout + done.stderr
    servers = 1 if case == "server" else 2
    assert done.stdout.count("Nothing is refuted, and there is no alarm.") == servers


@pytest.mark.slow
def test_an_audit_refutes_a_mechanism_that_claims_too_much(extras, tmp_path):
    """Half of the noise that it takes, said to be enough."""
    installed = Path(extras["PYTHONPATH"].split(os.pathsep)[0])
    text = (installed / "extras/decaying_noise.py").read_text()
    assert "sigma = 2 *" in text
    assert "rho = 2 * self" in text
    changed = tmp_path / "extras"
    changed.mkdir()
    for file in installed.glob("extras/*.py"):
        (changed / file.name).write_text(file.read_text())
    (changed / "decaying_noise.py").write_text(
        text.replace("sigma = 2 *", "sigma = 1 *").replace("rho = 2 * self", "rho = 1 * self")
    )
    path = os.pathsep.join([str(tmp_path), extras["PYTHONPATH"]])
    audit = ["audit", "--mechanism", "decaying-noise", "--rounds", "4", "--trials", "400", "--seed", "5"]
    done = mu2mpi(*audit, "--server", "untrusted", PYTHONPATH=path)
    assert done.returncode == 1
    assert "the claim of privacy is refuted" in done.stderr


@pytest.mark.slow
def test_a_mechanism_that_spends_more_than_is_asked_for_is_refused(extras, tmp_path):
    installed = Path(extras["PYTHONPATH"].split(os.pathsep)[0])
    (tmp_path / "extras").mkdir()
    for file in installed.glob("extras/*.py"):
        text = file.read_text().replace("sigma = 2 *", "sigma = 1 *")
        (tmp_path / "extras" / file.name).write_text(text)
    path = os.pathsep.join([str(tmp_path), extras["PYTHONPATH"]])
    done = mu2mpi("run", "--mechanism", "decaying-noise", "-o", tmp_path / "a.h5", PYTHONPATH=path)
    assert done.returncode == 2
    assert "spends rho = 8 where 4 is asked for" in done.stderr


def test_without_the_package_a_result_says_what_is_not_known(results):
    for case, settings in CASES.items():
        shown = mu2mpi("show", results / f"{case}.h5")
        assert shown.returncode == 2
        assert case in shown.stderr
        assert settings[1] in shown.stderr
        assert "Traceback" not in shown.stderr


def test_what_cannot_be_registered_is_refused():
    with pytest.raises(ValueError, match="has no kind among"):
        register(object())
    with pytest.raises(InputError, match="there is no 'x' among the methods, which are accelerated-srgd"):
        find("methods", "x")
    assert "mu2-sgd" in names("methods")
