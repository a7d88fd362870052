"""The command line as a user meets it: real processes, exit codes, messages, files."""

import csv
import io
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers.launch import mu2mpi
from helpers.slow import slow

from mu2mpi import cli
from mu2mpi.config.experiment import Experiment
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
    result = read_result(path)
    assert result.experiment == Experiment(machines=3, rounds=20, seed=1, server="trusted", rho=8)
    code, out, _ = invoke(capsys, "show", path)
    assert code == 0
    assert "trusted" in out
    norm = f"{result.diagnostics.largest_increment_norm:.4g}"
    assert norm not in out
    assert norm in invoke(capsys, "show", "--diagnostics", path)[1]
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
    with h5py.File(folder / "1.h5") as file:
        place = content.index(file["history/test_loss"][()].tobytes())
    (folder / "damaged.h5").write_bytes(content[:place] + b"!" + content[place + 1 :])
    with h5py.File(folder / "foreign.h5", "w") as file:
        file["x"] = 1
    return folder


COMMANDS = {"table": [], "plot": ["-o", "figure.png"], "report": ["-o", "page.html"]}


@pytest.mark.parametrize("command", ["table", "plot", *slow("report")])
def test_what_cannot_be_used_is_skipped_or_with_strict_an_error(
    capsys, mixed_folder, tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    code, _, err = invoke(capsys, command, mixed_folder, *COMMANDS[command])
    assert code == 0, err
    assert all(f"{mixed_folder / name}.h5" in err for name in ("half", "damaged", "foreign"))
    written = list(tmp_path.iterdir())
    assert len(written) == (0 if command == "table" else 1)
    for path in written:
        path.unlink()
    code, out, err = invoke(capsys, command, mixed_folder, "--strict", *COMMANDS[command])
    assert (code, out) == (2, "")
    assert "half.h5" in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_plot_and_report_overwrite_nothing(capsys, mixed_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = invoke(capsys, "plot", "history", mixed_folder / "1.h5")
    assert (code, out) == (0, "history.png\n"), err
    before = (tmp_path / "history.png").read_bytes()
    (tmp_path / "report.html").write_bytes(b"")
    for command in (["plot", "history"], ["report"]):
        code, _, err = invoke(capsys, *command, mixed_folder / "1.h5")
        assert code == 2
        assert "--overwrite" in err
    assert (tmp_path / "history.png").read_bytes() == before
    assert invoke(capsys, "plot", "history", mixed_folder / "2.h5", "--overwrite")[0] == 0
    assert (tmp_path / "history.png").read_bytes() != before


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ("plot history", "mu2mpi plot"),
        ("plot histroy .", "history"),
        ("plot history . -o a.gif", "png"),
        ("plot scaling . --x-axis rho", "scaling"),
        ("table . --rows roh", "rho"),
        ("table . --where rho", "results"),
        ("report .", "results"),
        ("report . -o a.pdf", ".html"),
        ("report . --output=--", "--output"),
        ("run --rho 0", "rho"),
        ("run --rho 1 --epsilon 1", "epsilon"),
        ("run --quux 1", "unknown option --quux"),
        ("run --machines 5000", "5000"),
        ("run --rounds 100000 --machines 2", "718"),
        ("run --server honest", "trusted"),
        ("run --config /nonexistent.toml", "/nonexistent.toml"),
        ("run --classes 5", "classes"),
        ("run --rho 1e-320", "rho"),
        ("run --data mnist --data-dir /nonexistent", "train-images-idx3-ubyte"),
        ("run --output /proc/nothing/a.h5", "/proc/nothing"),
        ("run --machines 99999 --output new/folder/a.h5", "99999"),
        ("privacy", "--rho"),
        ("privacy --rho 1 a.h5", "result files"),
        ("privacy --rho four", "four"),
        ("privacy --rho 1 --epsilon 1 --delta 0.1", "--rho"),
        ("privacy a.h5 --machines-of-a-person all", "--machines-of-a-person"),
        ("show /nonexistent.h5", "/nonexistent.h5"),
        ("sweep /nonexistent.toml", "/nonexistent.toml"),
        ("sweep", "TOML"),
    ],
)
def test_bad_input_is_explained_and_writes_nothing(capsys, tmp_path, monkeypatch, arguments, word):
    monkeypatch.chdir(tmp_path)
    code, out, err = invoke(capsys, *arguments.split())
    assert code == 2
    assert "Traceback" not in err + out
    assert word in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "loop", "loop", "-o", "loop"],
        ["predict", "loop", "loop", "-o", "a.csv"],
        ["show", "loop"],
        ["publish", "runs", "-o", "loop/a"],
        ["info", "--import", "loop"],
        ["examples", "--all", "-o", "file/new"],
        ["examples", "--all", "-o", "file"],
        ["examples", "--all", "-o", "loop"],
        ["table", ""],
        ["report", "runs", "--output="],
    ],
)
def test_paths_that_lead_nowhere_are_refused(capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "runs").mkdir()
    code, out, err = invoke(capsys, *words)
    assert (code, out) == (2, "")
    assert re.search("loop|file|empty|no results", err)
    assert {path.name for path in tmp_path.rglob("*")} == {"loop", "file", "runs"}
    assert (tmp_path / "file").read_text() == "mine"


