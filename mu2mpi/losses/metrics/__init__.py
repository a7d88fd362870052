"""Metrics of the output: one module each."""
