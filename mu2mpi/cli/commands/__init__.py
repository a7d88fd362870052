"""The commands, one module each: a module in this folder is a command under its name.

Its docstring is its help, ``add_arguments(parser)`` its options, and ``execute(arguments)`` may return an
exit code. ``outputs(arguments, ranks)`` names the results that it makes: a signal then waits for a
checkpoint. What is slow to import is imported in functions.
"""

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

# The order of the list of commands; those that are not named here follow by the alphabet
ORDER = "run sweep table plot report compare show predict privacy publish audit job launch data examples info"


def command_names() -> list[str]:
    """Return the names of all commands in their order."""
    found = sorted(module.name for module in iter_modules(__path__))
    order = ORDER.split()
    return sorted(found, key=lambda name: order.index(name) if name in order else len(order))


def load(name: str) -> ModuleType:
    """Import the command of this name."""
    return import_module(f"{__name__}.{name}")
