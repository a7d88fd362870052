"""What every package builds on: MPI, the registry of extensions, kernels, files, and errors."""
