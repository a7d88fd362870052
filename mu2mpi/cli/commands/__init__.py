"""The commands, one module each: a module in this folder is a command under its name.

``SUMMARY`` is its line in the list of commands, and ``execute(arguments)`` may return an exit code other than
0; ``arguments.parser.error`` complains of bad usage. It may have ``MORE``, which follows in its own help,
``add_arguments(parser)``, called if it is given, and ``MAKES_RESULTS = True``: a signal that asks for a
checkpoint then waits for the run, and what cannot be printed is no failure. ``outputs(arguments, ranks)``
tells `mu2mpi launch` what files it will write, and so whether it has got further. The list of commands
imports all: what takes long is imported in functions.
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

ORDER = "run sweep table plot report compare show predict privacy publish audit job launch data examples info"
"""The order of the list of commands; those that are not named here follow by the alphabet."""


def command_names() -> list[str]:
    """Return the names of all commands in their order."""
    found = sorted(module.name for module in iter_modules(__path__))
    order = ORDER.split()
    return sorted(found, key=lambda name: order.index(name) if name in order else len(order))


def load(name: str) -> ModuleType:
    """Import the command of this name."""
    return import_module(f"{__name__}.{name}")
