"""Foundations of all packages: MPI, the registry of extensions, kernels, files, errors and messages."""
