"""The command line: a program that finds its commands, each of them a thin layer over the package."""

from mu2mpi.cli.program import main as main
