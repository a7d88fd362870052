"""Federated optimisation methods, one module each, and presets of their settings."""
