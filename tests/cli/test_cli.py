"""The command line as a user meets it: real processes, exit codes, messages, files."""

import csv
import io
import re
import subprocess
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest
from launch import mu2mpi
from limits import stretched
from slowly import slow

from mu2mpi import cli
from mu2mpi.config.experiment import Experiment
from mu2mpi.config.sweep import Sweep
from mu2mpi.results.reader import read_result
from mu2mpi.toml import read_toml

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


@pytest.fixture(scope="module")
def mixed_folder(tmp_path_factory):
    """Return a folder of two results and three files that cannot be used."""
    folder = tmp_path_factory.mktemp("mixed")
    for seed in (1, 2):
        assert cli.main(["run", *SMALL, "--seed", str(seed), "--output", str(folder / f"{seed}.h5")]) == 0
    content = (folder / "1.h5").read_bytes()
    (folder / "half.h5").write_bytes(content[: len(content) // 2])
    (folder / "damaged.h5").write_bytes(content[:5000] + b"!" + content[5001:])
    with h5py.File(folder / "foreign.h5", "w") as file:
        file["x"] = 1
    return folder


COMMANDS = {
    "table": [],
    "plot": ["-o", "figure.png"],
    "report": ["-o", "page.html"],
}


@pytest.mark.parametrize("command", ["table", "plot", *slow("report")])
def test_what_cannot_be_used_is_skipped_or_with_strict_an_error(
    capsys, mixed_folder, tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    code, _, err = invoke(capsys, command, mixed_folder, *COMMANDS[command])
    assert code == 0, err
    for name in ("half", "damaged", "foreign"):
        assert f"warning: skipped: {mixed_folder / name}.h5" in err
    written = list(tmp_path.iterdir())
    assert len(written) == (0 if command == "table" else 1)
    for path in written:
        path.unlink()
    code, out, err = invoke(capsys, command, mixed_folder, "--strict", *COMMANDS[command])
    assert code == 2
    assert out == ""
    assert "half.h5" in err
    assert "foreign.h5" in err
    assert list(tmp_path.iterdir()) == []


def test_plot_and_report_overwrite_nothing(capsys, mixed_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = invoke(capsys, "plot", "weights", mixed_folder / "1.h5")
    assert (code, out) == (0, "weights.png\n"), err
    before = (tmp_path / "weights.png").read_bytes()
    (tmp_path / "report.html").write_bytes(b"")
    for command in (["plot", "weights"], ["report"]):
        code, _, err = invoke(capsys, *command, mixed_folder / "1.h5")
        assert code == 2
        assert "--overwrite" in err
    assert (tmp_path / "weights.png").read_bytes() == before
    assert invoke(capsys, "plot", "weights", mixed_folder / "2.h5", "--overwrite")[0] == 0
    assert (tmp_path / "weights.png").read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plot", "history"], ["mu2mpi plot history runs/"]),
        (["plot", "histroy", "."], ["histroy is neither a figure nor a file", "did you mean history?"]),
        (["plot", "tables", "."], ["the figures are history, tradeoff"]),
        (["plot", "history", ".", "-o", "a.gif"], ["png, svg, pdf, pgf"]),
        (["plot", "noise", ".", "--against", "rho"], ["noise"]),
        (["table", ".", "--rows", "roh"], ["'roh'", "rho"]),
        (["table", ".", "--where", "rho"], ["no results"]),
        (["report", "."], ["no results in ."]),
        (["report", ".", "-o", "a.pdf"], ["a.pdf", ".html or .htm"]),
    ],
)
def test_bad_input_of_analysis(capsys, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    code, _, err = invoke(capsys, *arguments)
    assert code == 2
    for word in words:
        assert word in err


def test_without_the_extra_a_command_says_what_to_install(mixed_folder, tmp_path):
    script = (
        "import sys\nfor name in ('matplotlib', 'pandas', 'xarray'): sys.modules[name] = None\n"
        "from mu2mpi.cli import main\nsys.exit(main(sys.argv[1:]))"
    )
    for command in (["plot", "history"], ["report"]):
        arguments = [sys.executable, "-c", script, *command, str(mixed_folder / "1.h5")]
        done = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path)
        assert done.returncode == 2
        assert 'pip install "mu2mpi[analysis]"' in done.stderr
        assert "Traceback" not in done.stderr
        assert list(tmp_path.iterdir()) == []
    table = [sys.executable, "-c", script, "table", str(mixed_folder / "1.h5")]
    assert subprocess.run(table, capture_output=True, text=True).returncode == 0


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
        again.write_text(file.attrs["experiment"].decode())
    assert invoke(capsys, "run", "--config", again, "-o", tmp_path / "b.h5")[0] == 0
    assert read_result(tmp_path / "b.h5").x.tobytes() == read_result(tmp_path / "a.h5").x.tobytes()


def test_epsilon_instead_of_rho(capsys, tmp_path):
    config, path = tmp_path / "experiment.toml", tmp_path / "a.h5"
    config.write_text("rho = 2.0\nmachines = 3\nrounds = 20\n")
    code, out, err = invoke(capsys, "run", "--config", config, "--epsilon", "2", "--output", path)
    assert code == 0, err
    assert "rho = 0.500622 (epsilon = 2, delta = 1e-05)" in err
    begin = "privacy of one sample of one machine (replace-one), untrusted server: epsilon ="
    assert f"{begin} 1.996 at delta = 1e-05, rho = 0.50" in out
    found = read_result(path).experiment
    assert found == Experiment(epsilon=2, machines=3, rounds=20)
    # The same experiment as a rho has the same bits.
    same = ["--machines", 3, "--rounds", 20, "--seed", 4]
    for name, option, value in (("b", "epsilon", 2), ("c", "rho", found.rho)):
        assert invoke(capsys, "run", *same, f"--{option}", value, "--output", tmp_path / f"{name}.h5")[0] == 0
    b, c = (read_result(tmp_path / f"{name}.h5") for name in "bc")
    assert b.x.tobytes() == c.x.tobytes()
    config.write_text("epsilon = 2.0\n")
    code, _, err = invoke(
        capsys, "run", "--config", config, *SMALL, "--rho", 3, "--output", tmp_path / "d.h5"
    )
    assert code == 0, err
    assert read_result(tmp_path / "d.h5").experiment.rho == 3


def test_sweep_and_table_of_epsilon(capsys, tmp_path):
    config, folder = tmp_path / "sweep.toml", tmp_path / "runs"
    config.write_text("epsilon = [0.5, 2]\nseed = [1, 2]\nmachines = 2\nrounds = 8\n")
    assert invoke(capsys, "sweep", config, "--output", folder)[0] == 0
    _, out, err = invoke(capsys, "sweep", config, "-o", folder)
    assert "0 to go" in err
    code, out, _ = invoke(capsys, "table", folder, "--rows", "epsilon", "--format", "csv")
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["epsilon"], row["seeds"]) for row in rows] == [("0.5", "2"), ("2", "2")]
    assert all(float(row["rho"]) < 1 for row in rows)
    # One table with either, as the other goes with it.
    for choice in (["--rows", "epsilon"], []):
        assert invoke(capsys, "table", folder, *choice)[1].count("digits, ") == 1
    code, out, _ = invoke(capsys, "table", folder, "--where", "epsilon=2", "--format", "csv")
    assert [row["rho"] for row in csv.DictReader(io.StringIO(out))] == [rows[1]["rho"]]


