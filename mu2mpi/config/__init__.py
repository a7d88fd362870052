"""Settings of experiments and sweeps: validation, TOML, and the problem of a run."""
