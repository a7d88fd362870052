"""Differential privacy: mechanisms, noise sampling and accounting."""
