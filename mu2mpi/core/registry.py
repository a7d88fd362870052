"""Registry of everything that is chosen by name: losses, methods, trust modes, figures, commands, ...

The modules of a kind's package are built in. Other packages add things by the entry points ``mu2mpi.methods``
and so on, and users by `register`, in a file that ``mu2mpi --import FILE`` imports. A module is imported when
a thing of it is first used.
"""

import hashlib
import importlib
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from mu2mpi.core.errors import InputError
from mu2mpi.core.suggestions import did_you_mean

# Package of each kind, and the noun of one of its things. Modules of the package are built-in things, except
# NOUN.py, the base class, and those that begin with an underscore; NAME.py or NAME_NOUN.py declares NAME.
_KINDS = {
    "losses": ("mu2mpi.losses", "loss"),
    "methods": ("mu2mpi.methods", "method"),
    "mechanisms": ("mu2mpi.privacy.mechanisms", "mechanism"),
    "servers": ("mu2mpi.federation.servers", "server"),
    "participation": ("mu2mpi.federation.participation", "schedule"),
    "presets": ("mu2mpi.methods.presets", "preset"),
    "metrics": ("mu2mpi.losses.metrics", "metric"),
    "sources": ("mu2mpi.data.sources", "source"),
    "formats": ("mu2mpi.data.formats", "format"),
    "partitions": ("mu2mpi.data.partitions", "partition"),
    "figures": ("mu2mpi.analysis.figures", "figure"),
    "commands": ("mu2mpi.cli.commands", "command"),
}
# Kinds that are registered as classes, which runs instantiate
_CLASSES = ("mechanisms", "servers", "participation", "sources", "formats", "partitions")
_OWN_PACKAGES = ("mu2mpi", *sys.stdlib_module_names)  # Packages whose classes are not extensions

Thing = TypeVar("Thing")


class ImportedFile(NamedTuple):
    """Python file of the user that `import_files` has imported, and the SHA-256 digest of its content."""

    path: Path
    digest: str


class OptionValue:
    """Base class of things that users choose as the value of an option, such as ``--partition labels:N``."""

    name: str
    form: ClassVar[str]  # value as users write it, such as "labels:N"; by default the name

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls) and "form" not in vars(cls):
            cls.form = cls.name


_registered: dict[str, dict[str, Any]] = {kind: {} for kind in _KINDS}
_imported: dict[str, ImportedFile] = {}  # By module name


def register(thing: Thing) -> Thing:
    """Make something known under its name, and return it, so that this can be a decorator.

    Parameters
    ----------
    thing : class or object
        Its `kind` is ``methods``, ``losses``, ``figures`` or another one, and users choose it by its `name`.
        A later thing of the same name replaces it, but a built-in one replaces nothing.

    Raises
    ------
    ValueError
        If it has no such kind, or no name, or lacks what its base class asks for.

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
    if missing := _missing(thing):
        raise ValueError(f"{thing!r} lacks {', '.join(missing)}")
    is_built_in = getattr(thing, "__module__", None) == _built_in(kind).get(name, "")
    if not (is_built_in and name in _registered[kind]):
        _registered[kind][name] = thing() if isinstance(thing, type) and kind not in _CLASSES else thing
    return thing


def _missing(thing: object) -> list[str]:
    """Return the methods and class variables that base classes declare and a thing does not define."""
    cls = thing if isinstance(thing, type) else type(thing)
    declared = (entry for base in cls.__mro__ for entry in vars(base).get("__annotations__", {}).items())
    variables = {name for name, annotation in declared if "ClassVar" in str(annotation)}
    absent = {name for name in variables if not hasattr(thing, name)}
    return sorted(absent | getattr(cls, "__abstractmethods__", frozenset()))


def names(kind: str) -> list[str]:
    """Return the names of all things of a kind, those that are built in first."""
    return list(dict.fromkeys([*_built_in(kind), *_entry_points(kind), *_registered[kind]]))


def summary(kind: str, name: str) -> str:
    """Return the first line of a thing's documentation, which of built-in ones is read without an import."""
    module = _built_in(kind).get(name)
    text = find(kind, name).__doc__ if module is None else _file(module).read_text("utf-8")
    return str(text or name).strip('"\n ').partition("\n")[0].rstrip('".')


