"""Results of runs: HDF5 result files and checkpoints, model coefficients, and callbacks during a run."""
