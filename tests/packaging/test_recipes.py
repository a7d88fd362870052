"""The recipes of packaging/ say what setup.cfg says, and the tools that they are for accept them."""

import ast
import configparser
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from helpers.requirements import missing

from mu2mpi import __version__

PROJECT = Path(__file__).parents[2]
PACKAGING = PROJECT / "packaging"
TOOLS = PROJECT / ".venv-packaging" / "bin"

CONDA = PACKAGING / "conda" / "recipe.yaml"
SPACK = PACKAGING / "spack" / "package.py"
DOCKERFILE = PACKAGING / "docker" / "Dockerfile"
APPTAINER = PACKAGING / "apptainer" / "mu2mpi.def"
LMOD = "/usr/share/lmod/lmod/libexec/lmod"

CHECKSUM = re.compile(r"\b[0-9a-f]{64}\b")

EASYBUILD_BUNDLES = {
    "numpy": "SciPy-bundle",
    "pandas": "SciPy-bundle",
    "scipy": "SciPy-bundle",
    "jinja2": "Python-bundle-PyPI",
    "platformdirs": "Python-bundle-PyPI",
    "requests": "Python-bundle-PyPI",
    "tomli-w": "Python-bundle-PyPI",
}
"""Modules of EasyBuild that hold packages of other names."""


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def requirements(text: str) -> dict[str, str]:
    """Lower bounds by normalised name, of lines such as `numpy >= 1.26`."""
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    pairs = [re.fullmatch(r"([\w.-]+)\s*>=\s*([\d.]+)", line) for line in lines if line]
    assert None not in pairs, text
    return {normalised(pair[1]): pair[2] for pair in pairs}


def as_tuple(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


@pytest.fixture(scope="module")
def setup() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser()
    parsed.read(PROJECT / "setup.cfg")
    return parsed


@pytest.fixture(scope="module")
def wanted(setup) -> dict[str, str]:
    return requirements(setup["options"]["install_requires"])


@pytest.fixture(scope="module")
def python_min(setup) -> str:
    return setup["options"]["python_requires"].removeprefix(">=")


@pytest.fixture(scope="module")
def build_requirement() -> str:
    """Lower bound of setuptools."""
    return re.search(r"setuptools>=(\d+)", (PROJECT / "pyproject.toml").read_text())[1]


def easyconfig() -> Path:
    (path,) = (PACKAGING / "easybuild").glob("*.eb")
    return path


def assigned(path: Path) -> dict:
    """Constants that a file of Python assigns; names stand for themselves."""
    body = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.Assign)]
    values = {}
    for node in body:
        try:
            values[node.targets[0].id] = ast.literal_eval(node.value)
        except ValueError:
            continue
    return values