def test_privacy_converts_and_checks(capsys, mixed_folder, tmp_path):
    code, out, _ = invoke(capsys, "privacy", "--epsilon", 2, "--delta", "1e-5")
    assert code == 0
    assert f"rho = {Experiment(epsilon=2).rho}" in out
    code, out, err = invoke(capsys, "privacy", mixed_folder / "1.h5", mixed_folder / "2.h5")
    assert (code, err) == (0, "")
    assert out.count("agrees") == 2
    path = tmp_path / "changed.h5"
    path.write_bytes((mixed_folder / "1.h5").read_bytes())
    with h5py.File(path, "r+") as file:
        file["privacy"].attrs["sigma"] /= 2
    code, out, err = invoke(capsys, "privacy", path)
    assert code == 1
    assert "MISMATCH" in out
    assert err.startswith(f"mu2mpi: error: {path}: rho = 4 is claimed, but 20 rounds with sigma = ")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "--rho", "0"], ["rho", "greater than 0"]),
        (["run", "--rho", "1", "--epsilon", "1"], ["rho and epsilon are both given"]),
        (["run", "--epsilon", "-1"], ["epsilon", "greater than 0"]),
        (["privacy"], ["result files", "--rho"]),
        (["privacy", "--rho", "1", "a.h5"], ["result files"]),
        (["privacy", "--rho", "four"], ["four"]),
        (["privacy", "--rho", "1", "--epsilon", "1", "--delta", "0.1"], ["two of"]),
        (["privacy", "/nonexistent.h5"], ["/nonexistent.h5"]),
        (["run", "--quux", "1"], ["--quux", "--rho,", "--machines"]),
        (["run", "--machines", "5000"], ["5000", "more machines than samples"]),
        (["run", "--rounds", "100000", "--machines", "2"], ["rounds", "718"]),
        (["run", "--server", "honest"], ["honest", "trusted"]),
        (["run", "--config", "/nonexistent.toml"], ["/nonexistent.toml"]),
        (["run", "--classes", "5"], ["classes", "synthetic or population only"]),
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
    project = Path(__file__).parents[2]
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


