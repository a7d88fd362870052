"""What can be chosen by name - losses, methods, mechanisms, trust modes, sources - and where it is found.

Built in is what has a module of its name in the folder of its kind. Others are found by the entry points
``mu2mpi.methods`` and so on of their package, or registered. Nothing is imported before it is asked for.
"""

import importlib
import pkgutil
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from mu2mpi.core.errors import InputError
from mu2mpi.core.suggestions import did_you_mean

# Of each kind, the package that holds a module for everything that is built in, beside its base
_FOLDERS = {
    "losses": "mu2mpi.losses",
    "methods": "mu2mpi.methods",
    "mechanisms": "mu2mpi.privacy.mechanisms",
    "servers": "mu2mpi.federation.servers",
    "participation": "mu2mpi.federation.participation",
    "presets": "mu2mpi.methods.presets",
    "metrics": "mu2mpi.losses.metrics",
    "sources": "mu2mpi.data.sources",
    "formats": "mu2mpi.data.formats",
    "partitions": "mu2mpi.data.partitions",
}
_OWN_PACKAGES = ("mu2mpi", *sys.stdlib_module_names)  # packages whose classes are no extensions

Thing = TypeVar("Thing")

# Kinds of which runs make objects of their own
_CLASSES = ("mechanisms", "servers", "participation", "formats", "partitions")

_registered: dict[str, dict[str, Any]] = {kind: {} for kind in _FOLDERS}


def register(thing: Thing) -> Thing:
    """Make something known under its name, and return it, so that this can be a decorator.

    Parameters
    ----------
    thing : class or object
        Its `kind` is ``methods``, ``losses``, ``mechanisms``, ``servers``, ``sources``, ``formats`` or
        ``partitions``, and its `name` is what the
        user calls it; a later one of the same name takes its place.

    Raises
    ------
    ValueError
        If it has no such kind, or no name.

    Examples
    --------
    >>> from mu2mpi.losses.softmax import Softmax
    >>> @mu2mpi.register
    ... class Ours(Softmax):
    ...     name = "ours"
    >>> mu2mpi.Experiment(loss="ours").loss
    'ours'
    """
    kind, name = getattr(thing, "kind", None), getattr(thing, "name", None)
    if kind not in _registered or not isinstance(name, str):
        raise ValueError(f"{thing!r} has no kind among {', '.join(_registered)}, or no name")
    _registered[kind][name] = thing() if isinstance(thing, type) and kind not in _CLASSES else thing
    return thing


def names(kind: str) -> list[str]:
    """Return the names of all things of a kind, those that are built in first."""
    return list(dict.fromkeys([*_built_in(kind), *_entry_points(kind), *_registered[kind]]))


def default(kind: str) -> str:
    """Return the name of the default of a kind that is built in: its `is_default` says so."""
    return next(name for name in _built_in(kind) if find(kind, name).is_default)


def find(kind: str, name: str) -> Any:
    """Return what has this name, importing it if need be; InputError, with what there is, if nothing has."""
    known = _registered[kind]
    if name not in known:
        if name in _built_in(kind):
            importlib.import_module(_built_in(kind)[name])
        elif name in _entry_points(kind):
            thing = _loaded(_entry_points(kind)[name])
            if name not in known:
                register(thing)
    if name not in known:
        meant = did_you_mean(name, names(kind))
        raise InputError(f"there is no {name!r} among the {kind}, which are {', '.join(names(kind))}{meant}")
    return known[name]


def extension_files(*chosen: tuple[str, str]) -> dict[str, Path]:
    """Return the source files of extensions by module, for some pairs of kind and name; none if built in."""
    things = [find(kind, name) for kind, name in chosen]
    classes = [thing if isinstance(thing, type) else type(thing) for thing in things]
    modules = sorted({base.__module__ for each in classes for base in each.__mro__})
    files = {
        module: Path(file)
        for module in modules
        if module.partition(".")[0] not in _OWN_PACKAGES
        and (file := getattr(sys.modules.get(module), "__file__", None)) is not None
    }
    # Of a class that was typed into an interpreter there is no file.
    return {module: file for module, file in files.items() if file.is_file()}


def _loaded(point: Any) -> Any:
    try:
        return point.load()
    except Exception as error:
        package = point.dist.name if point.dist else "a package"
        raise InputError(
            f"{point.name!r} of {package} cannot be imported from {point.value}: {error!r}; mend it, or "
            f"uninstall {package}"
        ) from error


@cache
def _built_in(kind: str) -> dict[str, str]:
    """Return the modules of what is built in by its name."""
    package = importlib.import_module(_FOLDERS[kind])
    found = pkgutil.iter_modules(package.__path__)
    modules = (m.name for m in found if not m.ispkg and not m.name.startswith("_"))
    return {m.replace("_", "-"): f"{_FOLDERS[kind]}.{m}" for m in modules if m != "base"}


@cache
def _entry_points(kind: str) -> dict[str, Any]:
    """Return the entry points of other packages by name."""
    if not _has_entry_points():
        return {}
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"mu2mpi.{kind}")}


@cache
def _has_entry_points() -> bool:
    """Return whether any package has entry points for this one: their files say so fast."""
    for folder in sys.path:
        for file in Path(folder or ".").glob("*.*-info/entry_points.txt"):
            with suppress(OSError):
                if b"[mu2mpi." in file.read_bytes():
                    return True
    return False
