"""Names of the figures, each a module of `mu2mpi.analysis.figures`; imports little, as help needs them."""

import importlib
from pathlib import Path
from typing import Any

from mu2mpi.core.errors import InputError
from mu2mpi.core.extra import needed
from mu2mpi.core.suggestions import or_else

# File formats by suffix, with the metadata that leaves the date out
FORMATS: dict[str, dict[str, None]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


# Summary of each figure by name: the first line of its module, which is not imported
KINDS = {
    path.stem: path.read_text("utf-8").partition("\n")[0].strip('".')
    for path in sorted((Path(__file__).parent / "figures").glob("[!_]*.py"))
}


def find_figure(kind: str, against: str | None = None) -> Any:
    """Return the module that draws a figure, or raise an InputError if there is none, or no such axis.

    It has a function `draw`, and may have `AGAINST`, the choices for the horizontal axis, the default first;
    `NEEDS`, a column of a run's row without which it cannot be drawn; and `is_reported`, whether a report of
    some runs has it.
    """
    if kind not in KINDS:
        raise InputError(f"there is no figure {kind!r}{or_else(kind, KINDS, 'figures')}")
    for package in ("matplotlib", "pandas"):
        needed(package)
    module = importlib.import_module(f"mu2mpi.analysis.figures.{kind}")
    known = getattr(module, "AGAINST", ())
    if against is not None and against not in known:
        meant = or_else(against, known, "choices") if known else "; it leaves no choice"
        raise InputError(f"the figure {kind} is not drawn against {against}{meant}")
    return module


def suffix_of(path: Path) -> str:
    """Return the format that the suffix of a file asks for, or raise an InputError."""
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in FORMATS:
        raise InputError(
            f"a figure is written as {', '.join(FORMATS)}, by its suffix; {path} has none of them"
        )
    return suffix
