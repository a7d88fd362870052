"""Registry of components that are chosen by name: losses, methods, trust modes, figures, commands, ...

Distributions add components by entry points such as ``mu2mpi.methods``, users by `register` in a file that
``mu2mpi --import FILE`` imports. A module is imported when one of its components is first looked up.
"""

import hashlib
import importlib
import os
import pkgutil
import sys
import traceback
from collections.abc import Iterable
from contextlib import suppress
from functools import cache
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from mu2mpi.core.errors import InputError
from mu2mpi.core.suggestions import should_be_one_of

# Package of each kind of component, and its noun in the singular. NAME.py or NAME_NOUN.py in the package
# declares the built-in component NAME; NOUN.py is the base class, and modules with an underscore are helpers.
_COMPONENT_PACKAGES = {
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
# Kinds registered as classes, which runs instantiate; components of other kinds are registered as instances
_KINDS_REGISTERED_AS_CLASSES = ("mechanisms", "servers", "participation", "sources", "formats", "partitions")
_NON_EXTENSION_PACKAGES = ("mu2mpi", *sys.stdlib_module_names)  # Packages whose classes are not extensions

Component = TypeVar("Component")


class ImportedFile(NamedTuple):
    """Python file of a user that `import_files` has imported."""

    path: Path
    digest: str  # SHA-256 of the content, hexadecimal


class OptionValue:
    """Base class of components that are the value of an option, such as ``--partition labels:N``."""

    name: str
    option_syntax: ClassVar[str]  # Syntax of the value, such as "labels:N"; by default the name

    def __init_subclass__(cls) -> None:
        if "name" in vars(cls) and "option_syntax" not in vars(cls):
            cls.option_syntax = cls.name


_components: dict[str, dict[str, Any]] = {kind: {} for kind in _COMPONENT_PACKAGES}
_imported_files: dict[str, ImportedFile] = {}  # By module name


def register(component: Component) -> Component:
    """Register a component under its kind and name, and return it; usable as a decorator.

    Parameters
    ----------
    component : class or object
        Component with the attributes `component_kind` (``methods``, ``losses``, ``figures``, ...) and `name`,
        by which users choose it. It replaces a component of the same name; built-in components replace none.

    Raises
    ------
    ValueError
        If the kind is unknown, or the name or a required method or class variable is missing.

    Examples
    --------
    >>> from mu2mpi.losses.softmax import SoftmaxLoss
    >>> @mu2mpi.register
    ... class Ours(SoftmaxLoss):
    ...     name = "ours"
    >>> mu2mpi.Experiment(loss="ours").loss
    'ours'
    """
    kind, name = getattr(component, "component_kind", None), getattr(component, "name", None)
    if kind not in _components or not isinstance(name, str):
        raise ValueError(f"{component!r} has no component_kind among {', '.join(_components)}, or no name")
    if missing := _missing_attributes(component):
        raise ValueError(f"{component!r} lacks {', '.join(missing)}")
    is_built_in = getattr(component, "__module__", None) == _built_in_modules(kind).get(name, "")
    if not (is_built_in and name in _components[kind]):
        instantiates = kind not in _KINDS_REGISTERED_AS_CLASSES
        _components[kind][name] = component() if instantiates and isinstance(component, type) else component
    return component


def _missing_attributes(component: object) -> list[str]:
    cls = component if isinstance(component, type) else type(component)
    declared = (entry for base in cls.__mro__ for entry in vars(base).get("__annotations__", {}).items())
    variables = {name for name, annotation in declared if "ClassVar" in str(annotation)}
    absent = {name for name in variables if not hasattr(component, name)}
    return sorted(absent | getattr(cls, "__abstractmethods__", frozenset()))


def known_names(kind: str) -> list[str]:
    """Return the names of all components of a kind; built-in ones come first."""
    return list(dict.fromkeys([*_built_in_modules(kind), *_entry_points(kind), *_components[kind]]))


def registered_options(*kinds: str) -> tuple[Any, ...]:
    """Return names and classes of own options of the imported components of kinds, a key for caches."""
    by_name = [_components[kind] for kind in kinds]
    return (*chain(*by_name), *[component.options for each in by_name for component in each.values()])


def component_summary(kind: str, name: str) -> str:
    """First line of a component's docstring; for built-in components the module's, read without importing."""
    module = _built_in_modules(kind).get(name)
    text = lookup(kind, name).__doc__ if module is None else _source_file(module).read_text("utf-8")
    return str(text or name).strip('"\n ').partition("\n")[0].rstrip('".')


def default_name(kind: str) -> str:
    """Return the name of the built-in component of a kind whose attribute `is_default` is true."""
    return next(name for name in _built_in_modules(kind) if lookup(kind, name).is_default)


def lookup(kind: str, name: str) -> Any:
    """Return a component by kind and name, importing its module if necessary; InputError if unknown."""
    registered = _components[kind]
    if name not in registered and name in _built_in_modules(kind):
        module = importlib.import_module(_built_in_modules(kind)[name])
        if kind == "commands":
            registered[name] = module  # A built-in command is a module.
    elif name not in registered and name in _entry_points(kind):
        component = _load_entry_point(_entry_points(kind)[name])
        if name not in registered:  # Its module may have registered it.
            register(component)
    if name not in registered:
        raise InputError(f"unknown {name!r} in {kind}: it {should_be_one_of(name, known_names(kind))}")
    return registered[name]


def extension_paths(*component_names: tuple[str, str]) -> dict[str, Path]:
    """Source files of extensions among components, given as pairs (kind, name), by module name."""
    components = [lookup(kind, name) for kind, name in component_names]
    classes = [component if isinstance(component, type) else type(component) for component in components]
    modules = sorted({base.__module__ for cls in classes for base in cls.__mro__})
    extensions = [module for module in modules if module.partition(".")[0] not in _NON_EXTENSION_PACKAGES]
    files = {module: Path(getattr(sys.modules.get(module), "__file__", None) or "") for module in extensions}
    return {module: file for module, file in files.items() if file.is_file()}


def import_files(paths: Iterable[Path | str]) -> None:
    """Import Python files once each, as modules named after the files; InputError if an import fails."""
    for path in map(Path, paths):
        file = Path(os.path.realpath(os.path.expanduser(path)))
        spec = spec_from_file_location(file.stem, file)
        if spec is None or not file.is_file():
            raise InputError(f"cannot import {path}: it is not a Python file. --import takes a file.py.")
        if (imported := _imported_files.get(file.stem)) is None:
            _check_module_name(file)
            _import_file(file, spec)
        elif imported.path != file:
            raise InputError(f"cannot import {path}: {imported.path} has the same name. Rename one of them.")


def imported_files() -> dict[str, ImportedFile]:
    """Return the files that `import_files` has imported, by module name in sorted order."""
    return dict(sorted(_imported_files.items()))


def import_option_arguments() -> list[str]:
    """Command-line arguments ``--import=FILE`` of all files that `import_files` has imported."""
    return [f"--import={file.path}" for file in imported_files().values()]


def describe_imported_files() -> str:
    """Line with the paths and SHA-256 digests of the files that `import_files` has imported, or ""."""
    return ", ".join(f"{file.path} (SHA-256 {file.digest})" for file in imported_files().values())


def _check_module_name(file: Path) -> None:
    name = file.stem
    is_taken = "." in name or name in _NON_EXTENSION_PACKAGES or name in sys.modules
    if not is_taken and (other_module := find_spec(name)) is not None:
        is_taken = other_module.origin is None or Path(other_module.origin).resolve() != file
    if is_taken:
        raise InputError(f"cannot import {file}: another module may be called {name}. Rename the file.")


def _import_file(file: Path, spec: ModuleSpec) -> None:
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # Dataclasses look up the module of a class here.
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
        location = f"{file}, line {line}" if line else file
        raise InputError(f"cannot import {location}: {type(error).__name__}: {reason}") from error
    _imported_files[spec.name] = ImportedFile(file, hashlib.sha256(content).hexdigest())


def _load_entry_point(entry_point: Any) -> Any:
    try:
        return entry_point.load()
    except Exception as error:
        package = entry_point.dist.name if entry_point.dist else "a package"
        reason = f"{entry_point.name!r} of {package} cannot be imported from {entry_point.value}: {error!r}"
        raise InputError(f"{reason}. Repair or uninstall {package}.") from error


@cache
def _built_in_modules(kind: str) -> dict[str, str]:
    """Return the module name of each built-in component of a kind, by component name, without imports."""
    package, noun = _COMPONENT_PACKAGES[kind]
    modules = {
        module.name.removesuffix(f"_{noun}"): f"{package}.{module.name}"
        for module in pkgutil.iter_modules([str(_source_file(package).with_suffix(""))])
        if not module.ispkg and module.name[0] != "_" and module.name != noun
    }
    return {name.replace("_", "-"): modules[name] for name in sorted(modules)}


def _source_file(module: str) -> Path:
    return Path(__file__).parents[2].joinpath(*module.split(".")).with_suffix(".py")


@cache
def _entry_points(kind: str) -> dict[str, Any]:
    if not _has_entry_points():
        return {}
    from importlib.metadata import entry_points

    return {point.name: point for point in entry_points(group=f"mu2mpi.{kind}")}


@cache
def _has_entry_points() -> bool:
    for folder in sys.path:
        for file in Path(folder or ".").glob("*.*-info/entry_points.txt"):
            with suppress(OSError):
                if b"[mu2mpi." in file.read_bytes():
                    return True
    return False
