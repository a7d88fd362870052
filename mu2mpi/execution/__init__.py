"""Execution of experiments: plan, main loop, evaluation, checkpoints, signals and sweeps."""