def test_parts_of_a_sweep_make_all_of_it(capsys, tmp_path):
    config, folder = tmp_path / "sweep.toml", tmp_path / "runs"
    config.write_text(SWEEP)
    for part, so_far in (("1/3", 3), ("0/3", 6), ("2/3", 8), ("8/9", 8)):
        code, _, err = invoke(capsys, "sweep", config, "--output", folder, "--part", part)
        assert code == 0, err
        assert len(list(folder.glob("*.h5"))) == so_far
    assert "0 of 0 runs are finished" in err


@pytest.mark.parametrize("part", ["3/3", "-1/3", "1", "1/0", "a/b", "1/2/3", "0/3 --index 1"])
def test_bad_parts_of_a_sweep(capsys, tmp_path, part):
    (tmp_path / "sweep.toml").write_text(SWEEP)
    words = f"--part={part}".split()
    code, _, err = invoke(capsys, "sweep", tmp_path / "sweep.toml", "--output", tmp_path / "runs", *words)
    assert code == 2
    assert "--part" in err
    assert not (tmp_path / "runs").exists()


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


def test_a_file_of_ones_own_from_end_to_end(capsys, tmp_path, monkeypatch):
    from sklearn.datasets import dump_svmlight_file, load_digits

    # The noise of a seed depends on the name of the file, which must not differ from run to run.
    monkeypatch.chdir(tmp_path)
    path, output = Path("digits.svm"), Path("a.h5")
    dump_svmlight_file(*load_digits(return_X_y=True), str(path), zero_based=False)
    code, out, _ = invoke(capsys, "data", path)
    assert code == 0
    assert "1438 training and 359 test samples, 64 features" in out
    command = ["run", "--data", path, "--normalize", "box", "--feature-bound", 16, "--output", output]
    code, _, err = invoke(
        capsys, *command, "--machines", 4, "--partition", "dirichlet:100", "--server", "trusted", "--seed", 1
    )
    assert code == 0, err
    result = read_result(output)
    assert result.history.test_accuracy[-1] > 0.3
    assert result.class_names == tuple(map(str, range(10)))
    assert result.class_counts.shape == (4, 10)
    assert np.all(result.class_counts > 0)
    code, out, _ = invoke(capsys, "show", output)
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, 9" in out
    code, _, err = invoke(capsys, "run", "--data", path, "--output", tmp_path / "b.h5")
    assert code == 2
    assert "--normalize box" in err
    code, _, err = invoke(capsys, "plot", "partition", output, "-o", tmp_path / "p.png")
    assert code == 0, err


