"""Metrics of predictions on the test set, one module each."""
