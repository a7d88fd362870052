"""R, netCDF, GDAL and Octave read from results what h5py reads from them, also from published ones."""

import json
import os
import re
import shutil
import subprocess

import h5py
import numpy as np
import pytest
from blocks import blocks
from helpers.page_commands import PROJECT
from helpers.requirements import missing

from mu2mpi.analysis.publication import publish
from mu2mpi.config.experiment import Experiment
from mu2mpi.core.hdf5 import read_attributes
from mu2mpi.execution.job import run

PAGE = PROJECT / "docs" / "reference" / "result-file.md"
ARRAYS = ("model/x", "history/round", "history/test_loss", "history/message_norm", "history/elapsed_seconds")
LABELS = "model/label"
GROUPS = ("", "privacy", "experiment")
BIG = 2**53 + 1
"""An integer that is no float64."""

R_PACKAGES = {
    "hdf5r": """
        file <- H5File$new(path, mode = "r")
        array <- function(name) file[[name]]$read()
        attributes <- function(group) h5attributes(file[[paste0("/", group)]])
    """,
    "rhdf5": """
        array <- function(name) h5read(path, name, bit64conversion = "bit64")
        attributes <- function(group) h5readAttributes(path, paste0("/", group), bit64conversion = "bit64")
    """,
}
R_LINES = """
    line <- function(name, value) {
        is_integer <- inherits(value, "integer64")
        text <- if (is.character(value)) encodeString(value)
            else if (is_integer) bit64::as.character.integer64(value) else sprintf("%.17g", value)
        cat(name, text, sep = "\\t")
        cat("\\n")
    }
    for (name in arrays) line(name, array(name))
    for (group in groups) {
        found <- attributes(group)
        for (name in names(found)) line(paste0(group, "@", name), found[[name]])
    }
"""
OCTAVE_LINES = """
    pkg load netcdf
    function line(name, value)
        if (ischar(value)) text = ["\\t" undo_string_escapes(value)];
        elseif (isinteger(value)) text = sprintf("\\t%d", value);
        else text = sprintf("\\t%.17g", value);
        end
        printf("%s%s\\n", name, text);
    end
    for k = 1:numel(arrays)
        line(arrays{k}, ncread(path, ["/" arrays{k}]));
    end
    for k = 1:numel(names)
        parts = strsplit(names{k}, "@");
        line(names{k}, ncreadatt(path, ["/" parts{1}], parts{2}));
    end
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Return a result and its published copy, whose settings have each type."""
    folder = tmp_path_factory.mktemp("study")
    draw = np.random.default_rng(0)
    np.savez(
        folder / "a.npz",
        X=draw.uniform(-1, 1, (200, 4)),
        y=np.array(["a", "ö", "5"])[draw.integers(0, 3, 200)],
    )
    kinds = {"data": str(folder / "a.npz"), "data_is_public": True, "participation_seed": BIG, "rho": 2.0}
    experiment = Experiment(**kinds, participation="uniform:2", machines=3, rounds=9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MU2MPI_CREATOR", 'Ä. "B" \\ C')
        run(experiment, output=folder / "result.h5")
    publish([folder / "result.h5"], folder / "public.h5", with_test_results=True)
    return folder / "result.h5", folder / "public.h5"


def by_h5py(path):
    """Return the arrays and attributes of a file by name."""
    with h5py.File(path) as file:
        found = {name: file[name][()] for name in ARRAYS} | {LABELS: file[LABELS].asstr()[()]}
        for group in GROUPS:
            attributes = read_attributes(file[f"/{group}"])
            found |= {f"{group}@{name}": value for name, value in attributes.items()}
    return found


def output(*command):
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C.UTF-8"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def value_of(text):
    """Return a number of its type, as programs print it, or the text."""
    if re.fullmatch(r"-?\d+(LL|UB)?", text):
        return int(text.rstrip("LUB"))
    try:
        return float(text)
    except ValueError:
        return re.sub(r"\\(.)", lambda found: {"n": "\n"}.get(found[1], found[1]), text)


def from_lines(text):
    found = {}
    for line in text.splitlines():
        name, *values = line.split("\t")
        found[name] = [*map(value_of, values)]
    return found


def by_r(package, path):
    names = {"arrays": (*ARRAYS, LABELS), "groups": GROUPS}
    lists = "\n".join(f"{name} <- c({json.dumps(each)[1:-1]})" for name, each in names.items())
    text = f"library({package})\npath <- {json.dumps(str(path))}\n{lists}{R_PACKAGES[package]}{R_LINES}"
    return from_lines(output("Rscript", "-e", text))


def by_octave(path):
    names = {"arrays": ARRAYS, "names": [name for name in by_h5py(path) if "@" in name]}
    lists = "\n".join(f"{name} = {{{json.dumps(each)[1:-1]}}};" for name, each in names.items())
    script = path.with_suffix(".m")
    script.write_text(f"1;\npath = {json.dumps(str(path))};\n{lists}\n{OCTAVE_LINES}")
    return from_lines(output("octave", "--no-gui", "--quiet", str(script)))


def by_ncdump(path):
    # Version 4.9.0 of netCDF, of Debian 12, crashes on arrays of strings of fixed length, and so does Octave.
    arrays = ",".join(f"/{name}" for name in ARRAYS)
    text, found = output("ncdump", "-p", "9,17", "-v", arrays, str(path)), {}

    def group(name):
        return re.search(rf"^group: {name} {{$(.*?)^  }} // group {name}$", text, re.MULTILINE | re.DOTALL)[1]

    for name in ARRAYS:
        parent, array = name.split("/")
        (values,) = re.findall(rf"^ *{array} = ?\n?([^:]*?) ;$", group(parent), re.MULTILINE)
        found[name] = [*map(value_of, re.split(r",\s*", values.strip()))]
    for name in GROUPS:
        lines = re.findall(r"^\s+:(\S+) = (.*) ;$", group(name) if name else text.split("group: ")[0], re.M)
        found |= {f"{name}@{key}": [value_of(re.sub(r'^"(.*)"$', r"\1", value))] for key, value in lines}
    return found


def by_gdal(path):
    root = json.loads(output("gdalmdiminfo", "-detailed", str(path)))
    found = {}
    for name in (*ARRAYS, LABELS):
        group, array = name.split("/")
        found[name] = np.ravel(root["groups"][group]["arrays"][array]["values"]).tolist()
    for name in GROUPS:
        attributes = (root["groups"][name] if name else root)["attributes"]
        found |= {f"{name}@{key}": [value["value"]] for key, value in attributes.items()}
    return found


def check_tool(program, installed):
    """Skip without a program; where continuous integration installs it, its absence is a failure."""
    if shutil.which(program) is None:
        (missing if installed else pytest.skip)(f"{program} is not installed")


def check(read, files, has_labels=True):
    for path in files:
        expected, found = by_h5py(path), read(path)
        assert found.keys() == expected.keys() - (set() if has_labels else {LABELS})
        for name, ours in found.items():
            values = np.ravel(expected[name]).tolist()
            ours = [
                type(w)(v) if isinstance(w, float | str) else v for v, w in zip(ours, values, strict=True)
            ]
            assert repr(ours) == repr(values), name


def test_settings_have_their_types(files):
    for path in files:
        with h5py.File(path) as file:
            settings = file["experiment"].attrs
            assert [settings[name].dtype for name in ("machines", "rho", "data_is_public")] == [
                np.dtype(kind) for kind in ("i8", "f8", "u1")
            ]
            assert (settings["participation_seed"], settings["data_is_public"]) == (BIG, 1)


def test_netcdf(files):
    check_tool("ncdump", installed=True)
    check(by_ncdump, files, has_labels=False)


@pytest.mark.slow
@pytest.mark.parametrize("package", R_PACKAGES)
def test_r(package, files):
    check_tool("Rscript", installed=True)
    find = ["Rscript", "-e", f"library({package})"]
    if package != "hdf5r" and subprocess.run(find, capture_output=True).returncode != 0:
        pytest.skip("the package rhdf5 of R is not installed (on Debian: apt install r-bioc-rhdf5)")
    check(lambda path: by_r(package, path), files)


def test_gdal(files):
    check_tool("gdalmdiminfo", installed=False)
    check(by_gdal, files)


def test_octave(files):
    check_tool("octave", installed=False)
    check(by_octave, files, has_labels=False)


@pytest.mark.parametrize("program", ["gdalmdiminfo", "octave"])
def test_commands_that_the_page_shows_without_running_them(program, files, tmp_path):
    """Blocks of commands that continuous integration lacks are text."""
    check_tool(program, installed=False)
    shown = [each.text for each in blocks(PAGE.read_text()) if each.language == "text"]
    (command,) = (text for text in shown if text.startswith(program))
    (tmp_path / "runs").mkdir()
    shutil.copy(files[0], tmp_path / "runs" / "a.h5")
    done = subprocess.run(["bash", "-e", "-c", command], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loss = by_h5py(files[0])["history/test_loss"][-1]
    assert any(abs(float(number) - loss) < 1e-4 for number in re.findall(r"\d+\.\d+", done.stdout))