def test_without_the_extra_a_command_says_what_to_install(mixed_folder, tmp_path):
    script = (
        "import sys\nfor name in ('matplotlib', 'pandas'): sys.modules[name] = None\n"
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


def test_the_same_seed_gives_the_same_bits_and_without_one_noise_is_secret(capsys, tmp_path):
    seeds = {"a": ["--seed", 1], "b": ["--seed", 1], "c": ["--seed", 2], "d": [], "e": []}
    for name, seed in seeds.items():
        words = ["--machines", 2, "--rounds", 5, *seed, "--output", tmp_path / f"{name}.h5"]
        assert invoke(capsys, "run", *words)[0] == 0
    a, b, c, d, e = (read_result(tmp_path / f"{name}.h5") for name in seeds)
    assert a.x.tobytes() == b.x.tobytes()
    assert len({result.x.tobytes() for result in (a, c, d, e)}) == 4
    assert [result.privacy.noise_recomputable for result in (a, d)] == [True, False]


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
    config, paths = tmp_path / "experiment.toml", [tmp_path / f"{name}.h5" for name in "abcd"]
    config.write_text("rho = 2.0\nmachines = 3\nrounds = 20\nseed = 4\n")
    assert invoke(capsys, "run", "--config", config, "--epsilon", "2", "--output", paths[0])[0] == 0
    a = read_result(paths[0])
    assert a.experiment == Experiment(epsilon=2, machines=3, rounds=20, seed=4)
    # The same experiment as a rho has the same bits.
    assert invoke(capsys, "run", "--config", config, "--rho", a.experiment.rho, "--output", paths[1])[0] == 0
    assert read_result(paths[1]).x.tobytes() == a.x.tobytes()
    config.write_text("epsilon = 2.0\n")
    assert invoke(capsys, "run", "--config", config, *SMALL, "--rho", 3, "--output", paths[2])[0] == 0
    assert read_result(paths[2]).experiment.rho == 3


def test_privacy_converts_and_checks(capsys, mixed_folder):
    code, out, _ = invoke(capsys, "privacy", "--epsilon", 2, "--delta", "1e-5")
    assert code == 0
    assert f"rho = {Experiment(epsilon=2).rho}" in out
    assert invoke(capsys, "privacy", mixed_folder / "1.h5", mixed_folder / "2.h5")[::2] == (0, "")


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
    code, out, _ = invoke(capsys, "sweep", config, "--dry-run")
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
    assert "0 to go" in invoke(capsys, "sweep", config, "--output", folder)[2]
    # Results of another experiment are not replaced.
    assert invoke(capsys, "sweep", config, "--output", folder, "--rho", "9")[0] == 2
    assert only.stat().st_mtime_ns == before


def test_parts_of_a_sweep_make_all_of_it(capsys, tmp_path):
    config, folder = tmp_path / "sweep.toml", tmp_path / "runs"
    config.write_text(SWEEP)
    for part, so_far in (("1/3", 3), ("0/3", 6), ("2/3", 8), ("8/9", 8)):
        code, _, err = invoke(capsys, "sweep", config, "--output", folder, "--part", part)
        assert code == 0, err
        assert len(list(folder.glob("*.h5"))) == so_far


@pytest.mark.parametrize(
    "words",
    ["--part=3/3", "--part=-1/3", "--part=1", "--part=a/b", "--part=0/3 --index 1", "--machines 99999"],
)
def test_bad_parts_and_combinations_are_found_before_any_run(capsys, tmp_path, words):
    (tmp_path / "sweep.toml").write_text(SWEEP)
    where = [tmp_path / "sweep.toml", "--output", tmp_path / "runs"]
    code, _, err = invoke(capsys, "sweep", *where, *words.split())
    assert code == 2
    assert words[:6] in err or "99999" in err
    assert not (tmp_path / "runs").exists()


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
    code, out, _ = invoke(capsys, "show", output)
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, 9" in out
    assert invoke(capsys, "run", "--data", path, "--output", tmp_path / "b.h5")[0] == 2


@pytest.fixture
def patients(tmp_path):
    """Return a file of the user's."""
    draw = np.random.default_rng(0)
    np.savez(tmp_path / "p.npz", X=draw.uniform(-1, 1, (100, 4)), y=draw.integers(0, 2, 100))
    return tmp_path / "p.npz"


def test_a_test_set_that_is_not_protected_is_named_at_the_end(capsys, patients, tmp_path):
    command = ["run", "--data", patients, "--rounds", 20, "--output"]
    _, out, _ = invoke(capsys, *command, tmp_path / "a.h5")
    assert "not private" in out
    for name, more in (("b.h5", ["--seed", 1]), ("c.h5", ["--test", patients])):
        assert "not private" not in invoke(capsys, *command, tmp_path / name, *more)[1]
    (tmp_path / "sweep.toml").write_text(f'data = "{patients}"\nrounds = 20\nrho = [1, 2]')
    _, out, _ = invoke(capsys, "sweep", tmp_path / "sweep.toml", "--output", tmp_path / "runs")
    assert out.count("not private") == 1


def test_publish(capsys, patients, tmp_path):
    runs, public = tmp_path / "runs", tmp_path / "public"
    for name, more in (("a.h5", []), ("b.h5", ["--seed", 1])):
        invoke(capsys, "run", "--data", patients, "--rounds", 20, *more, "--output", runs / name)
    assert invoke(capsys, "publish", runs, "-o", public)[0] == 2
    assert not public.exists()
    flags = ["--overwrite", "--even-if-unprotected", "--with-test-results"]
    assert invoke(capsys, "publish", runs, "-o", public, *flags)[0] == 0
    assert read_result(public / "a.h5").history.test_loss.tobytes()


def test_data_and_info(capsys):
    code, out, _ = invoke(capsys, "data", "digits")
    assert code == 0
    assert "1437 training and 360 test samples" in out
    code, out, _ = invoke(capsys, "info")
    assert code == 0
    for word in ("mpi_library", "ranks", "hosts", "numba_version", "data_cache", "kernel_cache"):
        assert word in out


def test_real_processes():
    assert mu2mpi("--version").stdout.startswith("mu2mpi 0.")
    assert mu2mpi("run", "--rho", "-1").returncode == 2