@pytest.fixture
def patients(tmp_path):
    """Return a file of the user's."""
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "p.npz", X=draw.uniform(-1, 1, (100, 4)), y=draw.integers(0, 2, 100))
    return tmp_path / "p.npz"


def test_a_test_set_that_is_not_protected_is_named_at_the_end(capsys, patients, tmp_path):
    command = ["run", "--data", patients, "--rounds", 20, "--output"]
    _, out, _ = invoke(capsys, *command, tmp_path / "a.h5")
    assert "not private: test loss and scores were computed without noise" in out.splitlines()[-1]
    for name, more in (("b.h5", ["--seed", 1]), ("c.h5", ["--test", patients])):
        assert "not private" not in invoke(capsys, *command, tmp_path / name, *more)[1]
    (tmp_path / "sweep.toml").write_text(f'data = "{patients}"\nrounds = 20\nrho = [1, 2]')
    _, out, _ = invoke(capsys, "sweep", tmp_path / "sweep.toml", "--output", tmp_path / "runs")
    assert out.count("not private") == 1
    assert "nothing protects the people" in " ".join(invoke(capsys, "show", tmp_path / "a.h5")[1].split())
    assert "nothing protects the people" not in " ".join(invoke(capsys, "show", tmp_path / "c.h5")[1].split())


def test_publish(capsys, patients, tmp_path):
    runs, public = tmp_path / "runs", tmp_path / "public"
    for name, more in (("a.h5", []), ("b.h5", ["--seed", 1])):
        invoke(capsys, "run", "--data", patients, "--rounds", 20, *more, "--output", runs / name)
    code, out, err = invoke(capsys, "publish", runs, "-o", public)
    assert (code, out, public.exists()) == (2, "", False)
    assert "b.h5: its noise follows from the seed" in err
    assert "a.h5" not in err
    code, out, err = invoke(capsys, "publish", runs / "a.h5", "-o", public / "a.h5")
    assert code == 0, err
    assert "without loss and scores" in out
    assert "privacy of one sample of one machine" in out
    assert invoke(capsys, "publish", runs / "a.h5", "-o", public / "a.h5")[0] == 2
    code, out, err = invoke(
        capsys, "publish", runs, "-o", public, "--overwrite", "--even-if-unprotected", "--with-test-results"
    )
    assert code == 0, err
    assert "without loss and scores" not in out
    for command in (["show"], ["show", "--diagnostics"], ["table"], ["privacy"]):
        assert invoke(capsys, *command, public / "a.h5")[0] == 0
    code, _, err = invoke(capsys, "plot", "timing", public / "a.h5", "-o", tmp_path / "t.png")
    assert code == 2
    assert "a.h5 holds none" in err


def test_show_keeps_diagnostics_for_who_asks(capsys, tmp_path):
    invoke(capsys, "run", *SMALL, "--output", tmp_path / "a.h5")
    norm = f"{read_result(tmp_path / 'a.h5').diagnostics.largest_increment_norm:.4g}"
    assert norm not in invoke(capsys, "show", tmp_path / "a.h5")[1]
    assert norm in invoke(capsys, "show", "--diagnostics", tmp_path / "a.h5")[1]


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
    assert time.perf_counter() - started < stretched(5)
    assert re.search(r"run\s+run one experiment", helped.stdout)
    assert mu2mpi("--version").stdout.startswith("mu2mpi 0.")
    assert mu2mpi("run", "--rho", "-1").returncode == 2


def test_python_interface(tmp_path: Path):
    from mu2mpi import Experiment, run

    result = run(
        Experiment(data="digits", machines=4, server="trusted", rho=4.0, seed=1), output=tmp_path / "a.h5"
    )
    assert result.history.test_accuracy[-1] > 0.3
    assert read_result(tmp_path / "a.h5").x.tobytes() == result.x.tobytes()
