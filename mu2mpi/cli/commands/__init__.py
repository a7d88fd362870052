"""Commands, one module each; `mu2mpi.register` adds others, of the kind ``commands``.

A command has a docstring, which is its help, ``add_arguments(parser)``, and ``run_command(arguments)``, which
may return an exit code. Optional are ``output_paths(arguments, ranks)``, the result files of a run that a
signal stops with a checkpoint, and ``COMMON_OPTIONS`` and ``USAGE_EXAMPLES``, the first screen of a help with
topics. Slow imports are in functions.
"""

from mu2mpi.core.registry import known_names

# Order of built-in commands in the help; others follow alphabetically
COMMAND_ORDER = (
    "init run sweep table plot report show predict privacy publish audit job launch data examples info"
)


def command_names() -> list[str]:
    """Return the names of all commands in the order of the help."""
    built_in = COMMAND_ORDER.split()
    return built_in + sorted({*known_names("commands")} - {*built_in})
