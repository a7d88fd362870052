"""TOML files: configurations, schemas of tables, and the examples that come with the package."""

import os
import re
import shlex
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.files import check_readable

MOST_BYTES = 1 << 20
FOLDER = "jobs"  # Where they lie in a checkout, and where `mu2mpi examples` writes them


def read_toml(path: Path) -> dict[str, Any]:
    """Read a file; InputError if it cannot be read or is not TOML."""
    # Unlike that of pathlib, which raises for a name that is too long.
    if not os.path.exists(path) and (example := _way_to(path)):
        raise InputError(f"there is no {path}{example}")
    check_readable(path)
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path} is no configuration or schema: it has more than {MOST_BYTES} bytes")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        # Python reads neither numbers of thousands of digits nor lists that are as deep.
        raise InputError(f"{path} is not valid TOML: {error}") from None


def example_texts() -> dict[str, str]:
    """Return the texts of all examples, by the names of their files."""
    folder = files("mu2mpi") / FOLDER
    there = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith((".toml", ".sbatch")))
    return {name: (folder / name).read_text(encoding="utf-8") for name in there}


def purpose(text: str) -> str:
    """Return the first sentence of the first comment of an example."""
    comments = " ".join(line[2:] for line in text.splitlines() if line.startswith("# "))
    return re.split(r"(?<!\.)\.(?:\s|$)", comments)[0]


def _way_to(path: Path) -> str:
    """Hint in a message about a missing file: the command that writes it, if it is an example."""
    if path.name not in example_texts():
        return ""
    elsewhere = "" if path.parent == Path(FOLDER) else f" --output {shlex.quote(str(path.parent))}"
    return f", but mu2mpi comes with it: `mu2mpi examples {path.name}{elsewhere}` writes it"
