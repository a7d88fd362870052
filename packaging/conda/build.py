"""Build the conda recipe with rattler-build, and install the package with rattler, from a channel of wheels.

Where no conda channel can be reached, this makes one: each wheel of a folder becomes a conda package with the
dependencies that it declares, and so does the Python interpreter that runs this script.

    python build.py WHEELS SDIST FOLDER

FOLDER then holds channel/ with all packages, mu2mpi's too, and prefix/, where mu2mpi is installed.
"""

import argparse
import asyncio
import platform
import shutil
import subprocess
import sys
import tempfile
from email.parser import HeaderParser
from pathlib import Path

import rattler
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from rattler.index import index_fs
from rattler_build import (
    Package,
    PlatformConfig,
    RenderConfig,
    Stage0Recipe,
    assemble_package,
)

RECIPE = Path(__file__).with_name("recipe.yaml")
SUBDIR = "linux-64"
PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
CONDA_NAMES = {"typing-extensions": "typing_extensions"}
"""Packages whose conda name is not the normalised name of the wheel."""

ADDED_DEPENDENCIES = {"mpi4py": ["mpich"]}
"""What conda packages depend on, and wheels do not declare."""


def conda_name(name: str) -> str:
    """Name of a wheel's package in a channel."""
    normalised = canonicalize_name(name)
    return CONDA_NAMES.get(normalised, normalised)


def package_python(channel: Path) -> None:
    """Make a package of the interpreter that runs this script, without what is installed in it."""
    base = Path(sys.base_prefix)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copytree(
            base / "lib" / PYTHON,
            root / "lib" / PYTHON,
            symlinks=True,
            ignore=shutil.ignore_patterns("site-packages", "dist-packages", "test", "__pycache__", "*.a"),
        )
        for library in base.glob("lib/libpython*.so*"):
            shutil.copy2(library, root / "lib", follow_symlinks=False)
        (root / "bin").mkdir()
        shutil.copy2(base / "bin" / PYTHON, root / "bin")
        for name in ("python", "python3"):
            (root / "bin" / name).symlink_to(PYTHON)
        # As in conda-forge's package, the interpreter finds its library wherever both are installed.
        subprocess.run(["patchelf", "--set-rpath", "$ORIGIN/../lib", root / "bin" / PYTHON], check=True)
        assemble_package(
            "python", platform.python_version(), SUBDIR, "0_local", channel / SUBDIR, files_dir=root
        )


def package_wheel(wheel: Path, channel: Path) -> None:
    """Make a package of an installed wheel, with the dependencies that it declares for this interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
        options = ["--no-deps", "--no-index", "--no-compile", "--ignore-installed", "--prefix", folder]
        subprocess.run([*pip, "install", *options, wheel], check=True)
        (metadata,) = Path(folder).glob("lib/*/site-packages/*.dist-info/METADATA")
        headers = HeaderParser().parsestr(metadata.read_text(encoding="utf-8"))
        # Scripts start the interpreter that runs this one; conda packages declare entry points instead.
        for script in Path(folder).glob("bin/*"):
            if script.read_bytes().startswith(f"#!{sys.executable}".encode()):
                script.unlink()
        requirements = [Requirement(text) for text in headers.get_all("Requires-Dist", [])]
        depends = [
            f"{conda_name(requirement.name)} {requirement.specifier}".strip()
            for requirement in requirements
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ]
        name = conda_name(headers["Name"])
        assemble_package(
            name,
            headers["Version"].replace("-", "_"),
            SUBDIR,
            "0_local",
            channel / SUBDIR,
            files_dir=folder,
            depends=[f"{PYTHON.replace('python', 'python ')}.*", *depends, *ADDED_DEPENDENCIES.get(name, [])],
            compression_level=1,
        )


def build_recipe(sdist: Path, channel: Path, folder: Path) -> None:
    """Build the recipe of an sdist into a channel, and run the tests that the recipe declares."""
    copy = folder / "recipe"
    copy.mkdir()
    # Beside the recipe of a feedstock is its smoke test, and dist/ may be anywhere.
    text = RECIPE.read_text()
    (copy / "recipe.yaml").write_text(text.replace("../../dist/", f"{sdist.resolve().parent}/"))
    shutil.copy2(RECIPE.parents[1] / "smoke-test.sh", copy)
    (variant,) = Stage0Recipe.from_file(copy / "recipe.yaml").render(
        render_config=RenderConfig(platform=PlatformConfig(target_platform=SUBDIR))
    )
    result = variant.run_build(output_dir=channel, channels=[channel.as_uri()])
    print("\n".join(result.log))
    for path in result.packages:
        for number, test in enumerate(Package.from_file(path).run_tests(channel=[channel.as_uri()]), 1):
            print("\n".join(test.output))
            if not test.success:
                raise SystemExit(f"test {number} of the recipe failed")


async def install(specs: list[str], channel: Path, prefix: Path, cache: Path) -> None:
    """Solve and install packages of a channel into an empty prefix."""
    records = await rattler.solve(
        [rattler.Channel(channel.as_uri())],
        specs,
        platforms=[SUBDIR, "noarch"],
        virtual_packages=rattler.VirtualPackage.detect(),
    )
    for record in sorted(records, key=lambda record: record.name.normalized):
        print(f"  {record.name.normalized} {record.version} {record.build}")
    await rattler.install(records, prefix, cache_dir=cache, show_progress=False)


def main() -> None:
    """Make the channel, build the recipe, and install the package."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name in ("wheels", "sdist", "folder"):
        parser.add_argument(name, type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    channel = folder / "channel"
    for subdir in (SUBDIR, "noarch"):
        (channel / subdir).mkdir(parents=True)
    package_python(channel)
    for wheel in sorted(arguments.wheels.glob("*.whl")):
        if not wheel.name.startswith("mu2mpi-"):
            package_wheel(wheel, channel)
    asyncio.run(index_fs(channel))
    build_recipe(arguments.sdist, channel, folder)
    asyncio.run(index_fs(channel))
    asyncio.run(install(["mu2mpi"], channel, folder / "prefix", folder / "cache"))


if __name__ == "__main__":
    main()
