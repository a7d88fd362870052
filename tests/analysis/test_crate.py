"""RO-Crates: complete, repeatable by their own commands, without a byte that is not published, or absent."""

import base64
import getpass
import json
import math
import platform
import re
import shlex
import shutil
import socket
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import h5py
import numpy as np
import pytest
from rocrate.rocrate import ROCrate

from mu2mpi import cli
from mu2mpi.analysis import crate as crate_module
from mu2mpi.analysis.crate import publish_crate
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.errors import InputError
from mu2mpi.core.files import remove_temporaries
from mu2mpi.execution.environment import processor_name
from mu2mpi.execution.job import run
from mu2mpi.results.reader import read_result

SMALL = {"machines": 2, "rounds": 20}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Return a folder with private data and a folder of results, one in a folder below."""
    study = tmp_path_factory.mktemp("secret-study")
    draw = np.random.default_rng(0)
    np.savez(study / "patients.npz", X=draw.uniform(-1, 1, (200, 4)), y=draw.integers(0, 3, 200))
    for rho in (1.0, 2.0):
        run(Experiment(**SMALL, rho=rho), output=study / "runs" / f"rho {rho:g}.h5")
    settings = SMALL | {"data": str(study / "patients.npz"), "rho": 1.0}
    run(Experiment(**settings), output=study / "runs" / "clinic" / "share.h5")
    return study


@pytest.fixture(scope="module")
def crate(study, tmp_path_factory):
    folder = tmp_path_factory.mktemp("public") / "crate"
    with redirect_stdout(StringIO()) as printed:
        assert cli.main(["publish", str(study / "runs"), "-o", str(folder), "--crate"]) == 0
    assert printed.getvalue().count("privacy of one sample") == 3
    return folder


def files_in(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def graph_of(folder):
    return {
        entity["@id"]: entity
        for entity in json.loads((folder / "ro-crate-metadata.json").read_text())["@graph"]
    }


def commands_of(folder):
    return re.search(r"```sh\n(.*)```", (folder / "README.md").read_text(), re.DOTALL)[1].splitlines()


def test_a_crate_has_all_that_follows_from_the_results(crate):
    results = {"results/rho 1.h5", "results/rho 2.h5", "results/clinic/share.h5"}
    made = {"README.md", "experiments.toml", "citation.bib", "report.html", "table.csv"}
    metadata = {"ro-crate-metadata.json", "ro-crate-preview.html"}
    figures = {name for name in files_in(crate) if name.startswith("figures/")}
    assert "figures/tradeoff-curve.svg" in figures
    assert files_in(crate) == results | made | metadata | figures
    # The figures are those of the report.
    pictures = re.findall(r"data:image/svg\+xml;base64,([^\"]+)", (crate / "report.html").read_text())
    assert {(crate / name).read_bytes() for name in figures} == {*map(base64.b64decode, pictures)}
    assert len((crate / "table.csv").read_text().splitlines()) == 4


def test_not_a_byte_of_what_is_not_published(study, crate):
    texts = [
        f"{socket.gethostname()} (1)",
        platform.platform(),
        processor_name(),
        "secret-study",
        str(Path.home()),
    ]
    texts += [str(Path(sys.executable).parent), str(crate.parent), ".tmp", "nan,nan"]
    texts += [getpass.getuser()] if getpass.getuser() != "root" else []
    result = read_result(study / "runs" / "clinic" / "share.h5")
    numbers = [*vars(result.diagnostics).values(), *result.history.elapsed_seconds]
    numbers += [
        *result.history.test_loss,
        *result.history.test_accuracy,
        *np.ravel([*result.timing.values()]),
    ]
    # Digits of a round number, such as an accuracy of 0.5, may stand in a file for something else.
    digits = [f"{float(n):.6g}" for n in numbers if math.isfinite(n) and round(float(n), 4) != float(n)]
    assert len(digits) > 20
    for name in files_in(crate):
        content = (crate / name).read_bytes()
        for picture in re.findall(rb"base64,([^\"]+)", content):
            content += base64.b64decode(picture)
        if not name.endswith(".h5"):
            assert not re.search(rf"\b{re.escape(socket.gethostname())}\b".encode(), content), name
        assert [text for text in texts + digits if text.encode() in content] == [], name


def test_entities_describe_each_file_and_the_commands_that_made_it(crate):
    graph = graph_of(crate)
    loaded = ROCrate(crate)
    assert {entity.id.replace("%20", " ") for entity in loaded.data_entities} == {
        name for name in files_in(crate) if not name.startswith("ro-crate")
    }
    root = graph["./"]
    with h5py.File(crate / "results" / "rho 1.h5") as file:
        assert root["datePublished"] == file.attrs["created"][:10].decode()
    assert root["name"] == "mu2mpi on digits, patients.npz: 3 runs"
    result = graph["results/rho%201.h5"]
    assert result["encodingFormat"] == "application/x-hdf5"
    assert "machines = 2, rounds = 20" in result["description"]
    assert "untrusted server: epsilon = 4.378 at delta = 1e-05" in result["description"]
    actions = [entity for entity in graph.values() if entity["@type"] == "CreateAction"]
    assert {action["@id"] for action in actions} == {entity["@id"] for entity in root["mentions"]}
    assert {action["instrument"]["@id"] for action in actions} == {"#mu2mpi"}
    assert [action["description"] for action in actions] == commands_of(crate)
    made = [
        each["@id"]
        for a in actions
        for each in (a["result"] if isinstance(a["result"], list) else [a["result"]])
    ]
    written_by_hand = {"README.md", "experiments.toml", "citation.bib"}
    assert {*made} == {entity.id for entity in loaded.data_entities} - written_by_hand
    assert graph["#mu2mpi"]["citation"]["@id"] in graph


def test_the_commands_of_a_crate_make_its_files(study, crate, tmp_path, monkeypatch):
    shutil.copytree(crate / "results", tmp_path / "results")
    shutil.copy(crate / "experiments.toml", tmp_path)
    (tmp_path / "figures").mkdir()
    monkeypatch.chdir(tmp_path)
    *commands, repeat = commands_of(crate)
    for command in commands:
        words = shlex.split(command)
        with redirect_stdout(StringIO()) as printed:
            assert cli.main(words[1 : words.index(">") if ">" in words else None]) == 0
        if ">" in words:
            Path(words[-1]).write_text(printed.getvalue())
    made = files_in(tmp_path)
    assert made == files_in(crate) - {
        "README.md",
        "citation.bib",
        "ro-crate-metadata.json",
        "ro-crate-preview.html",
    }
    assert [name for name in made if (tmp_path / name).read_bytes() != (crate / name).read_bytes()] == []
    # The data file is not in the crate.
    shutil.copy(study / "patients.npz", tmp_path)
    with redirect_stdout(StringIO()) as printed:
        assert cli.main([*shlex.split(repeat)[1:], "--dry-run"]) == 0
    assert len(printed.getvalue().splitlines()) == 3


def test_without_a_license_it_says_so(study, tmp_path, capsys):
    publish_crate([study / "runs" / "rho 1.h5"], tmp_path / "crate")
    assert "the crate has no license, which RO-Crate requires. Set MU2MPI_LICENSE" in capsys.readouterr().err
    assert {"license", "author"}.isdisjoint(graph_of(tmp_path / "crate")["./"])
    assert "License: not stated" in (tmp_path / "crate" / "README.md").read_text()


def test_owners_that_results_name_are_those_of_the_crate(study, tmp_path, capsys, monkeypatch):
    publish = crate_module.publish

    def publish_with_owners(paths, output, **flags):
        lines = publish(paths, output, **flags)
        for path, creator in zip(
            sorted(output.glob("*.h5")), ("Ada Lovelace", "Émilie <du> Châtelet"), strict=True
        ):
            with h5py.File(path, "r+") as file:
                file.attrs["creator_name"], file.attrs["license"] = creator, "https://example.org/license"
        return lines

    monkeypatch.setattr(crate_module, "publish", publish_with_owners)
    publish_crate([study / "runs" / "rho 1.h5", study / "runs" / "rho 2.h5"], tmp_path / "crate")
    assert capsys.readouterr().err == ""
    graph = graph_of(tmp_path / "crate")
    assert graph[graph["./"]["license"]["@id"]]["name"] == "https://example.org/license"
    authors = [graph[author["@id"]] for author in graph["./"]["author"]]
    assert [(each["@type"], each["name"]) for each in authors] == [
        ("Person", "Ada Lovelace"),
        ("Person", "Émilie <du> Châtelet"),
    ]
    assert "License: https://example.org/license\n" in (tmp_path / "crate" / "README.md").read_text()
    preview = (tmp_path / "crate" / "ro-crate-preview.html").read_text()
    assert "<dd>https://example.org/license</dd>" in preview


@pytest.mark.slow
def test_flags_are_those_of_publish(study, tmp_path):
    run(Experiment(**SMALL, seed=1), output=tmp_path / "seeded.h5")
    with pytest.raises(InputError, match=r"seeded\.h5: its noise follows from its recorded seed"):
        publish_crate([tmp_path / "seeded.h5"], tmp_path / "crate")
    assert [path.name for path in tmp_path.iterdir()] == ["seeded.h5"]
    publish_crate([tmp_path / "seeded.h5"], tmp_path / "crate", even_if_unprotected=True)
    assert "seed = 1" in (tmp_path / "crate" / "experiments.toml").read_text()


@pytest.mark.slow
def test_only_a_crate_is_replaced(study, crate, tmp_path):
    source = [study / "runs" / "rho 1.h5"]
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for name in ("file", "folder"):
        for overwrite in (False, True):
            with pytest.raises(InputError, match=f"the output .*{name} exists"):
                publish_crate(source, tmp_path / name, overwrite=overwrite)
    shutil.copytree(crate, tmp_path / "crate")
    with pytest.raises(InputError, match="exists"):
        publish_crate(source, tmp_path / "crate")
    assert files_in(tmp_path / "crate") == files_in(crate)
    publish_crate(source, tmp_path / "crate", overwrite=True)
    assert {name for name in files_in(tmp_path / "crate") if name.endswith(".h5")} == {"results/rho 1.h5"}
    assert {path.name for path in tmp_path.iterdir()} == {"file", "folder", "crate"}


@pytest.mark.parametrize("is_signal", [False, True])
def test_nothing_is_left_of_a_crate_that_is_not_finished(study, crate, tmp_path, is_signal, monkeypatch):
    shutil.copytree(crate, tmp_path / "crate")
    there = Path.cwd()

    def write(runs):
        folder = Path.cwd()
        assert (folder / "results" / "rho 1.h5").exists()
        if is_signal:
            remove_temporaries()  # as the handler does before the program ends
            assert not folder.exists()
        raise OSError("disk full")

    monkeypatch.setattr(crate_module, "_write_crate", write)
    for name in ("crate", "new/crate"):
        with pytest.raises(OSError, match="disk full"):
            publish_crate([study / "runs"], tmp_path / name, overwrite=True)
    assert Path.cwd() == there
    assert {path.name for path in tmp_path.iterdir()} == {"crate", "new"}
    assert files_in(tmp_path) == {f"crate/{name}" for name in files_in(crate)}


def test_a_missing_package_is_named(study, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "rocrate", None)
    with pytest.raises(InputError, match=r'rocrate is not installed. Use: pip install "mu2mpi\[crate\]"'):
        publish_crate([study / "runs"], tmp_path / "crate")


def test_results_to_publish_are_not_in_the_crate_that_is_replaced(study, crate, tmp_path):
    """They may be the only copies, and links to them count."""
    shutil.copytree(crate, tmp_path / "crate")
    private = tmp_path / "crate" / "private" / "a.h5"
    private.parent.mkdir()
    shutil.copy(study / "runs" / "rho 1.h5", private)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link.h5").symlink_to(private)
    for source in (private, private.parent, tmp_path / "crate", tmp_path / "runs"):
        with pytest.raises(InputError, match="contains results to publish"):
            publish_crate([source], tmp_path / "crate", overwrite=True)
    assert private.exists()


def test_a_crate_that_appears_meanwhile_is_kept(study, crate, tmp_path, monkeypatch):
    write, target = crate_module._write_crate, tmp_path / "crate"

    def write_slowly(runs):
        write(runs)
        shutil.copytree(crate, target)

    monkeypatch.setattr(crate_module, "_write_crate", write_slowly)
    with pytest.raises(OSError, match="crate"):
        publish_crate([study / "runs" / "rho 1.h5"], target)
    assert files_in(target) == files_in(crate)
    assert [path.name for path in tmp_path.iterdir()] == ["crate"]


def test_an_interrupted_replacement_loses_neither_crate(study, crate, tmp_path, monkeypatch):
    shutil.copytree(crate, tmp_path / "crate")
    replace = crate_module.os.replace

    def interrupt(source, target):
        if target == tmp_path / "crate":
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(crate_module.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        publish_crate([study / "runs" / "rho 1.h5"], tmp_path / "crate", overwrite=True)
    (old,) = tmp_path.iterdir()
    assert files_in(old) == files_in(crate)


@pytest.mark.parametrize(
    "owner",
    [
        "x://<script>alert(1)</script>",
        "https://example.org/<script>alert(1)</script>",
        "MIT\n```sh\ntouch file\n```\n<script>alert(1)</script>",
        crate_module.PROFILE,
        "#mu2mpi",
        "{commands}",
    ],
)
def test_names_of_owners_are_text(owner, study, tmp_path, monkeypatch):
    monkeypatch.setenv("MU2MPI_LICENSE", owner)
    monkeypatch.setenv("MU2MPI_CREATOR", owner)
    publish_crate([study / "runs" / "rho 1.h5"], tmp_path / "crate")
    root = graph_of(tmp_path / "crate")["./"]
    assert root["license"]["@id"] in graph_of(tmp_path / "crate")
    assert root["author"]["@id"] in graph_of(tmp_path / "crate")
    for name in ("README.md", "ro-crate-preview.html"):
        assert "<script>" not in (tmp_path / "crate" / name).read_text()
    lines = (tmp_path / "crate" / "README.md").read_text().splitlines()
    commands = lines[lines.index("```sh") + 1 : lines.index("```")]
    assert {command.split()[0] for command in commands} == {"mu2mpi"}
    assert (lines.count("```sh"), lines.count("```")) == (1, 1)


def test_names_of_data_files_are_text(study, tmp_path):
    data = tmp_path / "=1 <script>\nalert(1)<b>.npz"
    shutil.copy(study / "patients.npz", data)
    run(Experiment(**SMALL, data=str(data), rho=1.0), output=tmp_path / "a.h5")
    publish_crate([tmp_path / "a.h5"], tmp_path / "crate")
    title = "mu2mpi on =1 &lt;script> alert(1)&lt;b>.npz: 1 run"
    assert (tmp_path / "crate" / "README.md").read_text().startswith(f"# {title}\n")
    assert f"<h1>{title}</h1>" in (tmp_path / "crate" / "ro-crate-preview.html").read_text()


@pytest.mark.parametrize("name", ["a\nb.h5", "\udcff.h5", "\x1b[2J.h5"])
def test_names_of_results_that_no_catalogue_shows_are_refused(name, study, tmp_path):
    shutil.copy(study / "runs" / "rho 1.h5", tmp_path / name)
    with pytest.raises(InputError, match="is not one line of text in UTF-8"):
        publish_crate([tmp_path / name], tmp_path / "crate")
    assert not (tmp_path / "crate").exists()
