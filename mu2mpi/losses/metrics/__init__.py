"""Metrics of predictions on the test set."""
