"""The commands. Each module of this folder is one; `mu2mpi.register` adds others, of the kind ``commands``.

A command has a docstring, which is its help, ``add_arguments(parser)``, which adds its options, and
``execute(arguments)``, which may return an exit code. ``outputs(arguments, ranks)`` names the results that it
writes: a signal then waits for a checkpoint. What is slow to import is imported in functions.
"""

from mu2mpi.core.registry import names

# The order of the list of commands; others follow in that of their names
ORDER = "run sweep table plot report compare show predict privacy publish audit job launch data examples info"


def command_names() -> list[str]:
    """Return the names of all commands in their order."""
    order, known = ORDER.split(), names("commands")
    return order + sorted({*known} - {*order})
