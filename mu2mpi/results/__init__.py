"""Results of runs: records, HDF5 result files, checkpoints, coefficients and callbacks."""
