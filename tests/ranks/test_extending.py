"""Extensions of docs/study/extending*.md: on two ranks, after a kill, and in what reads their results."""

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import tomli_w
from blocks import Session, blocks
from helpers.extensions import MODULES, PAGES
from helpers.interrupted_runs import signalled
from helpers.launch import mpirun, mu2mpi

from mu2mpi.cli import main

pytestmark = pytest.mark.slow

IMPORTS = [f"--import={name}" for name in MODULES]

# Settings of a run of each kind, beside seed and machines
KINDS = {
    "loss": {"loss": "smoothed-quantile", "server": "trusted"},
    "method": {"method": "heavy-ball-sgd", "momentum": 0.8},
    "preset": {"preset": "cautious"},
    "mechanism": {"mechanism": "decaying-noise"},
    "server": {"server": "over-the-air", "colluders": 1},
    "source": {"data": "spirals", "turns": 0.25},
    "format": {"data": "points.jsonl"},
    "partition": {"partition": "similarity:0.1"},
    "participation": {"participation": "in-turn:2"},
}
NAMES = {kind: next(iter(settings.values())).partition(":")[0] for kind, settings in KINDS.items()}
NEEDED = sorted(KINDS.keys() - {"format"})  # kinds without whose module a result cannot be read
LONG = ["--data", "synthetic", "--samples", "900", "--machines", "3", "--seed", "4", "--evaluations", "5"]
SEVERAL = """
import json, sys
from mu2mpi.cli import main
sys.exit(max(main(words) for words in json.loads(sys.argv[1])))
"""


def options(*kinds):
    """Return the command-line options of the settings of some kinds."""
    settings = [setting for kind in kinds for setting in KINDS[kind].items()]
    return [f"--{name}={value}" for name, value in settings]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with the modules of the pages and results of one rank, as the working directory."""
    folder = tmp_path_factory.mktemp("extending")
    for name, text in MODULES.items():
        (folder / name).write_text(text, "utf-8")
    points = np.random.default_rng(1).uniform(-1, 1, (500, 2))
    rows = [{"a": a, "b": b, "label": "right" if a > 0 else "left"} for a, b in points.tolist()]
    (folder / "points.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    sweep = {"machines": 5, "seed": 3, "part": [*KINDS.values()]}
    (folder / "kinds.toml").write_text(tomli_w.dumps(sweep))
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


@pytest.fixture(scope="module")
def results(folder):
    """Return the results of all kinds on one rank, in the order of `KINDS`."""
    done = mu2mpi("sweep", *IMPORTS, "kinds.toml", "-o", "one")
    assert done.returncode == 0, done.stderr
    paths = (folder / "one").glob("*.h5")
    experiments = {path: h5py.File(path).attrs["experiment"].decode() for path in paths}
    found = {}
    for kind, settings in KINDS.items():
        name, value = next(iter(settings.items()))
        (found[kind],) = (path for path, text in experiments.items() if f'{name} = "{value}"' in text)
    return found


def arrays(path):
    with h5py.File(path) as file:
        columns = [file["history"][name][()] for name in ("test_loss", "rho_spent", "message_norm")]
        return [file["model/x"][()], file["model/w"][()], *columns]


def assert_same(one, other):
    for first, second in zip(arrays(one), arrays(other), strict=True):
        np.testing.assert_array_equal(first, second)


@pytest.mark.mpi
def test_two_ranks_compute_what_one_rank_computes(results):
    both = mpirun(2, "-m", "mu2mpi", "sweep", *IMPORTS, "kinds.toml", "-o", "two")
    assert both.returncode == 0, both.stderr
    for path in results.values():
        assert_same(path, Path("two", path.name))


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("kinds", "server"),
    [
        (("loss", "mechanism", "partition"), "over-the-air"),
        (("method", "participation"), "trusted"),
    ],
)
def test_a_killed_run_resumes_to_the_same_bits(kinds, server, folder, tmp_path, moments):
    settings = ["run", *IMPORTS, *LONG, *options(*kinds), f"--server={server}"]
    unbroken = mu2mpi(*settings, "-o", tmp_path / "a.h5")
    assert unbroken.returncode == 0, unbroken.stderr
    path = tmp_path / "b.h5"
    killed = signalled(2, "SIGKILL", "all", moments.randrange(2, 60), *settings, "-o", path)
    assert killed.returncode != 0
    assert not path.exists()
    resumed = mpirun(2, "-m", "mu2mpi", *settings, "-o", path)
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming after round" in resumed.stderr
    assert_same(tmp_path / "a.h5", path)


def test_results_are_read_by_all_commands(results):
    method, server = map(str, (results["method"], results["server"]))
    commands = [
        *(["show", str(path)] for path in results.values()),
        ["privacy", *map(str, results.values())],
        ["table", "one", "--where", "data=digits", "--rows", "loss,method,mechanism"],
        ["table", str(results["loss"]), "--values", "coverage"],
        ["plot", "history", method, server, "-o", "history.png"],
        ["plot", "depth", method, server, "-o", "depth.png"],
        ["longest", method, server],
    ]
    # In one process, as each would take seconds to start.
    done = mpirun(1, "-c", SEVERAL, json.dumps([[*IMPORTS, *words] for words in commands]))
    assert done.returncode == 0, done.stderr
    shown = [*NAMES.values(), "heavy ball", "Coverage in %"]
    assert [text for text in shown if text not in done.stdout] == []
    assert done.stdout.count("agrees") == len(KINDS)
    assert done.stdout.splitlines()[-1] in (method, server)


def test_the_help_lists_them(folder):
    text = mu2mpi("run", *IMPORTS, "--help", "all").stdout
    names = ["--momentum", "--turns", *(NAMES[kind] for kind in NEEDED)]
    assert [name for name in names if name not in text] == []


@pytest.mark.parametrize("kind", NEEDED)
def test_without_its_module_a_result_names_it(kind, results, capsys):
    assert main(["show", str(results[kind])]) == 2
    said = capsys.readouterr().err
    assert NAMES[kind] in said
    assert "give --import FILE for each" in said


def test_a_mechanism_that_claims_or_spends_too_much_is_refused(folder, tmp_path):
    """Half of the noise that it takes, said to be enough, or not."""
    own, text = tmp_path / "decaying_noise.py", (folder / "decaying_noise.py").read_text()
    settings = [f"--import={own}", *options("mechanism")]
    own.write_text(text := text.replace("sigma = 2 *", "sigma = 1 *"))
    done = mu2mpi("run", *settings, "-o", "a.h5", cwd=tmp_path)
    assert done.returncode == 2
    assert "spends rho = 8, but the budget is 4" in done.stderr
    own.write_text(text.replace("rho = 2 * self", "rho = 1 * self"))
    audit = ["--rounds", "4", "--trials", "400", "--seed", "5", "--server", "untrusted"]
    assert mu2mpi("audit", *settings, *audit, cwd=tmp_path).returncode == 1


def test_a_package_needs_no_import(folder, tmp_path):
    """The package of the page, installed outside of the environment, without a network."""
    pip = {"PIP_TARGET": str(tmp_path), "PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    page = blocks(next(page for page in PAGES if page.stem == "extending-more").read_text())
    with Session(folder, pip) as session:
        for block in page:
            if "extras" in block.text:
                session.run(block)
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = mu2mpi("run", *options("method", "mechanism"), "--machines", "5", PYTHONPATH=path, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "by heavy-ball-sgd" in done.stderr
