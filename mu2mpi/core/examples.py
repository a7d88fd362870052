"""The examples that come with the package: sweeps, an experiment, and scripts of jobs."""

import re
import shlex
from importlib.resources import files
from pathlib import Path

FOLDER = "jobs"  # Where they lie in a checkout, and where `mu2mpi examples` writes them


def example_texts() -> dict[str, str]:
    """Return the texts of all examples, by the names of their files."""
    folder = files("mu2mpi") / FOLDER
    there = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith((".toml", ".sbatch")))
    return {name: (folder / name).read_text(encoding="utf-8") for name in there}


def purpose(text: str) -> str:
    """Return the first sentence of the first comment of an example."""
    comments = " ".join(line[2:] for line in text.splitlines() if line.startswith("# "))
    return re.split(r"(?<!\.)\.(?:\s|$)", comments)[0]


def way_to(path: Path) -> str:
    """Return how a message about a missing file ends: with what writes it, if it is an example."""
    if path.name not in example_texts():
        return ""
    elsewhere = "" if path.parent == Path(FOLDER) else f" --output {shlex.quote(str(path.parent))}"
    return f", but mu2mpi comes with it: `mu2mpi examples {path.name}{elsewhere}` writes it"