def spack_calls(name: str) -> list[ast.Call]:
    """Calls of a directive in the package of Spack, wherever in its class."""
    return [
        node
        for node in ast.walk(ast.parse(SPACK.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
    ]


def spack_depends() -> dict[str, str]:
    specs = [call.args[0].value for call in spack_calls("depends_on")]
    return {spec.partition("@")[0].removeprefix("py-"): spec.partition("@")[2].rstrip(":") for spec in specs}


# Each place that names the version, and what is found there.
VERSIONS = {
    CONDA: r'^  version: "(.*)"$',
    SPACK: r'^    version\("(.*?)"|/mu2mpi-(.*?)\.tar\.gz"$',
    easyconfig(): r"^version = '(.*)'$",
    DOCKERFILE: r"mu2mpi-(\d.*?)(?:\.tar\.gz|-py3|/)|mu2mpi:(\S+)|image\.version=\"(.*)\"",
    APPTAINER: r"mu2mpi-(\d.*?)(?:\.tar\.gz|-py3|\*)|^    Version (.*)$",
}


@pytest.mark.parametrize("path", VERSIONS, ids=lambda path: path.name)
def test_every_recipe_names_the_version(path):
    found = re.findall(VERSIONS[path], path.read_text(), re.MULTILINE)
    assert {"".join(match) for match in found} == {__version__}


def test_the_easyconfig_is_named_like_its_version_and_toolchain():
    values = assigned(easyconfig())
    toolchain = values["toolchain"]
    assert easyconfig().stem == f"mu2mpi-{__version__}-{toolchain['name']}-{toolchain['version']}"


def test_conda_depends_on_what_setup_requires(wanted, python_min, build_requirement):
    recipe = yaml.safe_load(CONDA.read_text())
    assert recipe["context"]["python_min"] == python_min
    run = recipe["requirements"]["run"]
    assert run[0] == "python >=${{ python_min }}"
    assert requirements("\n".join(run[1:])) == wanted
    assert f"setuptools >={build_requirement}" in recipe["requirements"]["host"]


def test_spack_depends_on_what_setup_requires(setup, wanted, python_min, build_requirement):
    extras = setup["options.extras_require"]
    expected = wanted | requirements(extras["analysis"]) | requirements(extras["digits"])
    expected |= {"python": python_min, "setuptools": build_requirement, "mpi": ""}
    assert spack_depends() == expected


def test_modules_of_easybuild_are_as_new_as_setup_requires(setup, wanted):
    values = assigned(easyconfig())
    modules = {normalised(name): version for name, version, *_ in values["dependencies"]}
    extras = setup["options.extras_require"]
    for name, least in (wanted | requirements(extras["analysis"]) | requirements(extras["digits"])).items():
        if name in EASYBUILD_BUNDLES:
            assert normalised(EASYBUILD_BUNDLES[name]) in modules, name
        else:
            assert as_tuple(modules[name]) >= as_tuple(least), name
    assert set(modules) <= {*wanted, "python", "scikit-learn", "matplotlib"} | {
        normalised(bundle) for bundle in EASYBUILD_BUNDLES.values()
    }


def test_containers_install_extras_that_exist(setup):
    for path in (DOCKERFILE, APPTAINER):
        (extras,) = re.findall(r"\.whl\[([\w,]+)\]", path.read_text())
        assert [extra for extra in extras.split(",") if extra not in setup["options.extras_require"]] == []


def test_the_licence_is_the_same_everywhere(setup):
    licence = setup["metadata"]["license_expression"]
    assert yaml.safe_load(CONDA.read_text())["about"]["license"] == licence
    assert [call.args[0].value for call in spack_calls("license")] == [licence]
    assert f'image.licenses="{licence}"' in DOCKERFILE.read_text()
    assert f"License {licence}" in APPTAINER.read_text()


@pytest.mark.parametrize("path", [SPACK, easyconfig()], ids=lambda path: path.name)
def test_a_checksum_that_is_still_a_placeholder_is_marked_for_the_owner(path):
    lines = path.read_text().splitlines()
    (number,) = [number for number, line in enumerate(lines) if CHECKSUM.search(line)]
    is_placeholder = set(CHECKSUM.search(lines[number])[0]) == {"0"}
    assert is_placeholder == lines[number - 1].lstrip().startswith("# OWNER: ")


def test_the_package_of_spack_is_python():
    compile(SPACK.read_text(), SPACK, "exec")
    tests = [
        node.name
        for node in ast.walk(ast.parse(SPACK.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    ]
    assert tests == ["test_two_ranks"]


def run_tool(*command: str | Path, **variables: str) -> str:
    """Run a tool of .venv-packaging, and return what it prints; it must succeed."""
    if not (TOOLS / command[0]).exists():
        missing("there is no .venv-packaging with the tools of recipes: packaging/check.sh makes it")
    environment = os.environ | {"PATH": f"{TOOLS}:{os.environ['PATH']}"} | variables
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [TOOLS / command[0], *command[1:]], env=environment, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_rattler_build_renders_the_recipe():
    render = """
import sys
from rattler_build import PlatformConfig, RenderConfig, Stage0Recipe
config = RenderConfig(platform=PlatformConfig(target_platform="linux-64"))
for variant in Stage0Recipe.from_file(sys.argv[1]).render(render_config=config):
    package = variant.recipe.package
    print(package.name, package.version)
"""
    assert run_tool("python", "-c", render, CONDA).split() == ["mu2mpi", __version__]


@pytest.fixture
def eb(tmp_path):
    """Return a function that runs EasyBuild on the easyconfig."""
    if not Path(LMOD).exists():
        missing("EasyBuild needs a tool for modules: apt install lmod")

    def run(*options: str) -> str:
        if os.getuid() == 0:
            options = ("--allow-use-as-root-and-accept-consequences", *options)
        robot = TOOLS.parent / "easybuild" / "easyconfigs"
        return run_tool(
            "eb",
            f"--prefix={tmp_path}",
            f"--robot-paths={robot}",
            *options,
            easyconfig(),
            HOME=str(tmp_path),
            LMOD_CMD=LMOD,
        )

    return run


@pytest.mark.slow
def test_easybuild_accepts_the_style_and_the_checksum(eb):
    assert "All contribution checks PASSed" in eb("--check-contrib")


@pytest.mark.slow
def test_easybuild_finds_all_modules_that_are_depended_on(eb):
    printed = eb("--dry-run", "--robot")
    assert f"(module: {easyconfig().stem.replace('-', '/', 1)})" in printed
    for name, version, *_ in assigned(easyconfig())["dependencies"]:
        assert re.search(rf"\(module: {re.escape(name)}/{re.escape(version)}-", printed), name


def test_hadolint_accepts_the_dockerfile():
    # DL3008: the releases of Debian's packages change with each of its updates.
    assert run_tool("hadolint", "--ignore", "DL3008", DOCKERFILE) == ""


def test_spython_reads_the_definition():
    parse = """
import json, sys
from spython.main.parse.parsers import SingularityParser
layer = SingularityParser(sys.argv[1]).parse()["spython-base"]
print(json.dumps([layer.fromHeader, layer.files, layer.install]))
"""
    base, files, post = yaml.safe_load(run_tool("python", "-c", parse, APPTAINER))
    assert base == re.search(r"^ARG BASE=(.*)$", DOCKERFILE.read_text(), re.MULTILINE)[1]
    assert {line.split()[0] for line in files} == {
        f"dist/mu2mpi-{__version__}.tar.gz",
        "packaging/smoke-test.sh",
    }
    assert "/opt/mu2mpi/bin/python -m pip uninstall --yes setuptools pip" in post


def test_the_commands_of_the_definition_are_sound(tmp_path):
    if shutil.which("shellcheck") is None:
        missing("there is no shellcheck")
    (post,) = re.findall(r"^%post\n(.*?)^%", APPTAINER.read_text(), re.MULTILINE | re.DOTALL)
    script = tmp_path / "post.sh"
    script.write_text(f"#!/bin/sh\n{post}")
    done = subprocess.run(["shellcheck", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_a_step_that_is_unknown_is_named():
    done = subprocess.run(["bash", PACKAGING / "check.sh", "rpm"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 2
    assert "got rpm" in done.stderr
