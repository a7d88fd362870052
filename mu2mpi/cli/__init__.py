# PYTHON_ARGCOMPLETE_OK: for users of argcomplete's global completion
"""Command line of mu2mpi: one module per command, each a thin layer over the package."""

from mu2mpi.cli.program import main as main
