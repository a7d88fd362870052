"""The loss of docs/study/extending.md, and what docs/study/extending-more.md makes a package of with it."""

import os
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from blocks import Session, blocks
from helpers.interrupted_runs import signalled
from helpers.launch import SETTINGS, mpirun, mu2mpi
from helpers.slow import slow

from mu2mpi.cli import main

pytestmark = pytest.mark.slow

DOCS = Path(__file__).parents[2] / "docs"

TUTORIAL = blocks((DOCS / "study/extending.md").read_text(encoding="utf-8"))
PAGE = blocks((DOCS / "study/extending-more.md").read_text(encoding="utf-8"))
LOSS = next(block for block in TUTORIAL if block.file == "quantile.py")
COMMANDS = [block for block in PAGE if block.language == "sh"]
INSTALL, USE = COMMANDS
CASES = {
    "loss": ["--loss", "smoothed-quantile"],
    "method": ["--method", "heavy-ball-sgd", "--momentum", "0.8"],
    "mechanism": ["--mechanism", "decaying-noise"],
    "server": ["--server", "over-the-air", "--colluders", "1"],
}
SERVERS = {"loss": "trusted", "method": "untrusted", "mechanism": "untrusted"}
LONG = ["--data", "synthetic", "--samples", "900", "--machines", "3", "--seed", "4", "--evaluations", "5"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder in which the page has been followed, up to what it installs."""
    folder = tmp_path_factory.mktemp("extending")
    # Where pip puts it, so that it is in no environment; and from there, as there may be no network.
    pip = {"PIP_TARGET": str(folder / "installed"), "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    with Session(folder, pip) as session:
        for block in [LOSS, *(block for block in PAGE if block.file), INSTALL]:
            session.run(block)
    return folder


@pytest.fixture(scope="module")
def extras(folder):
    """Return the variables that make known what is installed."""
    return {"PYTHONPATH": os.pathsep.join([str(folder / "installed"), os.environ.get("PYTHONPATH", "")])}


@pytest.mark.mpi
def test_the_commands_of_the_page(folder, extras):
    with Session(folder, {**SETTINGS, **extras}) as session:
        printed = session.run(USE)
    assert "by heavy-ball-sgd" in printed
    assert printed.count("Nothing is refuted, and there is no alarm.") == 2


def arrays(path):
    with h5py.File(path) as file:
        columns = [file["history"][name][()] for name in ("test_loss", "rho_spent", "message_norm")]
        return [file["model/x"][()], file["model/w"][()], *columns]


@pytest.fixture(scope="module")
def results(extras, tmp_path_factory):
    """Return the folder of a result of each case."""
    folder = tmp_path_factory.mktemp("results")
    for case in CASES:
        done = mu2mpi(*run_of(case), "-o", folder / f"{case}.h5", **extras)
        assert done.returncode == 0, done.stderr
    return folder


def run_of(case):
    server = ["--server", SERVERS[case]] if case in SERVERS else []
    return ["run", *CASES[case], *server, "--machines", "5", "--seed", "3"]


@pytest.mark.mpi
@pytest.mark.parametrize("case", ["mechanism", *slow("loss", "method", "server")])
def test_a_run_on_two_ranks_is_what_one_rank_computes(case, results, extras, tmp_path):
    both = mpirun(2, "-m", "mu2mpi", *run_of(case), "-o", tmp_path / "b.h5", **extras)
    assert both.returncode == 0, both.stderr
    for one, other in zip(arrays(results / f"{case}.h5"), arrays(tmp_path / "b.h5"), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("cases", "server"), [(("loss", "mechanism"), "untrusted"), (("method",), "trusted")]
)
def test_a_killed_run_goes_on_to_the_same_bits(cases, server, extras, tmp_path, moments):
    settings = ["run", *LONG, *(word for case in cases for word in CASES[case]), "--server", server]
    unbroken = mu2mpi(*settings, "-o", tmp_path / "a.h5", **extras)
    assert unbroken.returncode == 0, unbroken.stderr
    path = tmp_path / "b.h5"
    killed = signalled(2, "SIGKILL", "all", moments.randrange(2, 60), *settings, "-o", path, **extras)
    assert killed.returncode != 0
    assert not path.exists()
    resumed = mpirun(2, "-m", "mu2mpi", *settings, "-o", path, **extras)
    assert resumed.returncode == 0, resumed.stderr
    assert "going on after round" in resumed.stderr
    for one, other in zip(arrays(tmp_path / "a.h5"), arrays(path), strict=True):
        np.testing.assert_array_equal(one, other)


def test_its_result_is_shown_and_its_claim_computed_again(results, extras):
    for case, (_, name, *_) in CASES.items():
        shown = mu2mpi("show", results / f"{case}.h5", **extras)
        assert re.search(rf"{case} +{name}\n", shown.stdout), shown.stderr
    checked = mu2mpi("privacy", *(results / f"{case}.h5" for case in CASES), **extras)
    assert checked.returncode == 0, checked.stderr
    assert checked.stdout.count("agrees") == len(CASES)


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


def test_a_mechanism_that_claims_or_spends_too_much_is_found_out(extras, tmp_path):
    """Half of the noise that it takes, said to be enough, or not."""
    installed = Path(extras["PYTHONPATH"].split(os.pathsep)[0])
    (tmp_path / "extras").mkdir()
    for file in installed.glob("extras/*.py"):
        (tmp_path / "extras" / file.name).write_text(file.read_text().replace("sigma = 2 *", "sigma = 1 *"))
    path = os.pathsep.join([str(tmp_path), extras["PYTHONPATH"]])
    own = ["--mechanism", "decaying-noise"]
    done = mu2mpi("run", *own, "-o", tmp_path / "a.h5", PYTHONPATH=path)
    assert done.returncode == 2
    assert "spends rho = 8 where 4 is asked for" in done.stderr
    changed = tmp_path / "extras/decaying_noise.py"
    changed.write_text(changed.read_text().replace("rho = 2 * self", "rho = 1 * self"))
    audit = ["--rounds", "4", "--trials", "400", "--seed", "5", "--server", "untrusted"]
    assert mu2mpi("audit", *own, *audit, PYTHONPATH=path).returncode == 1


@pytest.mark.parametrize("case", CASES)
def test_without_the_package_a_result_says_what_is_not_known(case, results, capsys):
    assert main(["show", str(results / f"{case}.h5")]) == 2
    said = capsys.readouterr().err
    assert case in said
    assert CASES[case][1] in said
