"""The examples that come with the package: sweeps, an experiment, and scripts of jobs."""

import re
import shlex
from importlib.resources import files
from pathlib import Path

FOLDER = "jobs"
"""Where they lie in a checkout, and where `mu2mpi examples` writes them."""


def example_names() -> list[str]:
    """Return the names of their files."""
    there = (entry.name for entry in (files("mu2mpi") / FOLDER).iterdir())
    return sorted(name for name in there if Path(name).suffix in (".toml", ".sbatch"))


def example_text(name: str) -> str:
    """Return the text of an example."""
    return (files("mu2mpi") / FOLDER / name).read_text(encoding="utf-8")


def purpose(name: str) -> str:
    """Return the first sentence of an example's first comment, which says what it is for."""
    lines = example_text(name).splitlines()
    comments = [line[2:] if line.startswith("# ") else "" for line in lines]
    paragraph = re.split(r"\n\n+", "\n".join(comments).strip("\n"))[0]
    return re.split(r"(?<!\.)\.\s", " ".join(paragraph.split()))[0].rstrip(".")


def way_to(path: Path) -> str:
    """Return how a message ends about a file that is not there: with what writes it, if it is an example."""
    if path.name not in example_names():
        return ""
    elsewhere = "" if path.parent == Path(FOLDER) else f" --output {shlex.quote(str(path.parent))}"
    return f", but mu2mpi comes with it: `mu2mpi examples {path.name}{elsewhere}` writes it"