def default(kind: str) -> str:
    """Return the name of the default of a kind that is built in: its `is_default` says so."""
    return next(name for name in _built_in(kind) if find(kind, name).is_default)


def find(kind: str, name: str) -> Any:
    """Return what has this name, importing it if need be; InputError, with what there is, if nothing has."""
    known = _registered[kind]
    if name not in known and name in _built_in(kind):
        module = importlib.import_module(_built_in(kind)[name])
        if kind == "commands":
            known[name] = module  # A built-in command is a module.
    elif name not in known and name in _entry_points(kind):
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
    others = [module for module in modules if module.partition(".")[0] not in _OWN_PACKAGES]
    # Of a class that was typed into an interpreter there is no file.
    files = {module: Path(getattr(sys.modules.get(module), "__file__", None) or "") for module in others}
    return {module: file for module, file in files.items() if file.is_file()}


def import_files(paths: Iterable[Path | str]) -> None:
    """Import Python files of the user's, each once as a module of its name; InputError if one cannot be."""
    for path in map(Path, paths):
        file = path.expanduser().resolve()
        spec = spec_from_file_location(file.stem, file)
        if spec is None or not file.is_file():
            raise InputError(f"cannot import {path}: it is not a Python file. --import takes a file.py")
        if (known := _imported.get(file.stem)) is None:
            _check_module_name(file)
            _import_file(file, spec)
        elif known.path != file:
            raise InputError(f"cannot import {path}: {known.path} has the same name. Rename one of them")


def imported_files() -> dict[str, ImportedFile]:
    """Return the files that `import_files` has imported, by the names of their modules, which are sorted."""
    return dict(sorted(_imported.items()))


def import_options() -> list[str]:
    """Return the options of a command line that imports the same files."""
    return [f"--import={file.path}" for file in imported_files().values()]


def describe_imports() -> str:
    """Return the paths and digests of the imported files as text; empty if there are none."""
    return ", ".join(f"{file.path} (SHA-256 {file.digest})" for file in imported_files().values())


def _check_module_name(file: Path) -> None:
    """Raise InputError if another module has the name of a file, or Python cannot import it by its name."""
    name = file.stem
    is_known = "." in name or name in _OWN_PACKAGES or name in sys.modules
    if not is_known and (other := find_spec(name)) is not None:
        is_known = other.origin is None or Path(other.origin).resolve() != file
    if is_known:
        raise InputError(f"cannot import {file}: another module may be called {name}. Rename the file")


def _import_file(file: Path, spec: ModuleSpec) -> None:
    """Execute a file as a module; its digest is that of the very bytes that are executed."""
    module = module_from_spec(spec)
    # Among others dataclasses look for the module of their class there.
    sys.modules[spec.name] = module
    try:
        content = file.read_bytes()
        exec(compile(content, file, "exec"), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[spec.name]
        if isinstance(error, SyntaxError) and error.filename == str(file):
            line, reason = error.lineno, error.msg
        else:
            frames = traceback.extract_tb(error.__traceback__)
            line = next((frame.lineno for frame in reversed(frames) if frame.filename == str(file)), 0)
            reason = str(error)
        where = f"{file}, line {line}" if line else file
        raise InputError(f"cannot import {where}: {type(error).__name__}: {reason}") from error
    _imported[spec.name] = ImportedFile(file, hashlib.sha256(content).hexdigest())


def _loaded(point: Any) -> Any:
    try:
        return point.load()
    except Exception as error:
        package = point.dist.name if point.dist else "a package"
        what = f"{point.name!r} of {package} cannot be imported from {point.value}: {error!r}"
        raise InputError(f"{what}; mend it, or uninstall {package}") from error


@cache
def _built_in(kind: str) -> dict[str, str]:
    """Return the modules of built-in things by name, without importing their package."""
    package, noun = _KINDS[kind]
    modules = {
        module.name.removesuffix(f"_{noun}"): f"{package}.{module.name}"
        for module in pkgutil.iter_modules([str(_file(package).with_suffix(""))])
        if not module.ispkg and module.name[0] != "_" and module.name != noun
    }
    return {name.replace("_", "-"): modules[name] for name in sorted(modules)}


def _file(module: str) -> Path:
    return Path(__file__).parents[2].joinpath(*module.split(".")).with_suffix(".py")


@cache
def _entry_points(kind: str) -> dict[str, Any]:
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
