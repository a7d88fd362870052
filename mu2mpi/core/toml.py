"""TOML files of configurations and table schemas, and the example files that the package ships."""

import os
import re
import shlex
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.files import check_readable

MAX_TOML_BYTES = 1 << 20  # Largest TOML file accepted
MAX_TOML_DEPTH = 32  # Nested tables and lists, and dots of a name
EXAMPLES_FOLDER = "jobs"  # In the repository, and the default output folder of `mu2mpi examples`


def read_toml(path: Path) -> dict[str, Any]:
    """Parse a TOML file; InputError if it cannot be read or is not valid TOML."""
    if not os.path.exists(path) and path.name in example_texts():
        output = "" if path.parent == Path(EXAMPLES_FOLDER) else f" --output {shlex.quote(str(path.parent))}"
        hint = f"It is an example that `mu2mpi examples {path.name}{output}` writes."
        raise InputError(f"there is no {path}. {hint}")
    check_readable(path)
    if path.stat().st_size > MAX_TOML_BYTES:
        raise InputError(f"{path} is no configuration or schema: it has more than {MAX_TOML_BYTES} bytes")
    try:
        return parse_toml(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise InputError(f"cannot read {path}: {reason}") from None


def parse_toml(text: str, origin: str) -> dict[str, Any]:
    """Parse the text of a TOML file; InputError that begins with its origin if it is not valid TOML."""
    try:
        # The parser takes memory in proportion to the square of the dots in a name.
        without_comments = re.sub(r"(?m)^\s*#.*", "", text)
        names = re.split(r"[,=\[\]{}\n]|\.\.+", without_comments)
        if max(name.count(".") for name in names) > MAX_TOML_DEPTH:
            raise RecursionError
        content = tomllib.loads(text)
        level: list[Any] = [content]
        for _ in range(MAX_TOML_DEPTH):
            members = (table.values() if isinstance(table, dict) else table for table in level)
            level = [value for values in members for value in values if isinstance(value, dict | list)]
        if level:
            raise RecursionError
    except ValueError as error:
        raise InputError(f"{origin} is not valid TOML: {error}") from None
    except RecursionError:
        limit = f"at most {MAX_TOML_DEPTH} dots in a name and nested tables or lists"
        raise InputError(f"{origin} is nested too deeply. Use {limit}.") from None
    return content


def example_texts() -> dict[str, str]:
    """Read all example files that the package ships; return the text of each by file name."""
    folder = files("mu2mpi") / EXAMPLES_FOLDER
    names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def example_purpose(text: str) -> str:
    """First sentence of the comments, or of a notebook's title, in an example file: its purpose."""
    comments = " ".join(re.findall(r'^ *"?# (.*?)(?:\\n",)?$', text, re.MULTILINE))
    return re.split(r"(?<!\.)\.(?:\s|$)", comments)[0]
