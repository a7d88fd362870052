"""The command line as a user meets it: real processes, exit codes, messages, files."""

import csv
import io
import re
import time
from pathlib import Path

import h5py
import pytest
from launch import mu2mpi

from mu2mpi import cli
from mu2mpi.experiment import Experiment, Sweep, read_toml
from mu2mpi.results.reader import read_result

SMALL = ["--machines", "3", "--rounds", "20", "--seed", "1"]


def invoke(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Run the command line in this process."""
    code = cli.main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_run_show_and_table(capsys, tmp_path):
    path = tmp_path / "new folder" / "a b.h5"
    code, out, err = invoke(capsys, "run", *SMALL, "--server", "trusted", "--rho", "8", "--output", path)
    assert code == 0, err
    assert str(path) in out
    assert "round 20 of 20" in err
    result = read_result(path)
    assert result.experiment == Experiment(machines=3, rounds=20, seed=1, server="trusted", rho=8)
    assert result.x.shape == (10, 65)
    code, out, _ = invoke(capsys, "show", path)
    assert code == 0
    assert "trusted" in out
    code, out, _ = invoke(capsys, "table", tmp_path, "--format", "csv")
    assert code == 0
    assert float(next(csv.DictReader(io.StringIO(out)))["rho"]) == 8


def test_the_same_seed_gives_the_same_bits_and_another_does_not(capsys, tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        assert invoke(capsys, "run", *SMALL, "--seed", seed, "--output", tmp_path / f"{name}.h5")[0] == 0
    a, b, c = (read_result(tmp_path / f"{name}.h5") for name in "abc")
    assert a.x.tobytes() == b.x.tobytes() != c.x.tobytes()
    assert a.privacy.noise_recomputable


def test_without_a_seed_noise_is_secret(capsys, tmp_path):
    for name in "ab":
        assert (
            invoke(capsys, "run", "--machines", 2, "--rounds", 5, "--output", tmp_path / f"{name}.h5")[0] == 0
        )
    a, b = (read_result(tmp_path / f"{name}.h5") for name in "ab")
    assert a.x.tobytes() != b.x.tobytes()
    assert not a.privacy.noise_recomputable


def test_configuration_file_and_options_that_override_it(capsys, tmp_path):
    config = tmp_path / "experiment.toml"
    config.write_text('server = "trusted"\nmachines = 4\nrounds = 6\nrho = 2.0\nseed = 3\n')
    code, _, err = invoke(capsys, "run", "--config", config, "--rho", "inf", "--output", tmp_path / "a.h5")
    assert code == 0, err
    found = read_result(tmp_path / "a.h5").experiment
    assert found == Experiment(server="trusted", machines=4, rounds=6, rho=float("inf"), seed=3)
    with h5py.File(tmp_path / "a.h5") as file:
        again = tmp_path / "again.toml"
        again.write_text(file.attrs["experiment"])
    assert invoke(capsys, "run", "--config", again, "--output", tmp_path / "b.h5")[0] == 0
    assert read_result(tmp_path / "b.h5").x.tobytes() == read_result(tmp_path / "a.h5").x.tobytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--rho", "0"], ["rho", "greater than 0"]),
        (["run", "--rhoo", "1"], ["--rhoo", "--rho,", "--machines"]),
        (["run", "--machines", "5000"], ["5000", "more machines than samples"]),
        (["run", "--rounds", "100000", "--machines", "2"], ["rounds", "718"]),
        (["run", "--server", "honest"], ["honest", "trusted"]),
        (["run", "--config", "/nonexistent.toml"], ["/nonexistent.toml"]),
        (["run", "--classes", "5"], ["classes", "synthetic only"]),
        (["run", "--rho", "1e-320"], ["rho"]),
        (
            ["run", "--data", "mnist", "--data-dir", "/nonexistent"],
            ["/nonexistent", "train-images-idx3-ubyte"],
        ),
        (["run", "--output", "/proc/nothing/a.h5"], ["/proc/nothing"]),
        (["run", "--machines", "99999", "--output", "new/folder/a.h5"], ["99999"]),
        (["fly"], ["fly", "run", "sweep"]),
        ([], ["COMMAND"]),
        (["show", "/nonexistent.h5"], ["/nonexistent.h5"]),
        (["table", "/nonexistent"], ["/nonexistent"]),
        (["sweep", "/nonexistent.toml"], ["/nonexistent.toml"]),
    ],
)
def test_bad_input_is_explained_and_writes_nothing(capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, out, err = invoke(capsys, *arguments)
    assert code == 2
    assert err.startswith("mu2mpi: error: ")
    assert "Traceback" not in err + out
    for word in words:
        assert word in err
    assert list(tmp_path.iterdir()) == []


def test_the_command_that_quickstart_suggests_names_a_file_that_it_makes():
    project = Path(__file__).parents[1]
    sweep = Sweep(read_toml(project / "jobs" / "quickstart.toml"))
    names = {sweep.file_name(experiment) for experiment in sweep.experiments}
    suggested = re.findall(r"runs/quickstart/(\S+\.h5)", (project / "scripts" / "quickstart.sh").read_text())
    assert suggested
    assert set(suggested) <= names


def test_an_existing_output_is_kept_unless_told_otherwise(capsys, tmp_path):
    path = tmp_path / "a.h5"
    path.write_text("precious")
    code, _, err = invoke(capsys, "run", *SMALL, "--output", path)
    assert code == 2
    assert "--overwrite" in err
    assert path.read_text() == "precious"
    assert invoke(capsys, "run", *SMALL, "--output", path, "--overwrite")[0] == 0
    assert read_result(path).experiment.machines == 3


SWEEP = 'machines = [1, 2]\nseed = [1, 2]\nserver = ["untrusted", "trusted"]\nrounds = 8\n'


def test_sweep_skips_what_is_finished(capsys, tmp_path):
    config, folder = tmp_path / "sweep.toml", tmp_path / "runs"
    config.write_text(SWEEP)
    code, out, _ = invoke(capsys, "sweep", config, "--list")
    assert code == 0
    assert len(out.splitlines()) == 8
    assert not folder.exists()
    assert invoke(capsys, "sweep", config, "--output", folder, "--index", 3)[0] == 0
    (only,) = folder.glob("*.h5")
    assert out.splitlines()[3] == f"3 {only.name}"
    before = only.stat().st_mtime_ns
    code, _, err = invoke(capsys, "sweep", config, "--output", folder)
    assert code == 0
    assert "7 to go" in err
    assert only.stat().st_mtime_ns == before
    assert len(list(folder.glob("*.h5"))) == 8
    _, _, err = invoke(capsys, "sweep", config, "--output", folder)
    assert "0 to go" in err


def test_sweep_refuses_results_of_another_experiment(capsys, tmp_path):
    config, folder = tmp_path / "sweep.toml", tmp_path / "runs"
    config.write_text(SWEEP)
    assert invoke(capsys, "sweep", config, "--output", folder, "--index", 0)[0] == 0
    code, _, err = invoke(capsys, "sweep", config, "--output", folder, "--rho", "9")
    assert code == 2
    assert "rho is 9.0 here and 4.0 there" in err
    assert len(list(folder.glob("*.h5"))) == 1


def test_sweep_checks_every_combination_first(capsys, tmp_path):
    config = tmp_path / "sweep.toml"
    config.write_text("machines = [1, 99999]\nrounds = 3\n")
    code, _, err = invoke(capsys, "sweep", config, "--output", tmp_path / "runs")
    assert code == 2
    assert "99999" in err
    assert list(tmp_path.rglob("*.h5")) == []


def test_data_and_info(capsys):
    code, out, _ = invoke(capsys, "data", "digits")
    assert code == 0
    assert "1437 training and 360 test samples" in out
    code, out, _ = invoke(capsys, "info")
    assert code == 0
    for word in ("mpi_library", "ranks", "hosts", "numba_version", "data_cache", "kernel_cache"):
        assert word in out


def test_help_of_every_command_names_its_options(capsys):
    for command in ("run", "sweep"):
        with pytest.raises(SystemExit) as stop:
            cli.main([command, "--help"])
        assert stop.value.code == 0
        out = capsys.readouterr().out
        for name in Experiment.model_fields:
            assert f"--{name.replace('_', '-')} " in out


def test_real_processes():
    started = time.perf_counter()
    helped = mu2mpi("--help")
    assert helped.returncode == 0
    assert time.perf_counter() - started < 5
    assert re.search(r"run\s+run one experiment", helped.stdout)
    assert mu2mpi("--version").stdout.startswith("mu2mpi 0.")
    assert mu2mpi("run", "--rho", "-1").returncode == 2


def test_help_does_not_import_what_only_runs_need():
    import subprocess
    import sys

    code = (
        "import sys\nfrom mu2mpi.cli import main\n"
        "try: main(['run', '--help'])\nexcept SystemExit: pass\n"
        "print('LOADED', [m for m in ('numba', 'mpi4py', 'h5py', 'numpy') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert found.splitlines()[-1] == "LOADED []"


def test_python_interface(tmp_path: Path):
    from mu2mpi import Experiment, run

    result = run(
        Experiment(data="digits", machines=4, server="trusted", rho=4.0, seed=1), output=tmp_path / "a.h5"
    )
    assert result.history.test_accuracy[-1] > 0.3
    assert read_result(tmp_path / "a.h5").x.tobytes() == result.x.tobytes()
