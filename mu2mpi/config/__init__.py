"""Settings of experiments and sweeps: validation, TOML, and the task of a run."""
